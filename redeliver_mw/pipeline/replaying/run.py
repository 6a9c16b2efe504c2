# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Runs a replay on the driver: starts, watches and stops publishers.

Publishers are stopped if too many letters are dead-lettered again.

At its end letters that were only looked at are removed from the queue that still holds them.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ...adapter.protocol import Adapter
from ...adapter.registry import adapter_for
from ...dead_letters import BrokerClient, QueueDrain, ReadLetters
from ...dead_letters.sending.limits import JUDGED, too_many
from ...dead_letters.sending.queue_watch import CanarySeen, QueueWatch
from ...errors import NotCopyable, RedeliverError
from ...message import Delivery, Destination
from ..draining.rows import LetterRows, run_of
from ..manifests import new_run, now_us
from ..plans.plan_file import Plan
from ..progress import Progress
from . import outcomes, report
from .body_lookup import lent
from .canary_watch import CanaryWatch, JournalWatch
from .ledger import ReplayProgress
from .options import ReplayOptions
from .preflight import publishers_for
from .publishers import PublisherJob, PublisherTask, shares_of, stop
from .registry import register
from .report import Canary, Replayed, ReplayVerdict

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POLL: Final = 0.25  # seconds between two checks of the publishers
LOOK: Final = 2.0  # seconds between two looks at the letters, or ten times the duration of a look if that is longer
WINDOW: Final = 10_000  # letters in hand at once: letters that stay are in hand until the end
_ORDINAL: Final = re.compile(r"([0-9a-f]{32})-[0-9]+")  # in ids of letters with equal contents


