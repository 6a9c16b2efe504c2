# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Runs a replay from the store: claims letters, sends their copies, and records what the broker has answered.

Each batch has two transactions. The first claims its letters and notes that they are about to be sent; the second
records the answers. A process that dies between them leaves the letters of this one batch in doubt: they stay claimed,
and only a run that resumes the same replay sends them again, as the same copies with the same salt, so that a broker
that suppresses duplicates drops the second one.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, Literal

from sqlalchemy import Connection, bindparam, func, or_, select, update

from ..adapter.protocol import Adapter
from ..adapter.registry import adapter_for, parse_url
from ..dead_letters.edits.letter import Transform
from ..dead_letters.sending.batch_publisher import BatchAnswer, BatchPublisher, OutgoingLetter, SendResult
from ..dead_letters.sending.limits import JUDGED, REFUSED_IN_A_ROW, too_many
from ..dead_letters.sending.queue_watch import QueueWatch
from ..dead_letters.sending.rate_limit import RateLimit
from ..dead_letters.sending.sync_connection import SyncConnection
from ..errors import BrokerError, BrokerUnavailable, ConfigError, DestinationMissing, RedeliverError, StoreError
from ..message import Destination
from ..redaction import redact
from .audit import AuditEntry, add_audit, entry_of, log_audit
from .became import BecameCounts, became_of, ends_of, known_ends
from .operation import (
    LetterResult,
    Operation,
    OperationState,
    check_run,
    claim_letters,
    now_us,
    read_operation,
    record_end,
    record_results,
    state_of,
    take_operation,
)
from .replay_letters import CopyMaker, PendingLetter, PreparedBatch, bodies_of, pending_rows
from .replay_plan import (
    KIND,
    LetterEdit,
    LetterProblem,
    Routes,
    StoreReplayOptions,
    changed,
    check_digest,
    find_replay,
    release,
    set_options,
)
from .store import Store
from .tables import letters, operation_letters

Progress = Callable[[int, int], None]
"""Is given how many letters of the replay have an outcome, and how many letters it has."""

CanaryVerdict = Literal["passed", "failed", "undecided", "not taken"]
CLAIMED: Final = "replaying"  # the state of a letter that is about to be sent
POLL: Final = 0.25  # seconds between two looks at what became of the canary
LOOK: Final = 2.0  # seconds between two looks at the dead-letter queues, or ten times what a look takes
SEEN: Final = 10.0  # seconds after which a run that waits writes that it is alive
PATIENCE: Final = 45.0  # seconds without any answer of the broker
INTERRUPTED: Final = "interrupted"
TAKEN: Final = "another operation has it, or it does not wait any more"
BEHIND: Final = "a letter before it with the same message key was refused"
NO_ANSWER: Final = "the broker has not answered: it may have been sent"


@dataclass(frozen=True, slots=True)
class CanaryEnd:
    """Says how a canary ended: `sent` letters, and what became of them after `waited` seconds."""

    sent: int
    recovered: int
    failed_again: int
    waited: float
    verdict: CanaryVerdict


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreReplayed:
    """Sums up one run of a replay.

    - `operation`: as it is after the run; its counts are those of all runs.
    - `sent`, `refused`, `skipped`: letters of this run; `again` of the sent ones were in doubt before.
    - `in_doubt`: letters that may have been sent and have no answer; `left`: letters that were not sent yet.
    - `stopped`: why the run ended before its end; `error`: if an error ended it.
    - `problems`: why letters were refused or skipped.
    """

    operation: Operation
    sent: int = 0
    refused: int = 0
    skipped: int = 0
    again: int = 0
    in_doubt: int = 0
    left: int = 0
    canary: CanaryEnd | None = None
    became: BecameCounts = field(default_factory=BecameCounts)
    problems: Sequence[LetterProblem] = ()
    seconds: float = 0.0
    stopped: str = ""
    interrupted: bool = False
    error: RedeliverError | None = None

    @property
    def whole(self) -> bool:
        """Return whether every letter of the replay was sent, and confirmed."""
        return self.operation.state == "done" and self.operation.done == self.operation.total

    @property
    def rate(self) -> float:
        """Return the letters per second of this run."""
        return self.sent / self.seconds if self.seconds else 0.0


