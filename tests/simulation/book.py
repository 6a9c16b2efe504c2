# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Keeps what happened to each message, and says what may never have happened to it.

A message is *exposed* when a fault hits it while it is on its way from one place to another, or while all that is known
of it is in a process that dies. Only an exposed message may be run once more than it should be, or be in two places.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from redeliver_mw.adapter.protocol import OnAnswer, Verdict
from redeliver_mw.crash_safety.rows import key_of_line
from redeliver_mw.message import Delivery, Destination, Outgoing
from redeliver_mw.redelivery.copies import RetryTerms
from redeliver_mw.redelivery.headers import read_history_headers
from redeliver_mw.redelivery.identity import ledger_key, message_key
from redeliver_mw.redelivery.order_places import OrderPlace

from .plan import LATER, SOURCE, TARGETS, Letter

if TYPE_CHECKING:
    from redeliver_mw.limbo.service import LimboService

    from .world import World

SLACK = 0.003  # seconds that an attempt may be early: an arrival this little before its time is on time

SHORT = 1.5  # seconds: no broker schedules less, the half second included by which ActiveMQ may be late


class Broken(Exception):
    """Says that a rule does not hold."""


@dataclass
class Rest:
    """Says until when nobody may try again."""

    mono: float
    wall: float
    steps: int  # of the wall clock, before it


@dataclass
class Message:
    letter: Letter
    sent_at: float
    exposed: int = 0
    overlapped: bool = False  # run twice at once: each run was handed an F to which the other has added since
    charged: int = 0  # crashes while it was in a handler
    runs: int = 0
    failed: int = 0  # runs that count as failures
    handled: int = 0
    ended: str = ""  # by a verdict, without having been handled: dead, discarded, ignored
    running: int = 0
    unsettled: bool = False  # a handler has had it, and its broker does not know the end
    publishes: int = 0  # that are not answered
    doubted: bool = False  # its last copy got no answer, and no interceptor can know that it is nowhere
    rests: dict[int, Rest] = field(default_factory=dict)  # by F
    begun_at: dict[int, int] = field(default_factory=dict)  # F -> runs


