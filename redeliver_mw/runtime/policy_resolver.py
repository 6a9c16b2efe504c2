# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Which of an app's policies a handler has: the URL's, else its own, else what is written above it, else the app's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..decorator import policy_on
from ..message import Destination
from ..policy import AnyPolicy, PolicyMap, RedeliveryPolicy, load_policies, policy_of
from ..policy.findings import HURRY, hurries_for_ever, meant_for, no_entry_for
from ..policy.policy_file import PolicyFile


class PolicyResolver:
    """`in_url`: the file that the broker URL names, or nothing. ConfigError for what is no policy."""

    def __init__(self, in_url: str | None, of_app: AnyPolicy | None, *, strict: bool = False) -> None:
        """`strict`: what a reader warns of is a PolicyError."""
        self._strict = strict
        self._files: dict[Path, PolicyFile] = {}
        self._of_app = None if of_app is None else self._meant(of_app)
        self._in_url = load_policies(in_url, strict=strict) if in_url else None

    def of(self, own: AnyPolicy | None, fn: Callable[..., Any]) -> RedeliveryPolicy | PolicyMap | PolicyFile:
        given = None if own is None else self._meant(own)
        return self._in_url or given or policy_on(fn) or self._of_app or RedeliveryPolicy()

    def _meant(self, policy: AnyPolicy) -> RedeliveryPolicy | PolicyMap | PolicyFile:
        """A file is read once however often it is named, so that all who name it change together."""
        if isinstance(policy, str):
            return load_policies(policy, strict=self._strict)
        if not isinstance(policy, Path):
            return policy_of(policy)
        path = policy.absolute()
        if path not in self._files:
            self._files[path] = PolicyFile(path, strict=self._strict)
        return self._files[path]


def near_miss(source: Destination, policy: RedeliveryPolicy | PolicyMap | PolicyFile) -> str:
    """Return a sentence if no entry is for a source, but one may have been meant for it; else an empty text."""
    policies = policy.policies if isinstance(policy, PolicyFile) else policy
    meant = meant_for(source, policies)
    return f"{no_entry_for(source, policies)}. {meant}" if meant else ""


def findings(policy: RedeliveryPolicy | PolicyMap | PolicyFile) -> list[str]:
    """Return what the reader of a policy found, each with the file that it is about."""
    if isinstance(policy, PolicyFile):
        return [f"{policy}: {warning}" for warning in policy.policies.warnings]
    return list(policy.warnings) if isinstance(policy, PolicyMap) else []


def findings_at(source: Destination, policy: RedeliveryPolicy | PolicyMap | PolicyFile) -> list[str]:
    """Return whether a source is tried for ever at once, and whether an entry may have been meant for it, if none is.

    Dead letters that go where they come from are refused by the start.
    """
    hurry = f"{source}: {HURRY}" if hurries_for_ever(policy.resolve(source.name, source.kind)) else ""
    return list(filter(None, [hurry, near_miss(source, policy)]))
