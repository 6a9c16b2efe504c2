# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Makes an `AttemptRecord` of what happened, off the consuming thread, for the journal and for hooks.

The thread that handles a message only puts a tuple into a queue. Records are built on the journal's thread, or on the
thread of the hooks if there are any. No error here affects a message (log-after-the-fact).
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol, cast, get_args

from ..errors import ConfigError
from ..failure import Failure
from ..message import Delivery, Destination
from ..redelivery import identity
from ..redelivery.commands import RecordAttempt
from ..redelivery.copies import Provenance
from ..redelivery.plan import NO_PAST, SourcePlan
from .consumer_info import ConsumerInfo
from .encoding import RecordIds
from .fast_lines import FastLineEncoder
from .healthy_counts import HealthyCounter
from .records import AttemptReason, AttemptRecord, Healthy, PolicyRecord
from .writer import Journal as OwnJournal

log = logging.getLogger("redeliver_mw")
Hook = Callable[[AttemptRecord], object]
HEALTHY = ("all", "counts")
MAX_WAITING = 100_000  # records that wait for slow hooks; more are dropped and counted


def attempt_record(c: RecordAttempt, consumer_info: ConsumerInfo) -> AttemptRecord:
    """Return the record of an attempt that the interceptor reported."""
    past, failure = c.past, c.failure
    first = past.first_attempt_us or c.at.us - round(c.ran * 1e6)
    succeeded = c.outcome == "accepted" and failure is None
    return AttemptRecord(
        **_of_message(c.delivery, consumer_info, c.signature),
        ts_us=c.at.us,
        message_key=c.key,
        generation=past.generation,
        delivery_count=past.failures + 1 if succeeded else max(1, past.failures),
        outcome=c.outcome,
        reason=cast(AttemptReason, c.reason) if c.reason in get_args(AttemptReason) else None,
        **_of_failure(failure),
        mechanism=c.mechanism,
        delay_us=_us(c.delay),
        delay_base_us=_us(c.delay_base),
        handler_us=round(c.ran * 1e6),
        queue_us=0,
        first_attempt_us=first,
        last_failure_us=past.last_failed_us,
        attempts_total=past.failures + (1 if succeeded else 0),
        targets=[str(target) for target in c.targets] or None,
        replay_id=past.replay_id,
    )


def healthy_record(
    delivery: Delivery, consumer_info: ConsumerInfo, plan: SourcePlan, at_us: int, ran_us: int
) -> AttemptRecord:
    """Return the record of a first delivery that was handled, under its source's plan."""
    key = identity.message_key(delivery, NO_PAST) or identity.digest(delivery).hex()[-32:]
    if plan.policy.arms:
        plan = plan.for_message(delivery, NO_PAST, key)
    return AttemptRecord(
        **_of_message(delivery, consumer_info, plan.signature),
        ts_us=at_us,
        message_key=key,
        generation=0,
        delivery_count=1,
        outcome="accepted",
        handler_us=ran_us,
        queue_us=0,
        first_attempt_us=at_us - ran_us,
        attempts_total=1,
    )


def _of_message(delivery: Delivery, consumer_info: ConsumerInfo, signature: Provenance) -> dict[str, Any]:
    source: Destination = delivery.destination
    return {
        "app": consumer_info.app,
        "host": consumer_info.host,
        "broker": consumer_info.broker,
        "broker_kind": consumer_info.broker_kind,
        "destination": source.name,
        "destination_kind": source.kind,
        "message_id": delivery.message_id,
        "group_id": delivery.properties.group_id,
        "broker_redelivered": delivery.redelivered,
        "payload_bytes": len(delivery.body),
        "policy": signature.policy_text,
        "policy_version": signature.policy_version,
        "policy_arm": signature.arm,
        "propensity": signature.propensity,
    }


def _of_failure(failure: Failure | None) -> dict[str, Any]:
    if failure is None:
        return {}
    return {
        "error_type": failure.type,
        "error_message": failure.message,
        "error_fingerprint": failure.fingerprint,
        "error_frames": failure.frames,
        "error_text": failure.text,
    }


def _us(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1e6)


