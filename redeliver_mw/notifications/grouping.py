# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Groups trouble into outages, so that an outage is one notification and its end another.

Trouble is a dead letter, a new failure, a breaker that opens, or a pause that needs a person. What begins an outage,
what joins one, and what ends one, with the default of 300 s for `quiet` and 2 s for `gather`:

    12:00:00  a dead letter of `orders`                     an outage begins
    12:00:02  `gather` is over                              the notification that it began, with all trouble so far
    12:00:40  dead letters of `orders`, breaker of `bills`  join: trouble within `quiet` of the beginning does
    12:20:00  a dead letter of `orders`                     joins: the outage has dead letters of this source already
    12:21:00  a new failure in `orders`                     begins another outage, with a notification of its own
    12:30:00  `quiet` has passed, every breaker is closed   the notification that the outage is over

The state is one JSON text, so that processes which share a store have one state: each reads it, lets the functions here
change it, and writes it if nobody else has written meanwhile. Times are microseconds since 1970, UTC. No I/O, no clock.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from operator import add
from typing import Any, Final, NamedTuple

from .notification import KINDS, Notification, NotificationType, TroubleKind, beginning_text, end_text

MOST_OUTAGES: Final = 10
MOST_SOURCES: Final = 50  # of one outage
MOST_ERRORS: Final = 50  # of one outage
MOST_BLOCKS: Final = 500
MOST_QUEUED: Final = 50
MOST_ENDED: Final = 100  # ids that are remembered
SHOWN_SOURCES: Final = 20  # in a notification
SHOWN_ERRORS: Final = 10
CLAIM_US: Final = 60_000_000  # for how long a process is believed to send a notification, or to have a breaker open
STALE_US: Final = 3_600_000_000  # after which a notification that nobody has sent is dropped
OTHER: Final = "other"


@dataclass(frozen=True, slots=True)
class GroupingRules:
    """Holds two times in microseconds; see the example above."""

    quiet_us: int
    gather_us: int


@dataclass(frozen=True, slots=True)
class NotificationOrigin:
    """Describes the process that sends: its own id, and what its notifications tell of it.

    `scope`: `store` for all processes that share it, `process` for one process without a store, and `store-away` for
    one process that cannot reach its store.
    """

    process_id: str
    app: str
    broker: str
    host: str
    pid: int
    scope: str


class FailureNews(NamedTuple):
    """Counts failed attempts of a source with one fingerprint, and the dead letters among them.

    A dead letter without a failure, such as an expired message, has an empty fingerprint. `is_new`: the fingerprint was
    not known.
    """

    source: str
    fingerprint: str
    type: str
    message: str
    failures: int
    dead_letters: int
    first_us: int
    last_us: int
    is_new: bool = False


class BlockNews(NamedTuple):
    """Reports that a source is blocked: its breaker has opened, or it was paused."""

    kind: TroubleKind
    source: str
    why: str
    at_us: int


@dataclass(frozen=True, slots=True)
class TroubleNews:
    """Holds what one process has seen since its last news.

    `blocked`: kind and source of what is blocked now. `done`: the ids of notifications that need no more tries.
    `leaving`: the process ends: what waits is sent at once, and what it has claimed is left to others.
    """

    failures: Sequence[FailureNews] = ()
    blocks: Sequence[BlockNews] = ()
    blocked: Collection[tuple[str, str]] = ()
    done: Collection[str] = ()
    leaving: bool = False


@dataclass(slots=True)
class TroubledSource:
    """Counts the trouble of one source in one outage. `why`: of the last breaker or pause."""

    dead_letters: int = 0
    failures: int = 0
    breakers_opened: int = 0
    pauses: int = 0
    why: str = ""


@dataclass(slots=True)
class TroubleError:
    """Counts the attempts that failed with one fingerprint in one outage."""

    type: str
    message: str
    failures: int = 0
    dead_letters: int = 0
    new: bool = False