class ReplayRun:
    """Runs one replay, which holds the plan's lock."""

    def __init__(
        self,
        spark: SparkSession,
        plan: Plan,
        url: str,
        wanted: ReplayOptions,
        ending: threading.Event,
        progress: Progress | None,
    ) -> None:
        self._spark, self._plan, self._wanted, self._ending = spark, plan, wanted, ending
        self._url, self._progress = url, progress
        self._name = new_run()
        self._tally = ReplayProgress(plan.folder, self._name)
        self._before = outcomes.standing(plan)
        self._done = Replayed(
            plan_id=plan.plan_id, executed=True, letters=plan.letters, replayed=self._before.confirmed
        )
        self._watch: CanaryWatch | None = None
        self._bodies = ""  # the folder with the bodies if they are not in the plan
        self._marked = 0  # letters of this run that were confirmed when the watch was marked
        self._seen = CanarySeen(0, None)
        self._next_look = 0.0

    def run(self) -> Replayed:
        """Run until all letters are tried, or until a stop. The result is in report.json, whatever this raises."""
        remaining = {bucket: number for bucket, number in self._before.remaining.items() if number}
        if not remaining:
            self._remove()
            return self._reported()
        begun = register(self._plan, now_us())
        try:
            self._watch = self._watching(begun.begun_us)
            with lent(self._spark, self._plan) as self._bodies:
                self._phases(sum(remaining.values()))
            self._remove()
        except BaseException as error:
            self._done = replace(self._done, stopped=str(error) or type(error).__name__)
            with suppress(OSError, RedeliverError):
                self._reported()
            raise
        finally:
            if self._watch is not None:
                self._watch.close()
        return self._reported()

    def _phases(self, letters: int) -> None:
        if self._canary(letters):
            self._send(None, {b: n for b, n in outcomes.standing(self._plan).remaining.items() if n})
            with suppress(RedeliverError):  # all letters are sent, so a watch that fails now stops nothing
                self._look()

    def _remove(self) -> None:
        """Remove letters that were only looked at from their queue, after their copies were confirmed."""
        if "broker" in self._before.owners:
            self._tell("taking them off their queue")
            self._done = replace(self._done, removed=remove_confirmed(self._plan, self._url))

    # -- a phase: some letters through all publishers ---------------------------------------------------

    def _send(self, below: int | None, letters: Mapping[int, int]) -> None:
        """Send the letters of these buckets whose rank is below `below`.

        Ends early, with the reason, if the run must stop.
        """
        number = publishers_for(self._spark, self._wanted.publishers, len(letters))
        rate = None if self._wanted.rate is None else self._wanted.rate / number
        batch = self._wanted.batch if rate is None else max(1, min(self._wanted.batch, int(rate)))
        work = PublisherTask(
            folder=self._plan.folder,
            plan_id=self._plan.plan_id,
            run=self._name,
            url=self._url,
            bodies=self._bodies,
            shares=shares_of(letters, number),
            ordered=self._plan.ordered,
            below=below,
            rate=rate,
            batch=batch,
        )
        self._done = replace(self._done, publishers=number)
        self._mark()
        self._tally.begin_phase()
        job = PublisherJob(self._spark, work)
        try:
            while not job.over(POLL):
                self._tell("sending")
                if not self._done.stopped and (why := self._why_stop()):
                    self._done = replace(self._done, stopped=why, interrupted=self._ending.is_set())
                    stop(work, why)
        finally:
            job.end()
        self._tell("sending")
        for error in job.errors():
            raise error
        with suppress(FileNotFoundError):
            os.unlink(work.stop_file)

    def _why_stop(self) -> str:
        if self._ending.is_set():
            return "interrupted"
        if time.monotonic() >= self._next_look:
            with suppress(RedeliverError):  # the publishers report their errors themselves
                self._look()
            return self._too_many(self._tally.confirmed - self._marked, JUDGED)
        return ""

    def _too_many(self, sent: int, least: int) -> str:
        return too_many(self._seen.died, sent, self._wanted.share, least)

    # -- the canary -------------------------------------------------------------------------------------

    def _canary(self, letters: int) -> bool:
        """Send the canary and wait for its outcome. Return whether the rest may follow."""
        number = self._wanted.canary_of(letters)
        if number is None:
            return True
        below, buckets = outcomes.first_letters(self._plan, number)
        self._send(below, buckets)
        if self._done.stopped:
            return False
        sent = self._tally.confirmed
        started = time.monotonic()
        verdict: ReplayVerdict = self._judged(sent) if sent else "not taken"
        waited = round(time.monotonic() - started, 3)
        canary = Canary(number, self._seen.died, self._seen.decided, waited, verdict)
        why = {
            "passed": "",
            "failed": f"the canary: {self._too_many(sent, 1)}",
            "undecided": f"the canary: after {waited:.0f} s the end of {sent - (self._seen.decided or 0)} is not known",
            "not taken": "the canary: none of its letters was taken",
        }[verdict]
        interrupted = verdict == "undecided" and self._ending.is_set()
        self._done = replace(self._done, canary=canary, stopped="interrupted" if interrupted else why)
        self._done = replace(self._done, interrupted=interrupted)
        return verdict == "passed"

    def _judged(self, sent: int) -> ReplayVerdict:
        """Return the verdict as soon as it is clear, or when the time is over.

        A queue shows only letters that are dead-lettered again: if none is seen, the canary passes.
        """
        deadline = time.monotonic() + self._wanted.wait
        while True:
            over = time.monotonic() >= deadline
            try:
                self._look()
            except RedeliverError:
                if over:
                    raise
            if self._too_many(sent, 1):
                return "failed"
            decided = self._seen.decided
            if decided is not None and decided >= sent:
                return "passed"
            if over:
                return "passed" if decided is None else "undecided"
            self._tell("waiting for the canary")
            pause = max(POLL, min(self._next_look, deadline) - time.monotonic())
            if self._ending.wait(pause):
                return "undecided"

    # -- observations and reports -------------------------------------------------------------------------

    def _watching(self, begun_us: int) -> CanaryWatch:
        if self._wanted.journal is not None:
            return JournalWatch(self._wanted.journal, self._plan.plan_id, begun_us)
        return QueueWatch(
            adapter_for(self._url), [Destination.parse(dlq) for dlq in self._before.dlqs], self._plan.plan_id
        )

    def _mark(self) -> None:
        assert self._watch is not None
        self._done = replace(self._done, died_again=self._died)
        self._watch.mark()
        self._marked, self._seen = self._tally.confirmed, CanarySeen(0, None)

    @property
    def _died(self) -> int:
        """Return the number dead-lettered again in all phases of this run."""
        return (self._done.died_again or 0) + self._seen.died

    def _look(self) -> None:
        assert self._watch is not None
        began = time.monotonic()
        try:
            self._seen = self._watch.look()
        finally:
            took = time.monotonic() - began
            self._next_look = time.monotonic() + max(LOOK, 10 * took)

    def _tell(self, what: str) -> None:
        self._tally.look()
        if self._progress is not None:
            self._progress(what, self._before.confirmed + self._tally.confirmed, self._plan.letters)

    def _reported(self) -> Replayed:
        """Return the report, after writing it to the plan's folder."""
        self._tally.look()
        looked = self._watch is not None
        done = replace(
            report.with_standing(self._done, outcomes.standing(self._plan)),
            sent=self._tally.confirmed,
            seconds=self._tally.seconds,
            died_again=self._died if looked else None,
        )
        outcomes.write(self._plan, self._watch.names if self._watch is not None else None)
        report.publish(self._plan.folder, done)
        return done


