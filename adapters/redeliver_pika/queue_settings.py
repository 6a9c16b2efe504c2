# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Reads the settings of a queue from what the management tells: its arguments, its policy, the operator's policy. Pure.

A policy is looked for in the list of policies, because the management shows it at a queue only after some seconds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from redeliver_mw.adapter.inspection import LengthLimit, Overflow, Setting

APPLIES = ("all", "queues")
OVERFLOWS: Mapping[object, Overflow] = {
    "drop-head": "drops",
    "reject-publish": "refuses",
    "reject-publish-dlx": "refuses",
}
_RESTRICTING = ("message-ttl", "expires", "max-length", "max-length-bytes", "delivery-limit", "consumer-timeout")


@dataclass(frozen=True, slots=True)
class QueuePolicies:
    """Holds all policies of a virtual host, or nothing if this user may not list them."""

    policies: Sequence[Mapping[str, Any]] | None = None
    operator_policies: Sequence[Mapping[str, Any]] | None = None


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """Holds the settings of one queue, and how each of them can be changed.

    `gathered` is False if the policies of the queue are not known yet.
    """

    queue: Mapping[str, Any]
    policy: Mapping[str, Any] = field(default_factory=dict)
    policy_name: str = ""
    operator_policy: Mapping[str, Any] = field(default_factory=dict)
    operator_policy_name: str = ""
    gathered: bool = True

    @property
    def name(self) -> str:
        return str(self.queue.get("name"))

    @property
    def type(self) -> str:
        return str(self.queue.get("type") or "classic")

    @property
    def definition(self) -> Mapping[str, Any]:
        """Return both policies together, as the broker applies them."""
        merged = {**self.policy, **self.operator_policy}
        for key in _RESTRICTING:
            values = [p[key] for p in (self.policy, self.operator_policy) if _is_number(p.get(key))]
            if values:
                merged[key] = min(values)
        return merged

    def numbers(self, key: str) -> list[Setting]:
        """Return each place where a number is set, as the unscaled value."""
        return [place for place in self.places(key) if place is not None and _is_number(place.value)]

    def least(self, key: str, scale: float = 1.0) -> Setting | None:
        """Return the smallest number that is set, which is the one that acts."""
        found = min(self.numbers(key), key=lambda setting: setting.value, default=None)
        return None if found is None else found._replace(value=found.value / scale)

    def first(self, key: str) -> tuple[Any, str, str] | None:
        """Return value, spelling and change of a setting that is no number: an argument wins over a policy."""
        places = [place for place in self.places(key) if place is not None]
        return (places[0].value, places[0].spelled, places[0].change) if places else None

    def places(self, key: str) -> list[Setting | None]:
        """Return where a setting may stand: the argument, the operator's policy, the policy; None where it does not."""
        arguments = self.queue.get("arguments") or {}
        operator, user = self.operator_policy_name, self.policy_name
        return [
            _place(arguments, f"x-{key}", "", _anew(self.name, f"x-{key}")),
            _place(
                self.operator_policy, key, f" in the operator policy {operator!r}", _by("operator policy", operator)
            ),
            _place(self.policy, key, f" in the policy {user!r}", _by("policy", user)),
        ]


def _place(values: Mapping[str, Any], key: str, at: str, change: str) -> Setting | None:
    return (
        Setting(values[key], f"{key} {values[key] if values[key] != '' else repr('')}{at}", change.format(key=key))
        if key in values
        else None
    )


def _anew(queue: str, argument: str) -> str:
    return f"{argument} is an argument of the queue, which cannot be changed: delete {queue!r} and declare it anew"


def _by(kind: str, name: str) -> str:
    command = "set_operator_policy" if kind.startswith("operator") else "set_policy"
    return f"Change {{key}} in the {kind} {name!r} (rabbitmqctl {command})"


def settings_of(queue: Mapping[str, Any], found: QueuePolicies) -> QueueSettings:
    """Return the settings of a queue as the management describes it."""
    if found.policies is None:
        shown = queue.get("effective_policy_definition")
        policy = shown if isinstance(shown, dict) else {}
        name = str(queue.get("policy") or queue.get("operator_policy") or "")
        return QueueSettings(queue, policy, name, gathered=isinstance(shown, dict))
    user, operator = _matching(queue, found.policies), _matching(queue, found.operator_policies or ())
    return QueueSettings(
        queue,
        user.get("definition") or {},
        str(user.get("name", "")),
        operator.get("definition") or {},
        str(operator.get("name", "")),
    )


