# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Checks lists of findings for the tests of `redeliver doctor`."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from redeliver_mw.clock import Moment, SystemClock
from redeliver_mw.doctor import CHECKS, Finding, FindingStatus, examine
from redeliver_mw.message import Destination
from redeliver_mw.policy import RedeliveryPolicy

POLICY = RedeliveryPolicy(8, [1.0, 20.0], "queue:dlq.$")  # delays that are held, and delays that are not


@dataclass(frozen=True)
class AheadClock:
    """Is ahead of the machine's wall clock by so many seconds."""

    seconds: float

    def now(self) -> Moment:
        moment = SystemClock().now()
        return Moment(moment.mono, moment.wall + self.seconds)


def unique(name: str) -> str:
    return f"doctor.{name}.{uuid.uuid4().hex[:12]}"


def examined(url: str, source: str = "", policy: RedeliveryPolicy = POLICY, **options: Any) -> list[Finding]:
    """Return the findings about one source, or about none, and check their ids and cures."""
    sources = [Destination.parse(source)] if source else []
    found = examine(url, policies=policy, sources=sources, **options)
    check_form(found)
    return found


def check_form(found: Iterable[Finding]) -> None:
    """Check that each id is one that is listed, that each problem has a cure, and that nothing that is ok has one."""
    for one in found:
        if one.status in (FindingStatus.OK, FindingStatus.NOT_KNOWN):
            assert one.id in CHECKS
        else:
            assert one.id in {problem for problems in CHECKS.values() for problem in problems}
            assert one.cure
        assert one.reason
        assert one.subject
        assert not (one.status is FindingStatus.OK and one.cure)


def problems(found: Iterable[Finding]) -> dict[str, str]:
    """Return the ids of the findings that are warnings or wrong, with their subjects."""
    return {one.id: one.subject for one in found if one.status in (FindingStatus.WARNING, FindingStatus.WRONG)}


def the(found: Iterable[Finding], id_: str) -> Finding:
    [one] = [one for one in found if one.id == id_]
    return one


def unknown(found: Iterable[Finding]) -> set[str]:
    return {one.id for one in found if one.status is FindingStatus.NOT_KNOWN}
