# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Defines an App's options, their allowed values, and where else than in arguments they may be given."""

from __future__ import annotations

import os
import string
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..decorator import policy_on
from ..errors import ConfigError
from ..flow.breaker import Breaker
from ..flow.ordering import Order
from ..journal.records import Healthy
from ..message import Destination
from ..policy import AnyPolicy, PolicyMap, RedeliveryPolicy, load_policies, policy_of
from ..policy.loading import looks_like_a_file
from ..policy.policy_file import PolicyFile
from ..redelivery.delays import OPTIONS, Option
from ..telemetry.failure_log import log_failures_option
from .policy_findings import FindingRules

DECLARE = ("own", "all", "none")
MOST = 2**31 - 1  # what drivers and brokers can count to
SUBSCRIPTION_CHARACTERS = frozenset(string.ascii_letters + string.digits + ".-_")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Holds an App's options that do not belong to one handler."""

    app_name: str
    delay: Option = "auto"
    declare: str = "own"
    ack_timeout: float | None = None
    seed: int | None = None  # of the jitter; for tests
    limbo: str | None = None  # the URL of its database
    limbo_delivery_retry: int | None = None  # how often a target may refuse a message from limbo
    operations: str | None = None  # the URL of the store
    crash_safe: bool = False
    breaker: Breaker | None = None
    journal_healthy: Healthy = "all"
    log_failures: bool = True
    finding_rules: FindingRules = field(default_factory=FindingRules)
    broker_limit: int | None = None  # the counted return that no message survives; 0: there is no limit

    def __post_init__(self) -> None:
        """Raise ConfigError for values that are not allowed."""
        one_of("delay", self.delay, OPTIONS)
        one_of("declare", self.declare, DECLARE)
        log_failures_option(self.log_failures)
        if self.limbo_delivery_retry is not None:
            at_least("limbo_delivery_retry", whole("limbo_delivery_retry", self.limbo_delivery_retry), 1)
        for option, needs in (
            ("delay='park'", self.delay == "park"),
            ("crash_safe=True", self.crash_safe),
            ("limbo_delivery_retry", self.limbo_delivery_retry is not None),
        ):
            if needs and not self.limbo:
                raise ConfigError(
                    f"{option} needs a limbo, and none is given",
                    cure='Give limbo="sqlite:///limbo.db"',
                    code="limbo-required",
                )
        if self.ack_timeout is not None:
            at_least("ack_timeout", self.ack_timeout, 1)
        if self.broker_limit is not None:
            whole("broker_limit", self.broker_limit)


