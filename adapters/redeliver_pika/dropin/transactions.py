# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Keeps the settlements of a channel in tx mode until the code's own commit, right before which they are written.

Nothing is written earlier, so a rollback has nothing of ours to undo, and no tag is ever written twice in one
transaction, for which RabbitMQ closes the channel (406; seen on 3.10 and 4.3). The code's own settlements count once
the broker has answered the commit: a connection that is lost before that decides nothing. Copies go out on another
channel, with confirms, and are not part of the code's transaction. We never commit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pika.spec import Tx

from redeliver_mw.adapter.capabilities import Settlement
from redeliver_mw.dropin import ACK, CallbackRun
from redeliver_mw.redelivery.outbox import has_sends

WriteTag = Callable[[int, Settlement], object]


@dataclass(slots=True, eq=False)
class Commit:
    """Holds what the code settled since its last commit, from the call of the next one until that is reported."""

    settled: dict[int, tuple[CallbackRun, Exception]]
    written: set[int] = field(default_factory=set)  # tags that were acked right before it
    sent: bool = False
    answered: bool = False


class ChannelTransaction:
    """Follows one channel's open transaction, and its commits on their way. On the thread of the connection's loop."""

    def __init__(self, raw: Any, write: WriteTag) -> None:
        self._write = write
        self._settled: dict[int, tuple[CallbackRun, Exception]] = {}  # by the code, since its last commit
        self._ours: dict[int, Settlement] = {}  # of deliveries that we settle: originals of confirmed copies
        self._asked: deque[Commit] = deque()  # not sent yet
        self._by_commit: set[int] = set()  # tags that a commit has settled, while the core is informed
        self._by_hand: set[int] = set()  # tags of basic_get that the code settled since its last commit
        self._send_rpc: Callable[..., Any] = raw._rpc
        self._raw = raw
        raw._rpc = self._rpc

    # -- settlements ------------------------------------------------------------------------------

    @property
    def waiting(self) -> int:
        """Return how many deliveries of ours only the code's next commit settles."""
        return len(self._ours)

    def promise(self, run: CallbackRun, settlement: Exception) -> None:
        """Keep a settlement of the code's until its commit."""
        run.promised = True
        self._settled[run.delivery.tag] = run, settlement

    def withdraw(self, run: CallbackRun) -> bool:
        """Take a settlement of the code's out again; False if it went out with a commit."""
        for settled in (self._settled, *(commit.settled for commit in self._asked)):
            if settled.pop(run.delivery.tag, None) is not None:
                run.promised = False
                return True
        return False

    def settle(self, tag: int, settlement: Settlement) -> None:
        """Keep a settlement of ours until the code's next commit, unless a commit has settled the delivery already."""
        if tag in self._by_commit:
            self._by_commit.discard(tag)
        else:
            self._ours[tag] = settlement

    def by_hand(self, tag: int) -> None:
        """Note a settlement that the code has written itself, for a delivery of basic_get."""
        self._by_hand.add(tag)

    # -- the code's commits and rollbacks ---------------------------------------------------------

    def commit(self) -> Commit:
        """Begin a commit: what the code has settled until now belongs to it."""
        commit = Commit(self._settled)
        self._settled = {}
        self._by_hand.clear()
        self._asked.append(commit)
        return commit

    def roll_back(self) -> set[int]:
        """Put what the code has settled into its hands again; return the tags of basic_get among it.

        Settlements of ours stay: they go out with the next commit.
        """
        for run, _ in self._settled.values():
            run.promised = False
        self._settled.clear()
        by_hand, self._by_hand = self._by_hand, set()
        return by_hand

    def tell(self, commit: Commit) -> None:
        """Let the core know what an answered commit has settled. A commit without an answer settles nothing."""
        settled, commit.settled = commit.settled, {}
        if commit.answered:
            for tag, (run, settlement) in settled.items():
                run.promised = False
                if tag in commit.written:
                    self._by_commit.add(tag)
                run.listener.code_settled(run, settlement)
                self._by_commit.discard(tag)

    def end(self) -> None:
        """Forget what was to be written, because the tags of the channel mean nothing any more."""
        self._settled.clear()
        self._ours.clear()
        self._by_hand.clear()
        for commit in self._asked:
            commit.settled = {}

    # -- on the wire ------------------------------------------------------------------------------

    def _rpc(self, method: Any, callback: Any = None, replies: Any = None) -> Any:
        """Send a method of the channel, as `pika.channel.Channel._rpc` does; before a commit go the settlements.

        The driver sends one method at a time and queues the others, which come through here again.
        """
        if isinstance(method, Tx.Commit) and not self._raw._blocking and self._asked:
            commit = self._asked.popleft()
            self._write_all(commit)
            callback = _noting(commit, callback)
        return self._send_rpc(method, callback, replies)

    def _write_all(self, commit: Commit) -> None:
        commit.sent = True
        for tag, (run, settlement) in commit.settled.items():
            if settlement is ACK and not has_sends(run.delivery):
                self._write(tag, "accepted")
                commit.written.add(tag)
        ours, self._ours = self._ours, {}
        for tag, own in ours.items():
            self._write(tag, own)


def _noting(commit: Commit, callback: Callable[[Any], object]) -> Callable[[Any], None]:
    def answered(frame: Any) -> None:
        commit.answered = True
        callback(frame)

    return answered
