# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Which of an app's policies a handler has: the URL's, else its own, else what is written above it, else the app's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..decorator import policy_on
from ..policy import AnyPolicy, PolicyMap, RedeliveryPolicy, load_policies, policy_of
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