def journal_healthy_option(value: Any, journal: object) -> Healthy:
    """Return `journal_healthy=`.

    Raises ConfigError for an unknown value, and for any value but the default without a journal.
    """
    if value not in HEALTHY:
        raise ConfigError(
            f"journal_healthy={value!r} is unknown", cure=f"Choose one of {', '.join(HEALTHY)}", code="option-value"
        )
    if value != "all" and journal is None:
        raise ConfigError(
            f"journal_healthy={value!r} needs a journal, and none is given",
            cure='Give journal="journal/"',
            code="option-value",
        )
    found: Healthy = value
    return found


class RecordSink(Protocol):
    """Takes attempt records. Never blocks, never raises (log-after-the-fact)."""

    def append(self, record: Any, /) -> None: ...
    def close(self, timeout: float = 5.0) -> None: ...


class Recorder:
    """Passes records to the journal and to hooks. `append` is called on consuming threads and never waits."""

    def __init__(
        self, journal: RecordSink | None, hooks: list[Hook], *, inline: bool = False, healthy: Healthy = "all"
    ) -> None:
        self._journal, self._hooks, self._inline = journal, hooks, inline
        self.wanted = journal is not None or bool(hooks)
        self._ids = RecordIds()
        # Our own journal accepts whole lines; every other receiver gets records.
        own = isinstance(journal, OwnJournal) and not hooks
        self._tally = HealthyCounter() if journal is not None and healthy == "counts" else None
        self._healthy: Callable[..., Any] = FastLineEncoder(self._ids) if own else healthy_record
        self._waiting: deque[tuple[Any, ...]] = deque()
        self._wake = threading.Event()
        self._closing = False
        self._thread: threading.Thread | None = None
        self.dropped = 0

    def append(self, *work: Any) -> None:
        """Queue `work`: a function that makes a record, and its arguments."""
        if not self._hooks:
            if self._journal is not None:
                self._journal.append(work)
        elif self._inline:
            self._tell(work)
        elif len(self._waiting) >= MAX_WAITING:
            self.dropped += 1
        else:
            self._waiting.append(work)
            if not self._wake.is_set():
                self._wake.set()

    def healthy(
        self, delivery: Delivery, consumer_info: ConsumerInfo, plan: SourcePlan, at_us: int, ran_us: int
    ) -> None:
        """Record that a first delivery was handled, under its source's plan.

        A message that its broker delivered before has a line of its own in any case: it may have failed in a process
        that has died, and then this success ends the history that begins there.
        """
        if self._tally is None or self._journal is None or delivery.redelivered:
            return self.append(self._healthy, delivery, consumer_info, plan, at_us, ran_us)
        if self._tally.add(delivery, consumer_info, plan, at_us, ran_us):
            self._journal.append(self._tally.take)
        if self._hooks:
            self.append(self._healthy, delivery, consumer_info, plan, at_us, ran_us)

    def note(self, record: PolicyRecord) -> None:
        """Record an event for the journal only, because it is not an attempt."""
        if self._journal is not None:
            self._journal.append(record)

    def start(self) -> None:
        if self._hooks and not self._inline:
            self._thread = threading.Thread(target=self._work, name="redeliver-hooks", daemon=True)
            self._thread.start()

    def close(self, timeout: float = 5.0) -> None:
        """Pass on the waiting records first, in at most `timeout` seconds, then stop."""
        self._closing = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(timeout)
        if self._journal is not None:
            self._journal.close(timeout)

    def _work(self) -> None:
        while not (self._closing and not self._waiting):
            self._wake.wait()
            self._wake.clear()
            while self._waiting:
                self._tell(self._waiting.popleft())
            if self._closing:
                self._wake.set()

    def _tell(self, work: tuple[Any, ...]) -> None:
        try:
            record: AttemptRecord = work[0](*work[1:])
            record.record_id = record.record_id or self._ids.next()
        except Exception:
            log.exception("an attempt could not be recorded")
            return
        counted = self._tally is not None and work[0] is self._healthy and not record.broker_redelivered
        if self._journal is not None and not counted:
            self._journal.append(record)
        for hook in self._hooks:
            try:
                hook(record)
            except Exception:
                log.exception("the on_attempt hook %r failed", hook)