def run_replay(
    store: Store,
    operation_id: str,
    url: str = "",
    *,
    adapters: Callable[[], Adapter] | None = None,
    options: StoreReplayOptions | None = None,
    transform: Transform | None = None,
    stop: threading.Event | None = None,
    progress: Progress | None = None,
    who: str = "",
) -> StoreReplayed:
    """Send the letters of a replay that have no outcome so far, and return what came of them.

    `adapters` makes a new adapter, not yet started, for each connection; else the broker is that of `url`. `options`:
    None means those of the plan. `transform` is the function that the options name. `stop`, when set, ends the run
    after the batch in hand; the replay is *paused* then, and another run goes on with it.

    If the broker goes away, or accepts nothing, the replay is paused too, what was not sent is waiting again, and the
    error is in the result. Raises ConfigError or StoreError if the replay cannot be run at all, and StoreError if the
    store goes away; then letters of one batch may be in doubt.
    """
    if adapters is None:
        if parse_url(url).dialect == "memory":
            raise ConfigError(
                "a memory broker lives in one process, and this is another",
                where="memory://",
                cure="Replay to a real one; in tests use TestApp.replay(source)",
                code="memory-broker-elsewhere",
            )
        adapters = partial(adapter_for, url)
    planned = find_replay(store, operation_id)
    wanted = StoreReplayOptions.of(planned) if options is None else options
    if options is None and planned.options.get("canary_passed"):
        wanted = replace(wanted, canary=None)
    if wanted.transform and transform is None:
        raise ConfigError(
            f"this replay changes letters with {wanted.transform!r}, and the function was not given",
            where="transform",
            cure=f"Give the function again: --transform {wanted.transform}",
            code="option-value",
        )
    operation = take_operation(store, planned.operation_id)
    one = StoreReplayRun(store, operation, adapters, wanted, transform, stop or threading.Event(), progress)
    try:
        return one.run(who)
    except BaseException as error:
        _abandon(store, operation, error, who)
        raise


def _abandon(store: Store, operation: Operation, error: BaseException, who: str) -> None:
    """Record that an error has ended a run, as far as the store can be reached."""
    why = str(error) or type(error).__name__
    is_denied = isinstance(error, ConfigError) or getattr(error, "code", "") == "letter-changed"
    is_over = LetterEdit.of(operation) is not None and is_denied
    entry = AuditEntry(
        who=who or operation.who,
        what=KIND,
        outcome="denied" if is_denied else "failure",
        operation_id=operation.operation_id,
        filter=operation.filter,
        why=why,
    )
    with suppress(StoreError):
        with store.writing() as connection:
            state: OperationState = "cancelled" if is_over else "paused"
            record_end(connection, operation.operation_id, state, why, run=operation.run)
            add_audit(connection, entry)
        log_audit(entry)


class _Stopped(Exception):
    """Ends a run before its end, in good order, for the reason that it gives."""


