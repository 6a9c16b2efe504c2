# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""A policy in words. They go into headers and into its version, so they are the same in every process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .expiry import Expiry

if TYPE_CHECKING:
    from .model import RedeliveryPolicy


def describe(policy: RedeliveryPolicy) -> str:
    """What it does, in one line."""
    rules = [f"{policy.stop}", f"rest {policy.backoff}"]
    rules += [", ".join(map(str, policy.targets)) or policy.on_dead]
    for key, rule in (("retry on", policy.retry_on), ("fatal", policy.fatal), ("ignore", policy.ignore)):
        rules += [f"{key} {rule}"] if rule is not None else []
    rules += [f"expired: {policy.expiry}"] if policy.expiry != Expiry() else []
    rules += ["acts at arrival"] if policy.act == "arrival" else []
    rules += [f"arm {arm}: {describe(arm.policy)}" for arm in policy.arms]
    return "; ".join(rules)


def counted(number: int, noun: str) -> str:
    """`1 failure`, `2 failures`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
