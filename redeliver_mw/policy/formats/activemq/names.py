# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Reads which destinations an entry of one of ActiveMQ's maps is for. Pure."""

from __future__ import annotations

from ....errors import PolicyError
from ....message import DestinationKind
from ...patterns import pattern_of
from ..xml import Element
from .options import ReportProblem

IDENTITY = ("queue", "topic", "tempQueue", "tempTopic", "id")
_KINDS: tuple[DestinationKind, ...] = ("queue", "topic")


def names_of(entry: Element, report: ReportProblem) -> list[tuple[str, DestinationKind]]:
    """Return patterns with their kinds; commas separate several.

    For temporary destinations return nothing, and warn.
    """
    found = [(entry.attributes[kind], kind) for kind in _KINDS if kind in entry.attributes]
    destination = entry.first("destination")
    for child in destination.children if destination else []:
        found += [(child.attributes.get("physicalName", ""), kind) for kind in _KINDS if child.name == kind]
    if not found:
        if "tempQueue" in entry.attributes or "tempTopic" in entry.attributes:
            report.problems.warn(f"{entry.where}: temporary destinations are not consumed here")
        else:
            report.problems.add(
                "it does not say for which destination",
                where=entry.where,
                cure='Write queue="..." or topic="..."',
                code="policy-key-missing",
            )
    names = [_one(part, kind) for text, kind in found for part in text.split(",")]
    return [(name, kind) for name, kind in dict.fromkeys(names) if _is_pattern(name, entry, report)]


def _one(part: str, kind: DestinationKind) -> tuple[str, DestinationKind]:
    name = part.strip()
    for other in _KINDS:
        if name.startswith(f"{other}://"):
            return name.removeprefix(f"{other}://"), other
    return name, kind


def _is_pattern(name: str, entry: Element, report: ReportProblem) -> bool:
    try:
        pattern_of(name, "activemq")
    except PolicyError as error:
        report.problems.take(error, where=entry.where)
        return False
    return True
