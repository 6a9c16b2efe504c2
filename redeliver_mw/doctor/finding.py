# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Defines what a finding is, and which there are.

A check has one name. A finding that is ok or not known has the name of its check as id; a finding of a problem has the
id of the problem, so that a program can tell problems of one check apart. Ids are stable from release to release.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final


class FindingStatus(StrEnum):
    """Lists what a check can find."""

    OK = "ok"
    WARNING = "warning"  # may lose or delay messages under circumstances that the reason names
    WRONG = "wrong"  # will lose or delay messages, or keeps redelivery from working
    NOT_KNOWN = "not known"  # nothing was seen that shows it


# Every check, with the problems that it can find.
CHECKS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "broker-version": ("broker-version-untried",),
        "connections": ("connections-limited",),
        "alarm": ("alarm-raised",),
        "persistence": ("persistence-off",),
        "journal-sync": ("journal-sync-off",),
        "scheduler": ("scheduler-off",),
        "copy-expiry": ("copies-expire",),
        "copy-persistence": ("copies-not-persistent",),
        "frame-size": ("frame-size-small",),
        "policy": (),
        "source": (),
        "queue-settings": (),
        "durability": ("queue-not-durable", "queue-vanishes"),
        "copy-loss": ("copies-lost",),
        "length-limit": ("length-limit-drops", "length-limit-refuses"),
        "time-to-live": ("source-ttl", "target-ttl"),
        "dead-letter-target": ("dead-letter-target-missing", "dead-letter-target-topic"),
        "dead-letter-cycle": ("dead-letter-loop", "dead-letters-come-back"),
        "broker-dead-letters": ("broker-dead-letters-lost", "dead-letter-strategy-without-effect"),
        "delivery-limit": ("delivery-limit-below-policy", "delivery-limit-deletes", "delivery-limit-on-target"),
        "consumer-timeout": ("consumer-timeout-below-hold", "consumer-timeout-short"),
        "longest-delay": ("delay-not-possible",),
        "broker-delay": ("broker-delays-returns", "broker-delay-without-effect"),
        "permission": ("permission-missing",),
        "credentials": ("credentials-not-checked",),
        "clock": ("clock-skew",),
        "tls": ("tls-off", "tls-not-verified", "tls-certificate-expires", "tls-management-off"),
        "instrumentation": ("instrumentation-changes-copies",),
        "limbo": ("limbo-not-reachable", "limbo-other-release", "limbo-not-usable"),
        "limbo-clock": ("limbo-clock-skew",),
    }
)


@dataclass(frozen=True, slots=True)
class Finding:
    """Describes what one check has found about one subject, why that matters, and the cure; none if it is ok."""

    id: str
    status: FindingStatus
    subject: str
    reason: str
    cure: str = ""


def ok(check: str, subject: str, reason: str) -> Finding:
    """Return the finding that a check has found nothing wrong."""
    return Finding(check, FindingStatus.OK, subject, reason)


def not_known(check: str, subject: str, reason: str, cure: str = "") -> Finding:
    """Return the finding that a check could not see what it looks for."""
    return Finding(check, FindingStatus.NOT_KNOWN, subject, reason, cure)


def warning(problem: str, subject: str, reason: str, cure: str) -> Finding:
    """Return the finding of a problem under circumstances that `reason` names."""
    return Finding(problem, FindingStatus.WARNING, subject, reason, cure)


def wrong(problem: str, subject: str, reason: str, cure: str) -> Finding:
    """Return the finding of a problem that will act."""
    return Finding(problem, FindingStatus.WRONG, subject, reason, cure)


def is_wrong(findings: Iterable[Finding]) -> bool:
    """Return whether something is wrong; warnings and what is not known do not count."""
    return any(finding.status is FindingStatus.WRONG for finding in findings)


def seconds(value: float) -> str:
    """Return a time for people: milliseconds below a second."""
    return f"{value * 1000:g} ms" if 0 < value < 1 else f"{value:g} s"