def read_config(path: Path) -> dict[str, Any]:
    """Return `[tool.redeliver.app]` of a TOML file, overridden by the environment. A missing file counts as empty.

    TOML has no Path: a policy that is the name of a file becomes a path, beside the TOML file unless it is absolute.
    """
    try:
        table = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        table = {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(
            f"it cannot be read: {error}", where=str(path), cure="Mend or remove it", code="app-settings-file"
        ) from None
    found = table
    for key in ("tool", "redeliver", "app"):
        found = found.get(key, {})
        if not isinstance(found, dict):
            raise ConfigError(
                f"{key} is no table", where=str(path), cure="Write [tool.redeliver.app]", code="app-settings-file"
            )
    policy = found.get("policy")
    if isinstance(policy, str) and looks_like_a_file(policy):
        found = found | {"policy": path.parent / Path(policy.strip()).expanduser()}
    from_environment = {"url": os.environ["REDELIVER_URL"]} if os.environ.get("REDELIVER_URL") else {}
    return found | from_environment


def one_of(name: str, value: object, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ConfigError(f"{name}={value!r} is unknown", cure=f"Choose one of {', '.join(known)}", code="option-value")


def count(name: str, value: Any) -> int:
    """Return a number of messages or workers. Raises ConfigError for what is no whole number from 1 on."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST:
        raise ConfigError(
            f"{name}={value!r:.50} is no whole number from 1 to {MOST}",
            cure=f"Give {name} such a number",
            code="option-value",
        )
    return value


def text(name: str, value: Any, cure: str) -> str | None:
    """Return an option that is a text; None if it is None or empty. Raises ConfigError for any other value."""
    if value is not None and not isinstance(value, str):
        raise ConfigError(f"{name} is no text, but of the type {type(value).__name__}", cure=cure, code="option-value")
    return value or None


def at_least(name: str, value: Any, least: int) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= least:
        raise ConfigError(
            f"{name}={value!r} is not a number from {least} on", cure=f"Give {name} a number", code="option-value"
        )
    return value


def whole(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ConfigError(
            f"{name}={value!r} is no whole number from 0 on", cure=f"Give {name} such a number", code="option-value"
        )
    return value


def subscribed(source: Destination, subscription: str | None) -> Destination:
    """Return the source with its subscription. Raises ConfigError for a topic without one, and for a queue with one."""
    name = subscription or source.subscription
    if source.kind == "topic" and not name:
        raise ConfigError(
            "a topic is consumed through a durable subscription, and none is named",
            where=str(source),
            cure='Name it: subscription="audit"',
            code="subscription-missing",
        )
    if source.kind == "queue" and name:
        raise ConfigError(
            "a queue has no subscriptions",
            where=str(source),
            cure="Write topic:NAME, or leave it out",
            code="destination-name",
        )
    if not set(name) <= SUBSCRIPTION_CHARACTERS:
        raise ConfigError(
            f"subscription={name!r} is no name that every broker takes",
            where=str(source),
            cure="Use letters, digits, '.', '-' and '_'",
            code="destination-name",
        )
    return replace(source, subscription=name)


def check_order(order: Order, source: Destination, settings: Settings) -> None:
    """Raise ConfigError for an order by key that these settings do not allow."""

    def wrong(what: str, cure: str) -> ConfigError:
        return ConfigError(what, where=str(source), cure=cure, code="option-value")

    if settings.delay == "nack":
        raise wrong("with delay='nack' a message goes back behind others of its key", "Use delay='auto'")
    if order.overflow == "park" and not (settings.limbo and settings.delay in ("auto", "park")):
        raise wrong("overflow='park' needs a limbo that delays may be waited out in", 'Give limbo="sqlite:///limbo.db"')
    if order.overflow == "park" and settings.crash_safe:
        raise wrong("with crash_safe nothing is parked of which the ledger was not asked", 'Write overflow="skip"')


def check_batch(batch: object, source: Destination, prefetch: int) -> None:
    """Raise ConfigError for a batch that can never be filled."""
    if isinstance(batch, bool) or not isinstance(batch, int) or batch < 1:
        raise ConfigError(
            f"batch={batch!r} is no whole number from 1 on",
            where=str(source),
            cure="Write batch=50",
            code="option-value",
        )
    if batch > prefetch:
        raise ConfigError(
            f"batch={batch} can never be full: at most prefetch={prefetch} messages are here at once",
            where=str(source),
            cure=f"Write batch={prefetch}, or raise prefetch",
            code="option-value",
        )


class PolicyResolver:
    """Finds the policy of a handler: the URL's, else its own, else the one of its `@redeliver` mark, else the App's.

    - `in_url`: the file that the broker URL names, or nothing.
    - `strict`: a reader's warning is a PolicyError.

    Raises ConfigError for a value that is not a policy.
    """

    def __init__(self, in_url: str | None, of_app: AnyPolicy | None, *, strict: bool = False) -> None:
        self._strict = strict
        self._files: dict[Path, PolicyFile] = {}
        self._of_app = None if of_app is None else self._meant(of_app)
        self._in_url = load_policies(in_url, strict=strict) if in_url else None

    def of(self, own: AnyPolicy | None, fn: Callable[..., Any]) -> RedeliveryPolicy | PolicyMap | PolicyFile:
        given = None if own is None else self._meant(own)
        return self._in_url or given or policy_on(fn) or self._of_app or RedeliveryPolicy()

    def _meant(self, policy: AnyPolicy) -> RedeliveryPolicy | PolicyMap | PolicyFile:
        """Return the policy that was given.

        A file is read once however often it is named, so that all handlers that name it change together.
        """
        if isinstance(policy, str):
            return load_policies(policy, strict=self._strict)
        if not isinstance(policy, Path):
            return policy_of(policy)
        path = policy.absolute()
        if path not in self._files:
            self._files[path] = PolicyFile(path, strict=self._strict)
        return self._files[path]
