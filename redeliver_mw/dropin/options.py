# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Checks once the options that all drop-in wrappers share, and makes the plan for one source from them."""

from __future__ import annotations

import copy
import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypedDict

from ..adapter.capabilities import Capabilities
from ..callables import is_generator
from ..clock import SystemClock
from ..decorator import policy_on
from ..errors import ConfigError
from ..journal.recorder import Recorder, RecordSink, journal_healthy_option
from ..journal.records import Healthy
from ..message import Destination
from ..policy import AnyPolicy, RedeliveryPolicy, policy_of
from ..policy.findings import doubts, hot_loops
from ..redelivery.copies import Provenance
from ..redelivery.delays import Option, delay_options
from ..redelivery.plan import SourcePlan
from ..telemetry.failure_log import FailureLog, log_failures_option
from ..telemetry.finding_log import log_findings
from ..telemetry.hook import TelemetryHook, TelemetrySink
from ..telemetry.served import metrics_sinks
from ..telemetry.trace_option import trace_sinks
from .limbo import DropinLimbo

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

    from ..notifications.option import Notify, NotifyFn
    from ..telemetry.prometheus import PrometheusMetrics
    from ..telemetry.traces import Traces

WhenSettled = Literal["return", "callback"]  # by returning; by the callback's own settlement


class DropinKeywords(TypedDict, total=False):
    """Lists the keyword arguments of `redelivering` and its like.

    - `policy`: any policy text, a RedeliveryPolicy or PolicyMap; else the callback's `@redeliver` mark, else the
      default policy.
    - `delay`: `auto`, `hold`, `schedule`, or with a limbo `park`.
    - `journal`: a folder, or a Journal, for an AttemptRecord of each attempt.
    - `journal_healthy`: `all`, or with `counts` messages that go well at once are counted, not recorded one by one.
    - `log_failures`: False if failed attempts are not to be logged under `redeliver_mw.failures`.
    - `app_name`: for records and dead letters; the program's name by default.
    - `settle`: None, the default, leaves it to the driver's own configuration. With `return`, returning is success.
      With `callback`, the callback's own ack, nack, accept, release or reject settles the message, whenever it comes.
    - `metrics`: where to serve metrics for Prometheus, as `127.0.0.1:9400`, for all wrappers of this process that name
      the address, or a PrometheusMetrics that is served elsewhere.
    - `hold_max`: deliveries (>= 1, 20 by default) that may be held here at once, each for ten seconds at most.
    - `traces`: True for spans by OpenTelemetry's global tracer provider, a TracerProvider, or a Traces with options.
    - `notify`: the URL of a webhook, or a function, for a notification when dead letters, new failures or a paused
      source begin, and one when they are over, for all wrappers of this process that name it; or a Notify with options.
    - `notify_secret`: what signs notifications to a webhook; else the variable `REDELIVER_NOTIFY_SECRET`.
    - `limbo`: the URL of a database for what is to wait longer than can be held here or at the broker; needs
      `publisher=`, over which it goes out when it is due.
    - `crash_safe`: refused; an App has it.
    """

    policy: AnyPolicy | None
    delay: Option
    journal: str | os.PathLike[str] | RecordSink | None
    journal_healthy: Healthy
    log_failures: bool
    traces: bool | TracerProvider | Traces | None
    limbo: str | None
    crash_safe: bool
    app_name: str | None
    settle: WhenSettled | None
    hold_max: int
    metrics: str | PrometheusMetrics | None
    notify: str | NotifyFn | Notify | None
    notify_secret: str | None