class StoreReplayRun:
    """Runs one replay in one thread."""

    def __init__(
        self,
        store: Store,
        operation: Operation,
        adapters: Callable[[], Adapter],
        wanted: StoreReplayOptions,
        transform: Transform | None,
        stop: threading.Event,
        progress: Progress | None,
    ) -> None:
        self._store, self._operation, self._id = store, operation, operation.operation_id
        self._adapters, self._wanted, self._transform = adapters, wanted, transform
        self._stop, self._progress = stop, progress
        self._edit = LetterEdit.of(operation)
        self._states: Sequence[str] = operation.options.get("states", ["waiting"])
        self._after = 0  # the position of the last letter that this run has looked at
        self._over = operation.done + operation.failed + operation.skipped
        self._sent: list[int] = []  # positions that were confirmed
        self._again = self._refused = self._skipped = 0
        self._in_a_row = 0  # refused since the last confirm
        self._why: Counter[str] = Counter()
        self._blocked: set[str] = set()  # chains with a letter that was refused
        self._pace = RateLimit(wanted.rate)
        self._slow = wanted.rate is not None and wanted.rate <= 1  # one letter at a time, and the run can stop between
        self._watch: FailedAgainWatch | None = None
        self._canary: CanaryEnd | None = None
        self._next_seen = time.monotonic() + SEEN

    def run(self, who: str) -> StoreReplayed:
        """Run to the end, or until something stops the run."""
        began = time.monotonic()
        stopped, error = "", None
        try:
            with SyncConnection(self._adapters()) as line:
                self._check(line)
                self._phases(line)
        except _Stopped as why:
            stopped = str(why)
        except BrokerError as caught:
            stopped, error = caught.message, caught
        finally:
            if self._watch is not None:
                self._watch.close()
        return self._ended(stopped, error, time.monotonic() - began, who)

    # -- before anything is sent ------------------------------------------------------------------

    def _check(self, line: SyncConnection) -> None:
        """Raise ConfigError for letters of another broker, and DestinationMissing for targets that are missing."""
        mine, their = operation_letters.c, letters.c
        here = line.adapter
        keys = (their.broker, their.dialect, their.source, their.queue, their.problem)
        asked = (
            select(*keys, func.count().label("number"))
            .join_from(operation_letters, letters, their.letter_id == mine.letter_id)
            .where(mine.operation_id == self._id, or_(mine.outcome.is_(None), mine.outcome == "in doubt"))
            .group_by(*keys)
        )
        with self._store.reading() as connection:
            routes = Routes.of(connection, self._operation)
            rows = connection.execute(asked).all()
        targets: Counter[Destination] = Counter()
        for row in rows:
            target, _ = routes.target(row.source, row.queue, row.problem)
            if target is None:
                continue
            targets[target] += row.number
            if row.dialect != here.capabilities.dialect:
                raise ConfigError(
                    f"{row.number} of its letters were collected through {row.dialect}, and this is "
                    f"{here.capabilities.dialect}",
                    where=self._id,
                    cure="Give the URL of a broker of that kind, or choose letters of this one",
                    code="replay-other-broker",
                )
            if row.broker != here.broker and not self._wanted.other_broker:
                raise ConfigError(
                    f"{row.number} of its letters were collected from {redact(row.broker)}, and this is {here.broker}",
                    where=self._id,
                    cure="Give the URL of that broker; if it has moved here, say --other-broker",
                    code="replay-other-broker",
                )
        for target, number in targets.items():
            if why := line.check(target):
                raise DestinationMissing(
                    f"{target} takes nothing: {why}; {number} letters go there",
                    where=here.broker,
                    cure="Make it, add a redirect, or plan again without its letters",
                )

    # -- phases -----------------------------------------------------------------------------------

    def _phases(self, line: SyncConnection) -> None:
        publisher = BatchPublisher(line, RateLimit(None) if self._slow else self._pace, patience=PATIENCE)
        with self._store.reading() as connection:
            queues = _queues_of(connection, self._id)
            routes = Routes.of(connection, self._operation)
            left = self._operation.total - self._over
            base = known_ends(connection, self._id).failed_again
        maker = CopyMaker(self._id, routes, line.adapter, self._transform, self._edit)
        self._watch = FailedAgainWatch(self._store, self._id, self._adapters, queues, base)
        number = self._wanted.canary_of(max(1, left))
        if number is not None:
            self._send(line, publisher, maker, number)
            self._await_canary()
        self._send(line, publisher, maker, None)

    def _send(self, line: SyncConnection, publisher: BatchPublisher, maker: CopyMaker, number: int | None) -> None:
        """Send so many letters (None: all that are left)."""
        wanted = self._wanted
        batch = wanted.batch if wanted.rate is None else max(1, min(wanted.batch, int(wanted.rate)))
        left = number
        while left is None or left > 0:
            self._pause_if_asked()
            self._judge(JUDGED)
            with self._store.reading() as connection:
                rows = pending_rows(connection, self._id, self._after, batch if left is None else min(batch, left))
                exact = bodies_of(connection, rows) if rows else {}
            if not rows:
                return
            if self._slow:
                self._await_turn()
            self._after = rows[-1].position
            left = None if left is None else left - len(rows)
            self._batch(line, publisher, maker.prepare(rows, exact), rows)

    def _batch(
        self, line: SyncConnection, publisher: BatchPublisher, made: PreparedBatch, rows: Sequence[PendingLetter]
    ) -> None:
        of = {row.position: row for row in rows}
        sent, held = SendResult(), BatchAnswer()
        claimed = self._claim(made, of)
        todo = [one for one in claimed if not (one.chain and one.chain in self._blocked)]
        behind = {one.position for one in claimed} - {one.position for one in todo}
        try:
            if todo:
                sent = self._publish(line, publisher, todo)
        finally:  # whatever has happened, the letters' states say what is known
            if todo:
                held = sent.answer
                missing = {one.position for one in todo} - held.confirmed - held.refused.keys() - held.unsent
                held.silent |= missing
            self._blocked |= {one.chain for one in todo if one.chain and one.position in held.refused}
            behind |= {one.position for one in todo if one.position in sent.held and one.chain in self._blocked}
            self._record(of, held, behind)
        self._tell()
        if sent.error is not None:
            raise sent.error
        self._in_a_row = 0 if held.confirmed else self._in_a_row + len(held.refused)
        if self._in_a_row >= REFUSED_IN_A_ROW:
            why = next(reversed(held.refused.values()))
            raise BrokerError(
                f"{self._in_a_row} letters one after the other were refused, the last one: {why}",
                where=line.adapter.broker,
                cure="See to it that their targets are there and have room, and resume the replay",
                code="publish-refused",
            )

    def _publish(self, line: SyncConnection, publisher: BatchPublisher, todo: Sequence[OutgoingLetter]) -> SendResult:
        """Send letters, and once more those whose answers were lost with a connection: the same copies."""
        sent = publisher.send(todo)
        first = sent.answer
        lost = first.silent | (first.unsent - sent.held)
        if not lost or sent.error is not None:
            return sent
        again = publisher.send([one for one in todo if one.position in lost])
        second = again.answer
        first.confirmed |= second.confirmed
        first.refused |= second.refused
        first.silent = (first.silent | second.silent) - second.confirmed - second.refused.keys()
        first.unsent &= second.unsent | sent.held
        error = again.error
        if error is None and (first.silent or first.unsent - sent.held - again.held):
            error = BrokerUnavailable(
                again.lost or sent.lost,
                where=line.adapter.broker,
                cure="See to the broker, and resume the replay",
                code="connection-lost",
            )
        return replace(sent, error=error, held=sent.held | again.held)

    # -- the two transactions of a batch ----------------------------------------------------------

    def _claim(self, made: PreparedBatch, of: Mapping[int, PendingLetter]) -> list[OutgoingLetter]:
        """Claim letters, note that they are about to be sent, and return those that are this replay's."""
        results = list(made.results)
        at = now_us()
        with self._store.writing() as connection:
            check_run(connection, self._operation)
            if self._edit is not None:
                check_digest(connection, self._store, self._edit)
            fresh = [one for one in made.outs if not of[one.position].is_doubtful]
            mine = claim_letters(connection, [of[one.position].letter_id for one in fresh], self._states, CLAIMED, at)
            claimed = []
            for one in made.outs:
                row = of[one.position]
                if row.letter_id in mine or (row.is_doubtful and row.state == CLAIMED):
                    claimed.append(one)
                elif row.is_doubtful:
                    results.append(LetterResult(one.position, "in doubt", f"{NO_ANSWER}, and now it is {row.state}"))
                elif self._edit is not None:
                    raise changed(self._store, row.dl_id, TAKEN)
                else:
                    results.append(LetterResult(one.position, "skipped", TAKEN))
            _set_lineages(connection, self._id, [(one.position, made.lineages[one.position]) for one in claimed])
            self._give_back(connection, results, of, at)
            record_results(connection, self._operation, sorted(results))
        self._count(results)
        return claimed

    def _give_back(
        self, connection: Connection, results: Iterable[LetterResult], of: Mapping[int, PendingLetter], at: int
    ) -> None:
        """Let letters wait again that were in doubt and cannot be sent any more, as without their body."""
        ids = [of[one.position].letter_id for one in results if of[one.position].is_doubtful]
        if ids:
            claim_letters(connection, ids, (CLAIMED,), "waiting", at)

    def _record(self, of: Mapping[int, PendingLetter], answer: BatchAnswer, behind: set[int]) -> None:
        """Record the answers for a batch."""
        unsent = answer.unsent - behind
        results = [
            *(LetterResult(position, "done") for position in answer.confirmed),
            *(
                LetterResult(position, "failed", _refusal(why, of[position]))
                for position, why in answer.refused.items()
            ),
            *(LetterResult(position, "skipped", BEHIND) for position in behind),
            *(LetterResult(position, "in doubt", NO_ANSWER) for position in answer.silent),
        ]
        fresh = {position for position in unsent if not of[position].is_doubtful}
        waiting = fresh | behind | answer.refused.keys()
        at = now_us()
        with self._store.writing() as connection:
            check_run(connection, self._operation)
            for positions, state in ((answer.confirmed, "replayed"), (waiting, "waiting")):
                if positions:
                    ids = sorted(of[position].letter_id for position in positions)
                    claim_letters(connection, ids, (CLAIMED,), state, at)
            _set_lineages(connection, self._id, [(position, None) for position in sorted(fresh | behind)])
            record_results(connection, self._operation, sorted(results))
        self._sent += sorted(answer.confirmed)
        self._again += sum(of[position].is_doubtful for position in answer.confirmed)
        self._count(results)

    def _count(self, results: Iterable[LetterResult]) -> None:
        for one in results:
            self._over += one.outcome != "in doubt"
            self._refused += one.outcome == "failed"
            self._skipped += one.outcome == "skipped"
            if one.why and one.outcome in ("failed", "skipped"):
                self._why[one.why] += 1

    # -- what stops a run -------------------------------------------------------------------------

    def _pause_if_asked(self) -> None:
        if self._stop.is_set():
            raise _Stopped(INTERRUPTED)
        state = state_of(self._store, self._id)
        if state != "running":
            raise _Stopped(f"the replay was {state} by another program")

    def _judge(self, least: int) -> None:
        """Stop if a larger share than allowed has failed again, of the letters that this run has sent."""
        assert self._watch is not None
        if (
            len(self._sent) >= least
            and self._watch.is_due
            and (why := too_many(self._watch.look(), len(self._sent), self._wanted.share, least))
        ):
            raise _Stopped(why)

    def _await_turn(self) -> None:
        """Wait until the rate allows one more letter."""
        while seconds := self._pace.take():
            self._rest(min(seconds, POLL))

    def _rest(self, seconds: float) -> None:
        """Wait, as long as nobody wants the run to stop; every now and then write that it is alive."""
        self._stop.wait(seconds)
        if self._stop.is_set():
            raise _Stopped(INTERRUPTED)
        if time.monotonic() >= self._next_seen:
            self._next_seen = time.monotonic() + SEEN
            with self._store.writing() as connection:
                record_results(connection, self._operation, ())
            self._pause_if_asked()

    def _await_canary(self) -> None:
        """Wait for the end of the canary, and stop the run unless all is well."""
        sent, began = len(self._sent), time.monotonic()
        seen = BecameCounts()
        verdict: CanaryVerdict = "not taken"
        try:
            if sent:
                verdict = "undecided"
                verdict, seen = self._canary_verdict(began + self._wanted.wait)
        finally:
            waited = round(time.monotonic() - began, 3)
            self._canary = CanaryEnd(sent, seen.recovered, seen.failed_again, waited, verdict)
        if verdict == "passed":
            with self._store.writing() as connection:
                set_options(connection, self._operation, canary_passed=True)
            return
        raise _Stopped(
            {
                "failed": f"the canary: {too_many(seen.failed_again, sent, self._wanted.share, 1)}",
                "undecided": f"the canary: after {waited:.0f} s the end of {sent - seen.recovered - seen.failed_again} "
                "is not known",
                "not taken": "the canary: none of its letters was taken",
            }[verdict]
        )

    def _canary_verdict(self, deadline: float) -> tuple[CanaryVerdict, BecameCounts]:
        """Return the verdict as soon as it is clear, or when the time is over.

        Where no App writes what has recovered, only failures can be seen: then a canary without any has passed.
        """
        assert self._watch is not None
        while True:
            over = time.monotonic() >= deadline
            with self._store.reading() as connection:
                seen = ends_of(connection, self._id, self._sent)
            died = max(seen.failed_again, self._watch.look() if over or self._watch.is_due else self._watch.died)
            seen = replace(seen, failed_again=died)
            if too_many(died, len(self._sent), self._wanted.share, 1):
                return "failed", seen
            if seen.recovered + died >= len(self._sent):
                return "passed", seen
            if over:
                return ("undecided" if seen.recovered else "passed"), seen
            self._rest(min(POLL, max(0.01, deadline - time.monotonic())))

    # -- the end ----------------------------------------------------------------------------------

    def _tell(self) -> None:
        if self._progress is not None:
            self._progress(self._over, self._operation.total)

    def _ended(self, stopped: str, error: RedeliverError | None, seconds: float, who: str) -> StoreReplayed:
        with self._store.writing() as connection:
            left, in_doubt = _open_letters(connection, self._id)
            operation = read_operation(connection, self._id)
            if operation.state == "running":
                state: OperationState = "paused" if left or in_doubt else "done"
                if state == "done" and stopped == INTERRUPTED:
                    stopped = ""  # nothing was left to interrupt
                operation = record_end(connection, self._id, state, stopped, run=self._operation.run)
            if operation.state == "cancelled":
                release(connection, self._id)
            if operation.state in ("done", "cancelled") and self._edit is not None:
                # What the edit holds is sent, or is not going to be.
                set_options(connection, self._operation, edit=None, edited=self._edit.dl_id)
                operation = read_operation(connection, self._id)
            entry = replace(entry_of(operation, who=who), why=stopped)
            add_audit(connection, entry)
        log_audit(entry)
        return StoreReplayed(
            operation=operation,
            sent=len(self._sent),
            refused=self._refused,
            skipped=self._skipped,
            again=self._again,
            in_doubt=in_doubt,
            left=left,
            canary=self._canary,
            became=became_of(self._store, self._id),
            problems=tuple(LetterProblem(why, number) for why, number in self._why.most_common()),
            seconds=seconds,
            stopped=stopped,
            interrupted=stopped == INTERRUPTED,
            error=error,
        )