@dataclass(slots=True)
class Outage:
    """Holds one outage, from its beginning until its end was notified."""

    outage_id: str
    kind: TroubleKind
    began_us: int
    last_us: int
    announced: bool = False
    sources: dict[str, TroubledSource] = field(default_factory=dict)
    errors: dict[str, TroubleError] = field(default_factory=dict)
    more_sources: int = 0
    more_errors: int = 0

    def has(self, kind: str, subject: str) -> bool:
        """Return whether the outage has trouble of this kind already. A new failure's subject is its fingerprint."""
        if kind == "new-failure":
            known = self.errors.get(subject)
            return known is not None and known.new
        source = self.sources.get(subject)
        if source is None:
            return False
        counts = {
            "dead-letter": source.dead_letters,
            "breaker-open": source.breakers_opened,
            "source-paused": source.pauses,
        }
        return counts[kind] > 0

    def source(self, name: str) -> TroubledSource:
        """Return the counts of a source. Sources beyond MOST_SOURCES are counted together."""
        if name not in self.sources and len(self.sources) >= MOST_SOURCES:
            self.more_sources, name = self.more_sources + (name != OTHER), OTHER
        return self.sources.setdefault(name, TroubledSource())

    def block(self, news: BlockNews) -> None:
        """Add an open breaker or a pause."""
        source = self.source(news.source)
        if news.kind == "breaker-open":
            source.breakers_opened += 1
        else:
            source.pauses += 1
        source.why = news.why
        self.touched(news.at_us)

    def count(self, news: FailureNews, *, touches: bool = True) -> None:
        """Add failed attempts and dead letters; with `touches` they keep the outage open."""
        if touches:
            self.touched(news.last_us)
        source = self.source(news.source)
        source.failures += news.failures
        source.dead_letters += news.dead_letters
        if not news.fingerprint:
            return
        error = self.errors.get(news.fingerprint)
        if error is None:
            if len(self.errors) >= MOST_ERRORS:
                self.more_errors += 1
                return
            error = self.errors[news.fingerprint] = TroubleError(news.type, news.message)
        error.failures += news.failures
        error.dead_letters += news.dead_letters
        error.new = error.new or news.is_new

    def touched(self, at_us: int) -> None:
        self.last_us = max(self.last_us, at_us)

    def combine(self, other: Outage, numbers: Callable[[int, int], int]) -> None:
        """Take over what another process has counted of the same outage; `numbers` makes one count of two."""
        for name, theirs in other.sources.items():
            mine = self.source(name)
            mine.dead_letters = numbers(mine.dead_letters, theirs.dead_letters)
            mine.failures = numbers(mine.failures, theirs.failures)
            mine.breakers_opened = numbers(mine.breakers_opened, theirs.breakers_opened)
            mine.pauses = numbers(mine.pauses, theirs.pauses)
            mine.why = mine.why or theirs.why
        for fingerprint, error in other.errors.items():
            known = self.errors.get(fingerprint)
            if known is not None:
                known.failures = numbers(known.failures, error.failures)
                known.dead_letters = numbers(known.dead_letters, error.dead_letters)
                known.new = known.new or error.new
            elif len(self.errors) < MOST_ERRORS:
                self.errors[fingerprint] = replace(error)
            else:
                self.more_errors += 1
        self.touched(other.last_us)


@dataclass(slots=True)
class QueuedNotification:
    """Holds a notification that nobody has sent yet, with the process that tries to, and until when it is believed."""

    notification: Notification
    by: str
    until_us: int
    made_us: int


