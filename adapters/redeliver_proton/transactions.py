# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Runs {send copies, accept the originals} as one transaction, on the consuming connection. On the loop's thread.

Confirm-before-settle: a send counts when its own provisional outcome has arrived; the originals join the transaction
after the last of them, and then the commit goes out; a link without credit takes no send. Until then nothing of an
original is in the transaction: after an abort it is unsettled and ours as before. After a commit that was refused it
comes back to us too, but some time after the answer: settled before that, it costs the connection (seen on 2.44); so it
is abandoned, and given back a little later. Silence closes the connection, and everything on it is abandoned.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import proton

from redeliver_mw.adapter import OnTransferred, TransferVerdict
from redeliver_mw.message import Delivery, Destination
from redeliver_proton.broker_dialect import BrokerTopology
from redeliver_proton.loop import CallLoop
from redeliver_proton.sender_link import TRANSACTIONAL, SenderLink, SenderLinks, SentCopy
from redeliver_proton.transaction_coordinator import TransactionCoordinator

log = logging.getLogger("redeliver_mw.proton")

TOGETHER = 50  # moves that share one transaction
CHECK_EVERY = 0.25
PATIENCE = 30.0
ROLLBACK = 1.0  # seconds after which a refused commit is undone at the broker
_ACCEPTED = proton.Described(proton.ulong(0x24), [])


class TransferOrigin(Protocol):
    """Is where originals are unsettled."""

    def driver_delivery(self, tag: int) -> Any: ...  # the driver's delivery, or None
    def done(self, tag: int) -> None: ...


@dataclass(slots=True, eq=False)
class TransferJob:
    """Is one move."""

    origin: TransferOrigin
    delivery: Delivery
    sends: list[tuple[Destination, bytes, str]]  # target, message, what a filter sees it as
    answer: OnTransferred


@dataclass(slots=True, eq=False)
class _Transaction:
    jobs: list[TransferJob]
    state: str = "preparing"  # declaring, sending, committing, aborting
    id: bytes = b""
    open: int = 0  # sends without their outcome
    refused: list[str] = field(default_factory=list)
    waited: float = 0.0
    links: dict[Destination, SenderLink] = field(default_factory=dict)  # to its targets, also those that have failed