class DropinOptions:
    """Holds `DropinKeywords` that were checked.

    Raises ConfigError for values that cannot be, and PolicyError for a policy that cannot be read.
    """

    def __init__(
        self,
        *,
        policy: AnyPolicy | None = None,
        delay: Option = "auto",
        journal: str | os.PathLike[str] | RecordSink | None = None,
        limbo: str | None = None,
        crash_safe: bool = False,
        app_name: str | None = None,
        settle: WhenSettled | None = None,
        hold_max: int = 20,
        publisher: str | None = None,
        journal_healthy: Healthy = "all",
        log_failures: bool = True,
        metrics: str | PrometheusMetrics | None = None,
        traces: object = None,
        notify: object = None,
        notify_secret: str | None = None,
        sinks: Sequence[TelemetrySink] = (),
    ) -> None:
        if crash_safe:
            raise ConfigError(
                "crash_safe=True needs an App: a wrapper cannot let suspects run alone",
                cure="Use an App",
                code="option-value",
            )
        _check(delay, settle, hold_max, parks=limbo is not None)
        self._given = None if policy is None else policy_of(policy)
        self._policy = RedeliveryPolicy() if self._given is None else self._given
        self._logged: set[Destination] = set()  # sources whose findings were logged; shared by copies
        self._delay, self._hold_max = delay, hold_max
        self.settle = settle
        self.app_name = app_name or Path(sys.argv[0] or "python").stem
        tracing = trace_sinks(traces)
        self.traced = bool(tracing)
        notifying = _notifying(notify, notify_secret, self.app_name)
        self.telemetry = TelemetryHook([*metrics_sinks(metrics), *tracing, *notifying, *sinks])
        self.limbo = _limbo(limbo, publisher, self.app_name, self.telemetry)
        self.host = socket.gethostname()
        self.failures = FailureLog(SystemClock()) if log_failures_option(log_failures) else None
        self.recorder = Recorder(_journal(journal), [], healthy=journal_healthy_option(journal_healthy, journal))

    def returning_settles(self, driver: bool) -> bool:
        """Return whether a callback that returns has succeeded; `driver` is what the driver's setting says."""
        return driver if self.settle is None else self.settle == "return"

    @property
    def hold_budget(self) -> int:
        """Return how many deliveries may be held at once, however large the prefetch window is."""
        return self._hold_max

    def on(self, callback: object) -> Self:
        """Return these options for this callback, whose mark is its policy where none was given.

        Raises ConfigError for a generator function.
        """
        if is_generator(callback):
            raise ConfigError(
                f"{callback!r:.200} is a generator function, and a call runs none of its lines",
                cure="Write it without yield",
                code="callback-not-usable",
            )
        marked = policy_on(callback)
        if self._given is not None or marked is None:
            return self
        found = copy.copy(self)
        found._policy = marked
        return found

    def log_findings(self, source: Destination) -> None:
        """Log, once for each source, in what its policy may not be what was meant."""
        if source not in self._logged:
            self._logged.add(source)
            log_findings([*doubts([source], self._policy), *hot_loops([source], self._policy)])

    def plan(self, source: Destination, capabilities: Capabilities) -> SourcePlan:
        """Return the plan for a source. Raises ConfigError or PolicyError for a policy that cannot be had here."""
        policy = self._policy.resolve(source.name, source.kind)
        everybody_hears = source.kind == "topic" and not source.subscription  # also a copy that comes out of limbo
        ways = delay_options(
            source,
            capabilities,
            option=self._delay,
            prefetch=2 * self._hold_max,
            longest=policy.longest_delay,
            ack_timeout=capabilities.ack_timeout,
            limbo=self.limbo is not None and not everybody_hears,
        )
        for target in policy.places:
            if target.resolve(source) == source:
                raise ConfigError(
                    f"its dead letters would go to {source}, where they come from",
                    where=str(source),
                    cure="Give the policy another dead_letter target",
                    code="dead-letter-loop",
                )
        return SourcePlan(
            source,
            policy,
            ways,
            Provenance(source, self.app_name, self.host, policy.text, policy.version, policy.language),
        )


def _notifying(notify: object, secret: str | None, app_name: str) -> list[TelemetrySink]:
    if notify is None and not secret:
        return []
    from ..notifications.wrappers import notify_sinks

    return notify_sinks(notify, secret, app_name)


def _limbo(url: str | None, publisher: str | None, app_name: str, telemetry: TelemetryHook) -> DropinLimbo | None:
    """Return the limbo that a URL names, or None without a URL. Raises ConfigError without a publisher.

    Somebody must publish the messages that are due, also when the user's connection is closed.
    """
    if url is None:
        return None
    if publisher is None:
        raise ConfigError(
            "limbo= needs a connection to publish on", cure="Name it: publisher=, a broker URL", code="publisher-url"
        )
    return DropinLimbo(url, publisher, app_name, telemetry=telemetry)


def _check(delay: str, settle: str | None, hold_max: Any, *, parks: bool) -> None:
    if delay not in ("auto", "hold", "schedule") and not (delay == "park" and parks):
        why = {"nack": "needs to have the queue for itself, which a wrapper cannot see", "park": "needs a limbo"}
        raise ConfigError(
            f"delay={delay!r} {why.get(delay, 'is unknown')}",
            cure="Choose auto, hold or schedule, or park with limbo=",
            code="option-value",
        )
    if settle not in (None, "return", "callback"):
        raise ConfigError(
            f"settle={settle!r} is unknown", cure='Choose "return" or "callback", or leave it out', code="option-value"
        )
    if isinstance(hold_max, bool) or not isinstance(hold_max, int) or hold_max < 1:
        raise ConfigError(
            f"hold_max={hold_max!r} is no number of deliveries", cure="Give 1 or more", code="option-value"
        )


def _journal(journal: str | os.PathLike[str] | RecordSink | None) -> RecordSink | None:
    if isinstance(journal, str | os.PathLike):
        from ..journal.writer import Journal as FileJournal

        return FileJournal(journal)
    if journal is not None and not callable(getattr(journal, "append", None)):
        raise ConfigError(
            f"journal={journal!r:.200} is neither a folder nor a Journal",
            cure='Write journal="journal/"',
            code="option-value",
        )
    return journal
