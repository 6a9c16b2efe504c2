# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Which policy for which destination."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ..errors import ConfigError, PolicyError
from .model import RedeliveryPolicy


@dataclass(frozen=True, init=False)
class PolicyMap:
    """Policies by destination name. For now one for all: entries are a ConfigError until they are built."""

    default: RedeliveryPolicy

    def __init__(
        self,
        entries: Mapping[str, RedeliveryPolicy] | None = None,
        default: RedeliveryPolicy | None = None,
        *,
        syntax: Literal["activemq", "artemis"] = "activemq",
        match: Literal["best", "merge", "chain"] = "best",
    ) -> None:
        if entries:
            raise ConfigError(
                f"PolicyMap with entries is not built yet ({', '.join(list(entries)[:3])})",
                cure="Give each handler a policy of its own, and PolicyMap({}, default=...) to the rest",
            )
        object.__setattr__(self, "default", RedeliveryPolicy() if default is None else default)
        if not isinstance(self.default, RedeliveryPolicy):
            raise PolicyError(f"{default!r:.200} is no policy", where="default", cure="Give a RedeliveryPolicy")

    def resolve(self, name: str, kind: str = "queue") -> RedeliveryPolicy:
        """The policy for a destination; never None. Pure."""
        return self.default


def policy_of(given: str | Path | RedeliveryPolicy | PolicyMap | None) -> RedeliveryPolicy | PolicyMap:
    """What a user gave as a policy, as something with `.resolve(name, kind)`; None is the default policy.

    A `str` is a policy's text or a URL that carries one, a `Path` a file. PolicyError or ConfigError else.
    """
    if given is None:
        return RedeliveryPolicy()
    if isinstance(given, RedeliveryPolicy | PolicyMap):
        return given
    if isinstance(given, str | Path):
        from .loading import load_policies  # it makes PolicyMaps

        return load_policies(given)
    raise PolicyError(
        f"{given!r:.200} is no policy",
        cure="Give a policy's text, a RedeliveryPolicy, a PolicyMap, or the Path of a file",
    )
