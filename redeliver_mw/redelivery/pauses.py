# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tracks why sources are paused, and what was logged about it. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from ..message import Destination
from .commands import Command, PauseSource, ResumeSource

LIMBO = "limbo"


class SourcePauses:
    """Pauses a source while there is a cause: a delivery that no target accepts, or a full hold budget.

    Logs when a pause begins and when it needs attention. A target, or limbo, that keeps failing is logged once, even if
    retries that run again here end the pause briefly.
    """

    def __init__(self) -> None:
        self.paused: dict[Destination, dict[object, bool]] = {}  # cause -> whether it needs attention
        # what a loud pause was logged for, and has not worked since
        self.logged: defaultdict[Destination, set[frozenset[object]]] = defaultdict(set)

    def halt(
        self, source: Destination, cause: object, reason: str, *, loud: bool = True, of: Sequence[object] = ()
    ) -> Sequence[Command]:
        """Add a cause. `of`: the targets or deliveries that it is about; by default the cause itself."""
        causes, about = self.paused.setdefault(source, {}), frozenset(of or (cause,))
        found: Sequence[Command] = ()
        if not causes or (loud and not any(causes.values())):
            found = (PauseSource(source, reason, loud and about not in self.logged[source]),)
            if loud:
                self.logged[source].add(about)
        causes[cause] = loud
        return found

    def lift(self, source: Destination, cause: object) -> Sequence[Command]:
        """Remove a cause."""
        causes = self.paused.get(source, {})
        if causes.pop(cause, None) is None:
            return ()
        self.logged[source].discard(frozenset((cause,)))
        if causes:
            return ()
        del self.paused[source]
        return (ResumeSource(source),)

    def works(self, one: object) -> None:
        """Note that a target, or limbo, accepts copies, so that its next failure is logged again."""
        for logged in self.logged.values():
            logged -= {about for about in logged if one in about}

    def causes(self, source: Destination) -> frozenset[bool]:
        """Return True in the set if a cause needs attention, and False if there is another cause."""
        return frozenset(self.paused.get(source, {}).values())
