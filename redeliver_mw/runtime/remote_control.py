# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Obeys what operators want of an App's sources: pauses and resumes them, and forces their breakers."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from ..flow.breaker import Forced
from ..flow.breaker_guard import BreakerGuard
from ..flow.consumer_pauses import ConsumerPauses
from ..message import Destination
from ..redaction import clean, redact, visible
from .workers import WorkerPool

if TYPE_CHECKING:
    from ..operations.control import ControlWish

log = logging.getLogger("redeliver_mw")
BY = "operator"  # the name of an operator's pause
FORCED: Final[Mapping[str, Forced]] = {"open": "open", "close": "closed", "auto": ""}
WORDS: Final = {"consumption": ("pause", "resume"), "breaker": tuple(FORCED)}


class RemoteControl:
    """Turns wishes into pauses and forced breakers, and logs who asked. Used by one thread, except for `paused_by`."""

    def __init__(
        self, pools: Mapping[Destination, WorkerPool], guard: BreakerGuard | None, consumers: ConsumerPauses
    ) -> None:
        self._guard, self._consumers = guard, consumers
        self._sources = {clean(str(source)): (source, pool) for source, pool in pools.items()}
        self._obeyed: dict[tuple[str, str], ControlWish] = {}
        self._paused_by: dict[Destination, str] = {}

    def paused_by(self, source: Destination) -> str:
        """Return who has paused a source; empty if no operator has. Any thread."""
        return self._paused_by.get(source, "")

    def obey(self, wishes: Iterable[ControlWish]) -> None:
        """Do what has changed among the wishes. Wishes about sources that are consumed elsewhere are passed over."""
        for wish in wishes:
            key = wish.source, wish.subject
            if wish.source not in self._sources or self._obeyed.get(key) == wish:
                continue
            before, self._obeyed[key] = self._obeyed.get(key), wish
            if before is None and wish.wish in ("resume", "auto"):
                continue  # that is how a process begins
            source, pool = self._sources[wish.source]
            if wish.wish not in WORDS.get(wish.subject, ()):
                what = "%s: %s asked for %r of its %s, which this release does not know"
                log.warning(what, source, _shown(wish.who), wish.wish, wish.subject)
            elif wish.subject == "consumption":
                self._pause_or_resume(source, pool, wish)
            else:
                self._force_breaker(source, wish)

    def _pause_or_resume(self, source: Destination, pool: WorkerPool, wish: ControlWish) -> None:
        who = _shown(wish.who)
        if wish.wish == "pause":
            self._paused_by[source] = who
            pool.pause(BY)
            self._consumers.pause(source, BY)
            log.info("%s is paused: %s asked for that at %s", source, who, _time(wish.at_us))
        else:
            log.info("%s is resumed: %s asked for that at %s", source, who, _time(wish.at_us))
            self._paused_by.pop(source, None)
            self._consumers.resume(source, BY)
            pool.resume(BY)

    def _force_breaker(self, source: Destination, wish: ControlWish) -> None:
        who = _shown(wish.who)
        if self._guard is None:
            what = "%s: %s wants its breaker: %s, and this App has none"
            return log.warning(what, source, who, wish.wish)
        log.info("%s: its breaker is set to %s: %s asked for that at %s", source, wish.wish, who, _time(wish.at_us))
        self._guard.force(source, FORCED[wish.wish], f"{who} asked for that" if wish.wish != "auto" else "")
        return None


def _shown(who: str) -> str:
    return visible(redact(who))


def _time(us: int) -> str:
    return datetime.fromtimestamp(us / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