class OutageGroups:
    """Holds the outages of one App, and the notifications that are not sent yet. Not thread-safe."""

    def __init__(self, rules: GroupingRules, origin: NotificationOrigin, new_id: Callable[[], str]) -> None:
        self.origin = origin
        self._rules, self._new_id = rules, new_id
        self.outages: list[Outage] = []
        self.queued: list[QueuedNotification] = []
        self._blocks: dict[str, int] = {}  # process, kind and source -> until when the process is believed
        self.ended: list[str] = []  # ids of outages whose end was notified here

    # -- the state as a text ------------------------------------------------------------------------

    def to_json(self) -> str:
        """Return the state as a text."""
        outages = [asdict(one) for one in self.outages]
        queued = [asdict(one) for one in self.queued]
        return json.dumps({"outages": outages, "queued": queued, "blocks": self._blocks}, separators=(",", ":"))

    @classmethod
    def from_json(
        cls, text: str, rules: GroupingRules, origin: NotificationOrigin, new_id: Callable[[], str]
    ) -> OutageGroups:
        """Return the state that a text holds; of a text that is empty, or not ours, the state without an outage."""
        made = cls(rules, origin, new_id)
        try:
            state: Mapping[str, Any] = json.loads(text) if text else {"outages": [], "queued": [], "blocks": {}}
            outages = [_outage(one) for one in state["outages"]]
            queued = [
                QueuedNotification(**{**one, "notification": Notification(**one["notification"])})
                for one in state["queued"]
            ]
            blocks = {str(key): int(until) for key, until in state["blocks"].items()}
        except (AttributeError, KeyError, TypeError, ValueError):  # of another version, or written by hand
            return made
        made.outages, made.queued, made._blocks = outages, queued, blocks
        return made

    # -- news ---------------------------------------------------------------------------------------

    def take(self, news: TroubleNews, now_us: int) -> list[Notification]:
        """Take the news of this process; return the notifications that it is to send now."""
        self.queued = [
            one for one in self.queued if one.notification.id not in news.done and now_us - one.made_us < STALE_US
        ]
        self._renew(news, now_us)
        trouble: list[FailureNews | BlockNews] = [*news.blocks, *filter(_is_trouble, news.failures)]
        for one in sorted(trouble, key=_time_of):
            self._take_trouble(one)
        for failure in news.failures:
            if not _is_trouble(failure):
                self._count_known(failure)
        made = [self._queue(one, now_us) for one in self._due(news, now_us)]
        taken_over = [self._claim(one, now_us) for one in self.queued if one.until_us <= now_us and not news.leaving]
        if news.leaving:
            for queued in self.queued:
                if queued.by == self.origin.process_id and queued.notification not in made:
                    queued.until_us = now_us
        return [*taken_over, *made]

    def next_us(self, now_us: int) -> int | None:
        """Return when there is something to do although no news comes; None: never."""
        half = CLAIM_US // 2
        times = [until - half if self._mine(key) else until for key, until in self._blocks.items()]
        times += [one.until_us - (half if one.by == self.origin.process_id else 0) for one in self.queued]
        for outage in self.outages:
            if not outage.announced:
                times.append(outage.began_us + self._rules.gather_us)
            elif not self._is_blocked(outage):
                times.append(outage.last_us + self._rules.quiet_us)
        return max(now_us, min(times)) if times else None

    @property
    def needs_goodbye(self) -> bool:
        """Return whether the end of this process changes something: it has a claim, or an outage is not announced."""
        claims = any(one.by == self.origin.process_id for one in self.queued)
        return claims or any(map(self._mine, self._blocks)) or not all(one.announced for one in self.outages)

    def adopt(self, others: OutageGroups, known: Collection[str]) -> None:
        """Take over what this process has counted and notified by itself while it could not reach this state.

        `known`: the outages that this state had before. An outage that began meanwhile in both is one if its trouble is
        the same, or if both began at about the same time.
        """
        self.outages = [one for one in self.outages if one.outage_id not in others.ended]
        for outage in others.outages:
            by_id = next((one for one in self.outages if one.outage_id == outage.outage_id), None)
            if by_id is not None:
                by_id.combine(outage, max)
            elif outage.outage_id in known:
                continue  # its end was notified by another process
            elif (same := next((one for one in self.outages if self._is_same(one, outage)), None)) is not None:
                same.combine(outage, add)
            elif len(self.outages) < MOST_OUTAGES:
                self.outages.append(outage)

    def _is_same(self, one: Outage, other: Outage) -> bool:
        subjects = [(kind, name) for kind in KINDS for name in (*other.sources, *other.errors)]
        shared = any(one.has(kind, name) and other.has(kind, name) for kind, name in subjects)
        return shared or abs(one.began_us - other.began_us) < self._rules.quiet_us

    # -- outages ------------------------------------------------------------------------------------

    def _take_trouble(self, news: FailureNews | BlockNews) -> None:
        if isinstance(news, BlockNews):
            self._outage_of(news.kind, news.source, news.at_us).block(news)
        elif news.dead_letters:
            self._outage_of("dead-letter", news.source, news.first_us).count(news)
        else:
            self._outage_of("new-failure", news.fingerprint, news.first_us).count(news)

    def _count_known(self, news: FailureNews) -> None:
        """Count failures that are no trouble of their own. Only a failure that was new keeps its outage open."""
        for outage in self.outages:
            if outage.has("new-failure", news.fingerprint):
                return outage.count(news)
        for outage in reversed(self.outages):
            if news.source in outage.sources:
                return outage.count(news, touches=False)
        return None

    def _outage_of(self, kind: TroubleKind, subject: str, at_us: int) -> Outage:
        """Return the outage that trouble belongs to; it begins here if there is none."""
        for outage in self.outages:
            if outage.has(kind, subject):
                return outage
        youngest = max(self.outages, key=lambda one: one.began_us, default=None)
        if youngest is not None:
            is_young = abs(at_us - youngest.began_us) < self._rules.quiet_us
            if is_young or len(self.outages) >= MOST_OUTAGES:
                return youngest
        made = Outage(self._new_id(), kind, at_us, at_us)
        self.outages.append(made)
        return made

    def _due(self, news: TroubleNews, now_us: int) -> list[Notification]:
        """Return the notifications of the outages that have begun, or are over, and forget the latter."""
        made = []
        for outage in [*self.outages]:
            if outage.began_us > now_us or outage.last_us > now_us:  # the wall clock was set back
                outage.began_us, outage.last_us = min(outage.began_us, now_us), min(outage.last_us, now_us)
            if not outage.announced and (news.leaving or now_us >= outage.began_us + self._rules.gather_us):
                outage.announced = True
                made.append(self._notification(outage, now_us, outage.kind))
            elif outage.announced and not news.leaving and self._is_over(outage, now_us):
                made.append(self._notification(outage, now_us, "recovered"))
                self.outages.remove(outage)
                self.ended = [*self.ended, outage.outage_id][-MOST_ENDED:]
        return made

    def _is_over(self, outage: Outage, now_us: int) -> bool:
        return now_us >= outage.last_us + self._rules.quiet_us and not self._is_blocked(outage)

    # -- blocks -------------------------------------------------------------------------------------

    def _mine(self, key: str) -> bool:
        return key.partition(" ")[0] == self.origin.process_id

    def _is_blocked(self, outage: Outage) -> bool:
        """Return whether a breaker of the outage is open somewhere, or a source of it paused."""
        return any(outage.has(*key.split(" ", 2)[1:]) for key in self._blocks)

    def _renew(self, news: TroubleNews, now_us: int) -> None:
        """Note what is blocked in this process, and forget what other processes have not reported for a while."""
        mine = set()
        if not news.leaving:
            mine = {f"{self.origin.process_id} {kind} {source}" for kind, source in news.blocked}
        gone = [
            key
            for key, until in self._blocks.items()
            if (key not in mine if self._mine(key) else not now_us < until <= now_us + 2 * CLAIM_US)
        ]
        for key in gone:
            _, kind, source = key.split(" ", 2)
            for outage in self.outages:
                if outage.has(kind, source):
                    outage.touched(min(now_us, self._blocks[key]))
            del self._blocks[key]
        for key in mine:
            if key in self._blocks or len(self._blocks) < MOST_BLOCKS:
                self._blocks[key] = _renewed(self._blocks.get(key, 0), now_us)
        for queued in self.queued:
            if queued.by == self.origin.process_id:
                queued.until_us = _renewed(queued.until_us, now_us)

    # -- notifications ------------------------------------------------------------------------------

    def _queue(self, notification: Notification, now_us: int) -> Notification:
        claimed = QueuedNotification(notification, self.origin.process_id, now_us + CLAIM_US, now_us)
        self.queued = [*self.queued, claimed][-MOST_QUEUED:]
        return notification

    def _claim(self, queued: QueuedNotification, now_us: int) -> Notification:
        queued.by, queued.until_us = self.origin.process_id, now_us + CLAIM_US
        return queued.notification

    def _notification(self, outage: Outage, now_us: int, type_: NotificationType) -> Notification:
        origin, over = self.origin, type_ == "recovered"
        sources = sorted(outage.sources.items(), key=lambda one: (-one[1].dead_letters, -one[1].failures, one[0]))
        errors = sorted(outage.errors.items(), key=lambda one: (-one[1].dead_letters, -one[1].failures, one[0]))
        kinds: list[TroubleKind] = [kind for kind in KINDS if self._counted(outage, kind)]
        data = {
            "outage_id": outage.outage_id,
            "app": origin.app,
            "broker": origin.broker,
            "scope": origin.scope,
            "host": origin.host,
            "pid": origin.pid,
            "began": _iso(outage.began_us),
            "last": _iso(outage.last_us),
            "ended": _iso(now_us) if over else None,
            "kinds": kinds,
            "dead_letters": self._counted(outage, "dead-letter"),
            "new_failures": self._counted(outage, "new-failure"),
            "breakers_opened": self._counted(outage, "breaker-open"),
            "pauses": self._counted(outage, "source-paused"),
            "failures": sum(one.failures for one in outage.sources.values()),
            "sources": [{"source": name, **asdict(one)} for name, one in sources[:SHOWN_SOURCES]],
            "more_sources": max(0, len(sources) - SHOWN_SOURCES) + outage.more_sources,
            "errors": [{"fingerprint": name, **asdict(one)} for name, one in errors[:SHOWN_ERRORS]],
            "more_errors": max(0, len(errors) - SHOWN_ERRORS) + outage.more_errors,
        }
        seconds = (outage.last_us - outage.began_us) / 1e6
        text = end_text(data, seconds) if over else beginning_text(data)
        return Notification(self._new_id(), type_, _iso(now_us), text, data)

    def _counted(self, outage: Outage, kind: TroubleKind) -> int:
        if kind == "new-failure":
            return sum(one.new for one in outage.errors.values())
        name = {"dead-letter": "dead_letters", "breaker-open": "breakers_opened", "source-paused": "pauses"}[kind]
        return sum(getattr(one, name) for one in outage.sources.values())


def _is_trouble(news: FailureNews) -> bool:
    return news.dead_letters > 0 or news.is_new


def _time_of(news: FailureNews | BlockNews) -> int:
    return news.at_us if isinstance(news, BlockNews) else news.first_us


def _renewed(until_us: int, now_us: int) -> int:
    """Return until when a claim holds that was confirmed now. A claim that holds for long enough is left as it is."""
    return until_us if now_us + CLAIM_US // 2 < until_us <= now_us + CLAIM_US else now_us + CLAIM_US


def _outage(values: Mapping[str, Any]) -> Outage:
    sources = {name: TroubledSource(**one) for name, one in values["sources"].items()}
    errors = {name: TroubleError(**one) for name, one in values["errors"].items()}
    return Outage(**{**values, "sources": sources, "errors": errors})


def _iso(at_us: int) -> str:
    return datetime.fromtimestamp(at_us / 1e6, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