def remove_confirmed(plan: Plan, url: str) -> int:
    """Take letters that were only looked at off their queue once they are confirmed at their target; return how many.

    Each queue is consumed once. A letter is accepted only if the ledger has confirmed it, recognised by its `dl_id` and
    by its contents. In doubt the letter stays, as do all others, which go back to the broker in the end. Raises
    BrokerError; the next run reports the letters that stay.
    """
    gone = 0
    for dlq, sent in outcomes.looked_at(plan).items():
        queue = Destination.parse(dlq)
        with BrokerClient(adapter_for(url)) as asking:
            found = asking.depth(queue)
        if found:
            adapter = adapter_for(url)
            known = _Originals(adapter, queue, sent)
            gone += QueueDrain(adapter, queue, known, quota=found, batch=WINDOW).run().kept
    return gone


class _Originals:
    """Serves as the `LetterStore` of a queue whose letters were sent: a letter counts as kept if its target has it."""

    def __init__(self, adapter: Adapter, queue: Destination, sent: dict[str, str | None]) -> None:
        self._adapter, self._queue = adapter, queue
        self._sent = sent  # dl_id -> hash of the body, None if it was edited
        self._alike: dict[str, list[str]] = {}
        for dl_id in sent:
            if found := _ORDINAL.fullmatch(dl_id):
                self._alike.setdefault(found[1], []).append(dl_id)

    def read(self, generation: int, letters: Sequence[Delivery], /) -> ReadLetters:
        rows = LetterRows(run_of(self._adapter, "", self._queue, "broker"))
        readable = [letter for letter in letters if self._add(rows, letter)]
        known = rows.table().select(["dl_id", "body_sha256", "known_by"]).to_pylist()
        kept = [letter for letter, row in zip(readable, known, strict=True) if self._taken(**row)]
        return ReadLetters(kept, lambda: None)  # its target has stored each

    def sure(self, batches: int, /) -> None:
        pass

    def lost(self) -> None:
        pass

    def _add(self, rows: LetterRows, letter: Delivery) -> bool:
        try:
            rows.add(letter)
        except NotCopyable:
            return False  # never looked at
        return True

    def _taken(self, dl_id: str, body_sha256: str, known_by: str) -> bool:
        """Return whether the letter was sent. Each counts once; a copy of ours is the same letter each time."""
        if known_by == "copy" and dl_id in self._sent and self._sent[dl_id] in (None, body_sha256):
            return True
        for one in (dl_id, *self._alike.get(dl_id, ())):
            if self._sent.get(one) == body_sha256:
                del self._sent[one]
                return True
        return False