def _matching(queue: Mapping[str, Any], policies: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the policy that applies to the queue: of those that match the one with the highest priority."""
    kinds = (*APPLIES, f"{queue.get('type') or 'classic'}_queues")
    matching = [p for p in policies if p.get("apply-to", "all") in kinds and _matches(str(p.get("pattern")), queue)]
    return max(matching, key=lambda p: p.get("priority", 0), default={})


def _matches(pattern: str, queue: Mapping[str, Any]) -> bool:
    try:
        return re.search(pattern, str(queue.get("name"))) is not None
    except re.error:  # valid for the broker, and not for Python
        return queue.get("policy") is not None


def length_of(settings: QueueSettings) -> LengthLimit | None:
    """Return the most that the queue holds; None for a stream, which forgets its oldest messages on purpose."""
    limits = settings.numbers("max-length") + settings.numbers("max-length-bytes")
    if not limits or settings.type == "stream":
        return None
    overflow, spelled = overflow_of(settings)
    return LengthLimit(
        OVERFLOWS.get(overflow, "drops"), f"{', '.join(one.spelled for one in limits)}; {spelled}", limits[0].change
    )


def overflow_of(settings: QueueSettings) -> tuple[Any, str]:
    """Return what a full queue does, and its spelling. Of a quorum queue a policy wins over the argument."""
    places = settings.places("overflow")
    if settings.type == "quorum":
        places = places[1:] + places[:1]
    found = next((place for place in places if place is not None), None)
    return ("drop-head", "overflow drop-head, the default") if found is None else (found.value, found.spelled)


def idle_strategy(settings: QueueSettings) -> Setting | None:
    """Return a dead-letter strategy of a quorum queue that the broker replaces by at-most-once.

    At-least-once needs `overflow` `reject-publish`, whether the queue has a limit or not. Otherwise the broker writes a
    line into its log and publishes dead letters without waiting for a confirm (observed on RabbitMQ 3.10.8 and 4.3.6).
    """
    strategy = settings.first("dead-letter-strategy")
    if settings.type != "quorum" or strategy is None or strategy[0] != "at-least-once":
        return None
    overflow, spelled = overflow_of(settings)
    if overflow == "reject-publish" or settings.first("dead-letter-exchange") is None:
        return None
    return Setting(0.0, f"{strategy[1]}, and {spelled}", strategy[2])


def vanishing(settings: QueueSettings) -> Setting | None:
    """Return why the queue is deleted by itself; None if it is not."""
    for mark, name in (("auto_delete", "auto-delete"), ("exclusive", "exclusive")):
        if settings.queue.get(mark):
            return Setting(0.0, name, f"Delete {settings.name!r} and declare it anew, not {name}")
    return settings.least("expires", 1000.0)


def idle_retry(settings: QueueSettings) -> Setting | None:
    """Return a delayed retry without effect: of an unknown type, or one of type and minimum without the other."""
    kind, least = settings.first("delayed-retry-type"), settings.least("delayed-retry-min")
    if kind is None and least is None:
        return None
    if kind is not None and kind[0] in ("all", "failed", "returned") and least is not None:
        return None
    if kind is not None and kind[0] == "disabled":
        return None
    what = kind[1:] if kind is not None else (least.spelled, least.change) if least is not None else ("", "")
    missing = "delayed-retry-min is not set" if least is None else "delayed-retry-type is none of all, failed, returned"
    return Setting(0.0, f"{what[0]}, and {missing}", what[1])


def retry_delay(settings: QueueSettings) -> Setting | None:
    """Return the shortest delay of returned messages, whatever returns them; None if there is none."""
    kind, least = settings.first("delayed-retry-type"), settings.least("delayed-retry-min", 1000.0)
    if kind is None or least is None or kind[0] not in ("all", "failed", "returned"):
        return None
    most = settings.least("delayed-retry-max", 1000.0)
    value = least.value if most is None else min(least.value, most.value)
    return Setting(value, f"{kind[1]}, {least.spelled}", kind[2])


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