class TransactionRunner:
    """Runs one transaction after the other. `cut` closes the connection; then `down` abandons what is in it."""

    def __init__(
        self,
        loop: CallLoop,
        topology: BrokerTopology,
        cut: Callable[[BaseException], None],
        *,
        patience: float = PATIENCE,
    ) -> None:
        self._loop, self._cut, self._patience = loop, cut, patience
        self._sender_links = SenderLinks(topology, self._step)
        self._queue: deque[TransferJob] = deque()
        self._now: _Transaction | None = None
        self._healthy: set[Destination] = set()  # targets that a transaction of this connection confirmed
        self._control: TransactionCoordinator | None = None
        self._session: proton.Session | None = None
        self._checking = self._stepping = False
        self._last_check = 0.0

    def up(self, session: proton.Session) -> None:
        self._session = session
        self._sender_links.up(session)

    def down(self, error: BaseException) -> None:
        self._session = self._control = None
        self._healthy.clear()
        now, self._now = self._now, None
        queued, self._queue = list(self._queue), deque()
        self._sender_links.down(f"the connection was lost: {error}")
        if now is not None:
            silent = now.waited > self._patience
            for job in now.jobs:
                job.answer("abandoned" if silent else "lost", f"the connection was lost: {error}")
        for job in queued:
            job.answer("lost", f"the connection was lost: {error}")

    def move(self, job: TransferJob) -> None:
        """Move a delivery in a transaction. One answer comes for each call."""
        if self._session is None:
            return job.answer("lost", "the connection is lost")
        self._queue.append(job)
        # Not at once: what is asked for in one turn of the loop may share one transaction.
        self._loop.call(self._step)
        self._watch()

    @property
    def idle(self) -> bool:
        return self._now is None and not self._queue

    # -- one transaction --------------------------------------------------------------------------

    def _step(self) -> None:
        """Go on as far as possible just now. Called again with each change of a link."""
        if self._stepping:
            return
        self._stepping = True
        try:
            while self._now is None and self._queue and self._session is not None:
                self._now = _Transaction(self._group())
                self._prepare(self._now)
            if self._now is not None and self._now.state == "preparing":
                self._prepare(self._now)
        finally:
            self._stepping = False

    def _group(self) -> list[TransferJob]:
        """Return the next move, and others with it if all their targets are healthy: one that refuses shares none."""
        jobs = [self._queue.popleft()]
        while self._queue and len(jobs) < TOGETHER and self._is_healthy(jobs[-1]) and self._is_healthy(self._queue[0]):
            jobs.append(self._queue.popleft())
        return jobs

    def _is_healthy(self, job: TransferJob) -> bool:
        return all(target in self._healthy for target, _, _ in job.sends)

    def _prepare(self, now: _Transaction) -> None:
        """Open every link, and begin only when there is credit for all."""
        for job in list(now.jobs):
            if job.origin.driver_delivery(job.delivery.tag) is None:
                self._drop(now, job, "abandoned", "its generation is over, or it is settled")
            elif why := self._obstacle(now, job):
                self._distrust(job)
                self._drop(now, job, "refused", why)
        if not now.jobs:
            self._now = None
            self._loop.call(self._step)
            return
        needed = Counter(target for job in now.jobs for target, _, _ in job.sends)
        if all(self._link(now, target).credit >= count for target, count in needed.items()):
            now.state = "declaring"
            self._coordinator().declare()

    def _link(self, now: _Transaction, target: Destination) -> SenderLink:
        """Return this transaction's link to a target. One that has failed stays, so that its reason is seen."""
        link = now.links.get(target)
        if link is None or (link.state == "closed" and not link.failed):
            link = now.links[target] = self._sender_links.to(target)
        return link

    def _obstacle(self, now: _Transaction, job: TransferJob) -> str:
        """Return why one of its copies cannot be sent just now; empty where nothing is known against it."""
        for target, data, seen in job.sends:
            outlet = self._link(now, target)
            if outlet.failed:
                return outlet.failed
            if (why := outlet.unfit(SentCopy(data, _nobody, seen_as=seen))) is not None:
                return why
            if outlet.starved:
                return f"{target} takes no message just now: its link has no credit"
        return ""

    def _drop(self, now: _Transaction, job: TransferJob, verdict: TransferVerdict, why: str) -> None:
        now.jobs.remove(job)
        job.answer(verdict, why)

    def _send(self, now: _Transaction) -> None:
        now.state = "sending"
        now.open = sum(len(job.sends) for job in now.jobs)
        for job in now.jobs:
            for target, data, seen in job.sends:
                sent = SentCopy(data, self._sent(now), job.delivery.generation, seen, now.id)
                self._link(now, target).write(sent)

    def _sent(self, now: _Transaction) -> Callable[[Any, str], None]:
        def answered(verdict: Any, why: str) -> None:
            if self._now is not now:
                return
            now.open -= 1
            if verdict != "ok":
                now.refused.append(why)
            if not now.open:
                self._end(now)

        return answered

    def _end(self, now: _Transaction) -> None:
        """End the transaction, with every outcome here: the originals join and it is committed, or all is undone."""
        originals = [job.origin.driver_delivery(job.delivery.tag) for job in now.jobs]
        if any(original is None for original in originals):
            now.refused.append("the original was lost meanwhile")
        if now.refused:
            now.state = "aborting"
        else:
            now.state = "committing"
            for original in originals:
                original.local.data = [now.id, _ACCEPTED]
                original.update(TRANSACTIONAL)
        self._coordinator().discharge(now.id, failed=bool(now.refused))

    def _discharged(self, now: _Transaction, refusal: str) -> None:
        self._now = None
        if now.state == "committing" and not refusal:
            for job in now.jobs:
                original = job.origin.driver_delivery(job.delivery.tag)
                if original is not None:
                    original.settle()
                job.origin.done(job.delivery.tag)
                self._healthy.update(target for target, _, _ in job.sends)
                job.answer("ok", "")
        else:
            self._undone(now, refusal)
        self._loop.call(self._step)

    def _undone(self, now: _Transaction, refusal: str) -> None:
        why, joined = refusal or "; ".join(now.refused), now.state == "committing"
        for job in now.jobs:
            self._distrust(job)
            if joined:
                self._loop.call_later(ROLLBACK, partial(_give_back, job))
            job.answer("abandoned" if joined else "refused", why)

    def _distrust(self, job: TransferJob) -> None:
        self._healthy.difference_update(target for target, _, _ in job.sends)

    # -- the coordinator --------------------------------------------------------------------------

    def _coordinator(self) -> TransactionCoordinator:
        if self._control is None:
            self._control = TransactionCoordinator(self._session, self._answered, self._cut)
        return self._control

    def _answered(self, number: bytes, refusal: str) -> None:
        """Go on after the broker's answer to declare or to discharge."""
        now = self._now
        if now is None:
            return
        if now.state != "declaring":
            self._discharged(now, refusal if now.state == "committing" else "")
        elif refusal or not number:
            now.refused.append(refusal or "no transaction was declared")
            self._discharged(now, "; ".join(now.refused))
        else:
            now.id = number
            self._send(now)

    # -- patience ---------------------------------------------------------------------------------

    def _watch(self) -> None:
        if not self._checking:
            self._checking, self._last_check = True, self._loop.time()
            self._loop.call_later(CHECK_EVERY, self._check)

    def _check(self) -> None:
        elapsed = self._loop.time() - self._last_check
        self._checking = False
        now = self._now
        if self.idle or now is None:
            return
        self._watch()
        now.waited += elapsed
        if now.state == "preparing":
            self._look_for_credit(now, elapsed)
        if now.waited > self._patience:
            why = f"no end of a transaction within {self._patience:g} s"
            log.warning("%s: the connection is closed and opened again", why)
            self._cut(ConnectionError(why))

    def _look_for_credit(self, now: _Transaction, elapsed: float) -> None:
        """Note which links have no credit, and go on.

        A copy without credit is left to the publishing connection, where it may wait as long as it takes.
        """
        for target in {target for job in now.jobs for target, _, _ in job.sends}:
            outlet = self._link(now, target)
            if outlet.state == "open" and not outlet.credit:
                outlet.starved += elapsed
        self._step()
        for outlet in self._sender_links:
            outlet.starved = 0.0


def _give_back(job: TransferJob) -> None:
    """Give a delivery back after its rollback, unless its link is gone, and all with it."""
    original = job.origin.driver_delivery(job.delivery.tag)
    if original is not None:
        original.local.data = None
        original.update(proton.Delivery.RELEASED)
        original.settle()
        job.origin.done(job.delivery.tag)


def _nobody(_verdict: Any, _why: str) -> None:
    pass