class FailedAgainWatch:
    """Counts the messages of a run that have failed again: in the store, and in the dead-letter queues.

    A queue that cannot be watched is left alone: the run itself meets the error if the broker is away.
    """

    def __init__(
        self,
        store: Store,
        operation_id: str,
        adapters: Callable[[], Adapter],
        queues: Sequence[Destination],
        base: int,
    ) -> None:
        self._store, self._id, self._base = store, operation_id, base
        self._queues: QueueWatch | None = None
        self.died = 0
        self._next = 0.0
        with suppress(RedeliverError):
            self._queues = QueueWatch(adapters(), queues, operation_id)
            self._queues.mark()

    @property
    def is_due(self) -> bool:
        """Return whether it is time for another look."""
        return time.monotonic() >= self._next

    def look(self) -> int:
        """Return how many have failed again since the run began. Raises StoreError."""
        began = time.monotonic()
        with self._store.reading() as connection:
            known = known_ends(connection, self._id).failed_again - self._base
        self.died = max(self.died, known)
        if self._queues is not None:
            with suppress(RedeliverError):
                self.died = max(self.died, self._queues.look().died)
        self._next = time.monotonic() + max(LOOK, 10 * (time.monotonic() - began))
        return self.died

    def close(self) -> None:
        """Disconnect."""
        if self._queues is not None:
            self._queues.close()


