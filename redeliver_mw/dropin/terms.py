# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""The options that all drop-in wrappers share, checked once; and what comes of them for one source."""

from __future__ import annotations

import copy
import os
import socket
import sys
from pathlib import Path
from typing import Any, Literal, Self, TypedDict

from ..capabilities import Capabilities
from ..copies import Signature
from ..decorator import policy_on
from ..delay import Option, ways_of
from ..errors import ConfigError
from ..message import Destination
from ..options import AnyPolicy, healthy_told
from ..policy import RedeliveryPolicy, policy_of
from ..ports import Journal
from ..record import Healthy
from ..recording import Recorder
from ..stories import Plan
from .own_limbo import OwnLimbo

WhenSettled = Literal["return", "callback"]


class Options(TypedDict, total=False):
    """Of `redelivering` and its like.

    - `policy`: any policy text, a RedeliveryPolicy or PolicyMap; else the callback's `@redeliver` mark, else the
      default policy.
    - `delay`: `auto`, `hold`, `schedule`, or with a limbo `park`.
    - `journal`: a folder, or a Journal, for an AttemptRecord of each attempt.
    - `journal_healthy`: `all`, or with `counts` messages that go well at once are counted, not told one by one.
    - `app_name`: for records and dead letters; the program's name by default.
    - `settle`: `return`, or with `callback` returning is not success: the callback's own ack, later, is.
    - `hold_max`: deliveries (>= 1, 20 by default) that may be held here at once, each for ten seconds at most.
    - `limbo`: the URL of a database for what is to wait longer than can be held here or at the broker; needs
      `publisher=`, over which it goes out when it is due.
    - `crash_safe`: refused; an App has it.
    """

    policy: AnyPolicy | None
    delay: Option
    journal: str | os.PathLike[str] | Journal | None
    journal_healthy: Healthy
    limbo: str | None
    crash_safe: bool
    app_name: str | None
    settle: WhenSettled
    hold_max: int


class Terms:
    """Checked `Options`: ConfigError for what cannot be, PolicyError for a policy that cannot be read."""

    def __init__(
        self, *, policy: AnyPolicy | None = None, delay: Option = "auto",
        journal: str | os.PathLike[str] | Journal | None = None, limbo: str | None = None, crash_safe: bool = False,
        app_name: str | None = None, settle: WhenSettled = "return", hold_max: int = 20, publisher: str | None = None,
        journal_healthy: Healthy = "all",
    ) -> None:  # fmt: skip
        if crash_safe:
            raise ConfigError(
                "crash_safe=True needs an App: a wrapper cannot let suspects run alone", cure="Use an App"
            )
        _check(delay, settle, hold_max, parks=limbo is not None)
        self._given = None if policy is None else policy_of(policy)
        self._policy = RedeliveryPolicy() if self._given is None else self._given
        self._delay, self._hold_max = delay, hold_max
        self.settle = settle
        self.app_name = app_name or Path(sys.argv[0] or "python").stem
        self.limbo = _limbo(limbo, publisher, self.app_name)
        self.host = socket.gethostname()
        self.recorder = Recorder(_journal(journal), [], healthy=healthy_told(journal_healthy, journal))

    def on(self, callback: object) -> Self:
        """The same for this callback, whose mark is its policy where none was given."""
        marked = policy_on(callback)
        if self._given is not None or marked is None:
            return self
        found = copy.copy(self)
        found._policy = marked
        return found

    def plan(self, source: Destination, capabilities: Capabilities) -> Plan:
        """ConfigError or PolicyError for a policy that cannot be had here."""
        policy = self._policy.resolve(source.name, source.kind)
        everybody_hears = source.kind == "topic" and not source.subscription  # also a copy that comes out of limbo
        ways = ways_of(
            source, capabilities, option=self._delay, prefetch=2 * self._hold_max, longest=policy.longest_delay,
            ack_timeout=capabilities.ack_timeout, limbo=self.limbo is not None and not everybody_hears,
        )  # fmt: skip
        for target in policy.places:
            if target.resolve(source) == source:
                raise ConfigError(
                    f"its dead letters would go to {source}, where they come from",
                    where=str(source), cure="Give the policy another dead_letter target",
                )  # fmt: skip
        return Plan(
            source,
            policy,
            ways,
            Signature(source, self.app_name, self.host, policy.text, policy.version, policy.language),
        )


def _limbo(url: str | None, publisher: str | None, app_name: str) -> OwnLimbo | None:
    """What is due must be published by somebody, also when the user's connection is closed."""
    if url is None:
        return None
    if publisher is None:
        raise ConfigError("limbo= needs a connection to publish on", cure="Name it: publisher=, a broker URL")
    return OwnLimbo(url, publisher, app_name)


def _check(delay: str, settle: str, hold_max: Any, *, parks: bool) -> None:
    if delay not in ("auto", "hold", "schedule") and not (delay == "park" and parks):
        why = {"nack": "needs to have the queue for itself, which a wrapper cannot see", "park": "needs a limbo"}
        raise ConfigError(
            f"delay={delay!r} {why.get(delay, 'is unknown')}", cure="Choose auto, hold or schedule, or park with limbo="
        )
    if settle not in ("return", "callback"):
        raise ConfigError(f"settle={settle!r} is unknown", cure='Choose "return" or "callback"')
    if isinstance(hold_max, bool) or not isinstance(hold_max, int) or hold_max < 1:
        raise ConfigError(f"hold_max={hold_max!r} is no number of deliveries", cure="Give 1 or more")


def _journal(journal: str | os.PathLike[str] | Journal | None) -> Journal | None:
    if isinstance(journal, str | os.PathLike):
        from ..journal import Journal as FileJournal

        return FileJournal(journal)
    return journal
