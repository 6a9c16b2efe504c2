# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Decide which findings in an app's policies are refused, at its start and whenever a policy file changes. Pure."""

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
    """Says which findings are refused.

    `strict`: all of them. `allow_hot_loop`: endless retries without a delay are not.
    """

    strict: bool = False
    allow_hot_loop: bool = False

    def check(
        self, policies: RedeliveryPolicy | PolicyMap | PolicyFile, sources: Iterable[Destination], where: str = ""
    ) -> list[str]:
        """Return what is to be logged of policies and of what they come to at these sources. PolicyError.

        `where` is the file that they are from; a PolicyFile knows its own.
        """
        if isinstance(policies, PolicyFile):
            return self.check(policies.policies, sources, str(policies))
        sources = list(sources)
        hot, doubted = hot_loops(sources, policies), doubts(sources, policies)
        if hot and not self.allow_hot_loop:
            # an element that the reader passed over may be why it is one
            refuse([*doubted, *(f"{text}. {_ALLOW}" for text in hot)], where)
        if self.strict:
            refuse(doubted, where)
        return [f"{where}: {text}" if where else text for text in (*doubted, *hot)]
