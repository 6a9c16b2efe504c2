# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Adapts writers of languages that have one policy for all messages of a source, and so no arms. Pure."""

from __future__ import annotations

from dataclasses import replace

from ..destinations import MapEntry, PolicyMap
from ..model import RedeliveryPolicy
from .format_protocol import Conversion, FormatWriter


def without_arms(write: FormatWriter) -> FormatWriter:
    """Return the writer, changed to leave out arms and list them as lost."""

    def written(policies: PolicyMap) -> Conversion:
        lost: list[str] = []
        found = write(_plain(policies, lost))
        return replace(found, lost=(*lost, *found.lost))

    return written


def _plain(policies: PolicyMap, lost: list[str]) -> PolicyMap:
    default = _alone(policies.default, "default", lost)
    entries = [_entry(entry, lost) for entry in policies.entries]
    if not lost:
        return policies
    return PolicyMap(
        entries,
        default,
        syntax=policies.syntax,
        match=policies.match,
        build=policies.build,
        language=policies.language,
        native=policies.native,
        warnings=policies.warnings,
    )


def _entry(entry: MapEntry, lost: list[str]) -> MapEntry:
    if isinstance(entry.given, RedeliveryPolicy):
        return replace(entry, given=_alone(entry.given, str(entry), lost))
    arms = entry.given.get("arms")
    if not arms:
        return entry
    lost += [_lost(str(entry), name) for name in arms]
    return replace(entry, given={name: given for name, given in entry.given.items() if name != "arms"})


def _alone(policy: RedeliveryPolicy, where: str, lost: list[str]) -> RedeliveryPolicy:
    lost += [_lost(where, str(arm)) for arm in policy.arms]
    return policy.alone


def _lost(where: str, arm: str) -> str:
    return f"{where}: the arm {arm}: all messages of a source are under one policy"
