# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Why sources are paused, and what was said of it. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from ..message import Destination
from .commands import Command, PauseSource, ResumeSource

LIMBO = "limbo"


class SourcePauses:
    """A source is paused while there is a cause for it: a delivery that nobody takes, or a full hold budget.

    It is said when it begins and when it becomes serious. While a target, or limbo, goes on failing, retries that are
    run again here end the pause and begin another: of what has failed all the time nothing is said a second time.
    """

    def __init__(self) -> None:
        self.paused: dict[Destination, dict[object, bool]] = {}  # cause -> whether it is grave
        self._said: defaultdict[Destination, set[frozenset[object]]] = defaultdict(set)

    def halt(
        self, source: Destination, cause: object, reason: str, *, loud: bool = True, of: Sequence[object] = ()
    ) -> Sequence[Command]:
        """One more cause. `of`: those that it is about; by default the cause itself."""
        causes, about = self.paused.setdefault(source, {}), frozenset(of or (cause,))
        found: Sequence[Command] = ()
        if not causes or (loud and not any(causes.values())):
            found = (PauseSource(source, reason, loud and about not in self._said[source]),)
            if loud:
                self._said[source].add(about)
        causes[cause] = loud
        return found

    def lift(self, source: Destination, cause: object) -> Sequence[Command]:
        """That cause is no more."""
        causes = self.paused.get(source, {})
        if causes.pop(cause, None) is None:
            return ()
        self._said[source].discard(frozenset((cause,)))
        if causes:
            return ()
        del self.paused[source]
        return (ResumeSource(source),)

    def works(self, one: object) -> None:
        """A target, or limbo, takes copies: when it does not the next time, that is news."""
        for said in self._said.values():
            said -= {about for about in said if one in about}

    def causes(self, source: Destination) -> frozenset[bool]:
        """Whether there is a grave one, and whether there is another one."""
        return frozenset(self.paused.get(source, {}).values())