def _refusal(why: str, row: PendingLetter) -> str:
    return f"{why}; an earlier send of it has no answer" if row.is_doubtful else why


def _set_lineages(connection: Connection, operation_id: str, of: Sequence[tuple[int, str | None]]) -> None:
    if of:
        columns = operation_letters.c
        connection.execute(
            update(operation_letters)
            .where(columns.operation_id == operation_id, columns.position == bindparam("at"))
            .values(lineage=bindparam("known")),
            [{"at": position, "known": lineage} for position, lineage in of],
        )


def _queues_of(connection: Connection, operation_id: str) -> list[Destination]:
    asked = (
        select(letters.c.queue)
        .join_from(operation_letters, letters, letters.c.letter_id == operation_letters.c.letter_id)
        .where(operation_letters.c.operation_id == operation_id)
        .distinct()
    )
    return [Destination.parse(queue) for queue in connection.execute(asked).scalars()]


def _open_letters(connection: Connection, operation_id: str) -> tuple[int, int]:
    """Return how many letters of a replay were not sent so far, and how many have no answer."""
    columns = operation_letters.c
    counted = select(func.count()).where(columns.operation_id == operation_id)
    left = connection.execute(counted.where(columns.outcome.is_(None), columns.lineage.is_(None))).scalar_one()
    doubt = connection.execute(
        counted.join_from(operation_letters, letters, letters.c.letter_id == columns.letter_id)
        .where(letters.c.state == CLAIMED, columns.lineage.is_not(None))
        .where(or_(columns.outcome.is_(None), columns.outcome == "in doubt"))
    ).scalar_one()
    return left, doubt