class Book:
    def __init__(self, world: World) -> None:
        self.world, self.plan = world, world.plan
        self.messages: dict[str, Message] = {}
        self.stalled: set[Any] = set()  # who waits for the answer about a copy that got stuck
        self._copies: dict[str, tuple[str, ...]] = {}  # copy id -> what it is the id of
        self._keys: dict[str, str] = {}  # of a line in the ledger -> name

    def wrong(self, what: str) -> None:
        self.world.note(f"WRONG: {what}")
        raise Broken(what)

    def sent(self, letter: Letter, *, again: bool = False) -> None:
        self.messages[letter.name] = Message(letter, self.world.clock.now().mono)

    # -- runs -----------------------------------------------------------------------------------------------

    def handed(self, delivery: Delivery) -> None:
        """Note that a message is on its way to a handler."""
        past = read_history_headers(delivery)
        if (key := message_key(delivery, past)) is not None:
            self._keys[key_of_line(ledger_key(key, past))] = delivery.body.decode()

    def names_of(self, keys: Iterable[str]) -> set[str]:
        """Return the names for those lines whose messages were on their way to a handler."""
        return {self._keys[key] for key in keys if key in self._keys}

    def begins(self, delivery: Delivery) -> Message:
        m = self.messages[delivery.body.decode()]
        name, failures, now = m.letter.name, delivery.failures, self.world.clock.now()
        if failures > m.failed + m.charged:
            self.wrong(f"{name} is counted as failed {failures} times, and has failed {m.failed} times")
        if failures >= self.plan.dead_after:
            self.wrong(f"{name} is run after {failures} failures of {self.plan.dead_after} allowed")
        if not m.exposed:
            self._begins_unexposed(m, failures)
        self._not_early(m, failures, now.mono, now.wall)
        if not m.runs and self.world.weather.undisturbed:
            self._not_behind_retrying_ones(m, now.mono)
        m.runs += 1
        m.overlapped |= m.running > 0
        m.running += 1
        m.unsettled = True
        m.begun_at[failures] = m.begun_at.get(failures, 0) + 1
        often = m.begun_at[failures] - (m.letter.kind == "later" and not failures)
        if often > 2 ** (m.exposed + m.charged):
            self.wrong(f"{name} is run {often} times after {failures} failures, with {m.exposed} faults that hit it")
        return m

    def _begins_unexposed(self, m: Message, failures: int) -> None:
        name = m.letter.name
        if failures != m.failed:
            self.wrong(f"{name} has failed {m.failed} times, and {failures} are remembered, though no fault hit it")
        if m.running:
            self.wrong(f"{name} is run twice at once, though no fault hit it")
        if m.handled or m.ended:
            self.wrong(f"{name} is run although it is {m.ended or 'handled'}, and no fault hit it")

    def _not_early(self, m: Message, failures: int, mono: float, wall: float) -> None:
        rest = m.rests.get(failures)
        if (
            rest is None
            or m.overlapped
            or (not failures and m.exposed)
            or rest.steps != self.world.weather.steps_forward
        ):
            return
        early = min(rest.mono - mono, rest.wall - wall)
        if early > SLACK:
            self.wrong(f"{m.letter.name} is tried {early:.3f} s before its time")

    def _not_behind_retrying_ones(self, m: Message, now: float) -> None:
        plan = self.plan
        if plan.prefetch < 2 or plan.delay in ("hold", "nack"):
            return  # there a full budget pauses the source: no-head-of-line-blocking says so
        if plan.prefetch == 2 and any(letter.wide for letter in plan.letters):
            return  # there is one place for all that is held
        most = sum(letter.lasts * (plan.dead_after + 1) for letter in plan.letters) + 0.05
        short = [rest for rest in plan.backoff if 0 < rest <= SHORT]
        # Too short for a copy: held in spite of the budget. So is what a handler asks for where no delay is set.
        most += sum(short) * len(plan.letters) * plan.dead_after
        most += LATER * sum(letter.kind == "later" for letter in plan.letters)
        if now - m.sent_at > most:
            self.wrong(f"{m.letter.name} waited {now - m.sent_at:.2f} s, and handlers took {most:.2f} s at most")

    def ends(self, m: Message, failures: int, *, outcome: str, rest: float = 0.0) -> None:
        """Note the end of a run. `outcome` is handled, failed, later, dead, discarded or ignored."""
        m.running -= 1
        now = self.world.clock.now()
        if outcome == "handled":
            m.handled += 1
            return
        m.failed += outcome in ("failed", "dead", "discarded")
        if outcome in ("failed", "later"):
            count = failures + (outcome == "failed")
            known = m.rests.get(count)
            if known is None or not m.exposed or known.mono > now.mono + rest:
                m.rests[count] = Rest(now.mono + rest, now.wall + rest, self.world.weather.steps_forward)
        else:
            m.ended = m.ended or outcome

    # -- copies and settles -----------------------------------------------------------------------------------

    def stored(self, name: str, target: Destination, headers: Mapping[str, Any]) -> None:
        """Note that the broker has a copy."""
        copy_id = headers.get("redeliver_copy_id")
        sent_back = "redeliver_reason" in headers and target.name == SOURCE  # by the stranger, under its old id
        if copy_id is not None and name in self.messages and not sent_back:
            what = (name, str(target), str(headers["redeliver_hop"]), str(headers["redeliver_generation"]))
            if self._copies.setdefault(copy_id, what) != what:
                self.wrong(f"one copy id for two copies: {self._copies[copy_id]} and {what}")

    def accepted(self, name: str, queue: str) -> None:
        """Note that the broker forgets one copy of a message."""
        m = self.messages.get(name)
        if m is None or queue != SOURCE:
            return
        m.unsettled = m.running > 0
        if m.handled or m.ended in ("discarded", "ignored") or self._may_be_dropped(m):
            return
        places = self.world.places(name)
        retried = SOURCE in places
        dead = self.plan.on_dead == "dead-letter" and all(target in places for target in TARGETS[: self.plan.targets])
        if not (retried or dead):
            self.wrong(f"{name} is settled, and neither handled nor safe elsewhere; it is at {places or 'no place'}")

    def _may_be_dropped(self, m: Message) -> bool:
        """Return whether a message may be dropped.

        Crashes, or runs of the message side by side, have brought it to its end, and the policy discards what is dead.
        """
        return self.plan.on_dead == "discard" and m.exposed > 0 and m.failed + m.charged >= self.plan.dead_after

    def open_publish(self, name: str) -> None:
        if (m := self.messages.get(name)) is not None:
            m.publishes += 1

    def answered(self, name: str, verdict: str, *, nowhere: bool = False) -> None:
        """Note the answer to a publish.

        With `nowhere`, what was not answered got stuck, and has gone down with its link.
        """
        if (m := self.messages.get(name)) is None:
            return
        m.publishes -= 1
        m.doubted = verdict == "silent"
        if verdict == "silent" and not nowhere:
            self.expose(m, "its copy may be there or not")

    def watching(self, service: LimboService | None) -> LimboService | None:
        """Return the service, watched: what is to be parked is on its way until that is answered."""
        if service is None:
            return None
        park = service.park

        def watched(
            out: Outgoing,
            due: float,
            answer: OnAnswer,
            /,
            terms: RetryTerms | None = None,
            places: Sequence[OrderPlace] = (),
        ) -> None:
            name = out.body.decode()
            self.open_publish(name)

            def answered(verdict: Verdict, why: str) -> None:
                self.answered(name, verdict)
                self.world.note(f"the copy of {name} for limbo: {verdict}")
                answer(verdict, why)

            park(out, due, answered, terms, places)

        service.park = watched
        return service

    # -- faults -------------------------------------------------------------------------------------------------

    def connection_lost(self) -> None:
        """Note that the connection is lost.

        Results and settles of this instant may be lost; what only waits is not. A message without an id whose copy may
        be there is not recognised, and begins at no failures.
        """
        places = self.world.all_places()
        for name, m in self.messages.items():
            moved = m.handled or m.ended
            twice = len(places.get(name, ())) > 1
            unknown = m.doubted and not m.letter.has_id
            if m.running or m.publishes or twice or unknown or (m.unsettled and moved):
                self.expose(m, "the connection is lost", places.get(name, ()))

    def process_lost(self, suspects: Collection[str]) -> None:
        """Note that the process is lost: all that was in hand, or in two places, is exposed.

        `suspects` are the messages that ran alone, as far as the database knows.
        """
        places = self.world.all_places()
        for name, m in self.messages.items():
            m.charged += m.running or name in suspects
            if m.unsettled or m.publishes or name in suspects or len(places.get(name, ("", ""))) > 1:
                self.expose(m, "its process is dead", places.get(name, ()))
            m.running = m.publishes = 0

    def process_stopped(self, *, gently: bool) -> None:
        """Note that the process has stopped: the broker has the messages again that it had in hand.

        With `gently`, nothing hindered the process from taking the counts along.
        """
        places = self.world.all_places()
        for name, m in self.messages.items():
            counted = m.unsettled and m.failed and not m.running and not m.ended
            # What was given back has its count in our memory, and so has what cannot be copied.
            if gently and counted and self.plan.delay != "nack" and not m.letter.wide:
                self.wrong(f"{m.letter.name} has failed {m.failed} times, and the stop left it without its count")
            if m.unsettled or len(places.get(name, ())) > 1:
                self.expose(m, "it was in hand when its process was stopped", places.get(name, ()))
            m.running = m.publishes = 0

    def expose(self, m: Message, why: str, places: Sequence[str] = ()) -> None:
        """Note that a message is exposed.

        Of two copies that are to be handled here, an original whose copy is not answered yet, each may be run again.
        """
        m.exposed += max(1, places.count(SOURCE))
        self.world.note(f"{m.letter.name} is exposed: {why}")

    # -- the end ------------------------------------------------------------------------------------------------

    def done(self) -> bool:
        """Return whether every message has come to an end, as far as anybody knows."""
        return not any(m.running or m.publishes for m in self.messages.values()) and all(
            m.handled or m.ended for m in self.messages.values()
        )

    def check_end(self) -> None:
        places = self.world.all_places()
        for name, m in self.messages.items():
            self._check_place(name, m, places.get(name, []))

    def _check_place(self, name: str, m: Message, places: list[str]) -> None:
        if self.stays(name) or self._came_again(m, places):
            return self._check_uncopyable(name, m, places)
        if "limbo" in places and any(fault.kind == "refuse" for fault in self.plan.faults):
            return  # its target has refused it too often: it waits there for somebody
        if SOURCE in places:
            self.wrong(f"{name} is still at {places}, and nothing moves it")
        if "limbo" in places:
            self.wrong(f"{name} is left in limbo")
        letters = [sum(place == target for place in places) for target in TARGETS[: self.plan.targets]]
        dead = all(letters)
        over = m.handled or dead or m.ended in ("discarded", "ignored") or self._may_be_dropped(m)
        if not over:
            self.wrong(f"{name} is lost: neither handled, nor dropped by its policy, nor at any place but {places}")
        if any(letters) and m.letter.kind != "rejected" and m.failed + m.charged < self.plan.dead_after:
            self.wrong(f"{name} is a dead letter, and has failed {m.failed} times")
        if not m.exposed:
            self._check_unexposed(name, m, letters)

    def stays(self, name: str) -> bool:
        """Return whether the message has come to its end as a dead letter of which no copy can be made."""
        m, plan = self.messages[name], self.plan
        often = m.failed + m.charged >= plan.dead_after  # by runs that knew nothing of each other, or crashes
        dead = m.ended == "dead" or (not m.ended and m.exposed > 0 and plan.on_dead == "dead-letter" and often)
        return m.letter.wide and dead and not m.running and not m.handled

    def _came_again(self, m: Message, places: Sequence[str]) -> bool:
        """Return whether a message was handled though its dead letter is in limbo.

        The settlement of the original was lost then.
        """
        return m.letter.wide and m.handled > 0 and m.exposed > 0 and self.plan.limbo and "limbo" in places

    def rests(self, name: str, places: Sequence[str]) -> bool:
        """Return whether such a message is where it is to stay: in limbo only, where there is one."""
        kept = places.count("limbo")
        return self.stays(name) and (not self.plan.limbo or places.count(SOURCE) == kept >= 1)

    def _check_uncopyable(self, name: str, m: Message, places: list[str]) -> None:
        """Check that a message that cannot be copied is in limbo, from where it would go back to its source.

        Without a limbo the message is in its source, unsettled.
        """
        kept = places.count("limbo")
        if self.plan.limbo and (kept < 1 or (kept > 1 and not m.exposed)):
            self.wrong(f"{name} cannot be copied, is dead, and is at {places} instead of once in limbo")
        if places.count(SOURCE) != max(kept, not self.plan.limbo):
            self.wrong(f"{name} cannot be copied, is dead, and is at {places}")
        if any(target in places for target in TARGETS):
            self.wrong(f"{name} cannot be copied, and is at {places}")

    def _check_unexposed(self, name: str, m: Message, letters: list[int]) -> None:
        kind, plan = m.letter.kind, self.plan
        well = kind in ("healthy", "failing", "later", "killer")
        dies = kind in ("poison", "rejected")
        runs = {"failing": m.letter.failures + 1, "poison": plan.dead_after, "later": 2}.get(kind, 1)
        if m.handled != well:
            self.wrong(f"{name} was handled {m.handled} times, though no fault hit it")
        if m.runs != runs:
            self.wrong(f"{name} was run {m.runs} times instead of {runs}, though no fault hit it")
        wanted = int(dies and plan.on_dead == "dead-letter")
        if letters != [wanted] * len(letters):
            self.wrong(f"{name} left {letters} dead letters instead of {wanted} each, though no fault hit it")
