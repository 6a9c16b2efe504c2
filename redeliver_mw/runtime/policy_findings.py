# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Decides which findings in an app's policies are refused, at its start and whenever a policy file changes. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..message import Destination
from ..policy import PolicyMap, RedeliveryPolicy
from ..policy.findings import doubts, hot_loops, refuse
from ..policy.policy_file import PolicyFile

_ALLOW = "If that is meant, write App(allow_hot_loop=True)"


@dataclass(frozen=True, slots=True)
class FindingRules:
    """Decides which findings are refused.

    `strict`: all of them. `allow_hot_loop`: endless retries without a delay are accepted.
    """

    strict: bool = False
    allow_hot_loop: bool = False

    def check(
        self, policies: RedeliveryPolicy | PolicyMap | PolicyFile, sources: Iterable[Destination], where: str = ""
    ) -> list[str]:
        """Return what is to be logged about policies, and about their effect at these sources.

        Raises PolicyError for the refused ones.

        `where` is the file of the policies; a PolicyFile knows its own.
        """
        if isinstance(policies, PolicyFile):
            return self.check(policies.policies, sources, str(policies))
        sources = list(sources)
        hot, doubted = hot_loops(sources, policies), doubts(sources, policies)
        if hot and not self.allow_hot_loop:
            # An element that the reader skipped may be the reason for the hot loop.
            refuse([*doubted, *(f"{text}. {_ALLOW}" for text in hot)], where)
        if self.strict:
            refuse(doubted, where)
        return [f"{where}: {text}" if where else text for text in (*doubted, *hot)]
