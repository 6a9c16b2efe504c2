# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Provides `@redeliver(policy)`, which puts a policy on a handler and does nothing else."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from .errors import ConfigError
from .policy import PolicyMap, RedeliveryPolicy, policy_of

ATTRIBUTE = "__redelivery_policy__"
F = TypeVar("F", bound=Callable[..., Any])


def redeliver(policy: str | Path | RedeliveryPolicy | PolicyMap) -> Callable[[F], F]:
    """Mark a handler with its policy: any policy text, a RedeliveryPolicy or a PolicyMap.

    The function is unchanged: same object, same behaviour, plain or async. `App` and the wrappers read the mark. Raises
    PolicyError here, not at the first failure, if the text cannot be read.
    """
    if callable(policy) and not isinstance(policy, RedeliveryPolicy | PolicyMap):
        raise ConfigError(
            "@redeliver without a policy", cure='Write @redeliver("3:1000; 8:move(queue:dlq.$)")', code="policy-missing"
        )
    meant = policy_of(policy)

    def mark(handler: F) -> F:
        try:
            setattr(handler, ATTRIBUTE, meant)
        except AttributeError:
            raise ConfigError(
                f"{handler!r:.200} cannot be marked", cure="Decorate the function itself", code="callback-not-usable"
            ) from None
        return handler

    return mark


def policy_on(handler: object) -> RedeliveryPolicy | PolicyMap | None:
    """Return the policy that a handler is marked with, also through partials and bound methods, or None."""
    while True:
        found = getattr(handler, ATTRIBUTE, None)
        if isinstance(found, RedeliveryPolicy | PolicyMap):
            return found
        if not isinstance(handler, functools.partial):
            break
        handler = handler.func
    call = vars(type(handler)).get("__call__")  # an object whose class marked its __call__
    found = getattr(call, ATTRIBUTE, None)
    return found if isinstance(found, RedeliveryPolicy | PolicyMap) else None
