# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Provides redelivery policies for consumers of ActiveMQ, RabbitMQ and Artemis.

Names are loaded when they are first used, so that importing this package costs next to nothing and needs no
driver, no SQLAlchemy and no command line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .app import App
    from .context import current_delivery
    from .decorator import redeliver
    from .errors import Reject, RetryAfter
    from .flow.breaker import Breaker
    from .flow.ordering import Order
    from .idempotency import Idempotency
    from .message import Delivery, Destination, Outgoing
    from .policy import PolicyMap, RedeliveryPolicy, load_policies
    from .session import connect

    __version__: str

__all__ = [
    "App",
    "Breaker",
    "Delivery",
    "Destination",
    "Idempotency",
    "Order",
    "Outgoing",
    "PolicyMap",
    "RedeliveryPolicy",
    "Reject",
    "RetryAfter",
    "connect",
    "current_delivery",
    "load_policies",
    "redeliver",
]

_HOME = {
    "App": "app",
    "Breaker": "flow.breaker",
    "Delivery": "message",
    "Destination": "message",
    "Idempotency": "idempotency",
    "Order": "flow.ordering",
    "Outgoing": "message",
    "PolicyMap": "policy",
    "RedeliveryPolicy": "policy",
    "Reject": "errors",
    "RetryAfter": "errors",
    "connect": "session",
    "current_delivery": "context",
    "load_policies": "policy",
    "redeliver": "decorator",
}


if not TYPE_CHECKING:  # a type checker that saw it would let every misspelt name pass

    def __getattr__(name: str) -> Any:
        """Return a public name's value on its first use; from then on the name is an ordinary attribute (PEP 562)."""
        if name == "__version__":
            from importlib.metadata import version

            value: Any = version("redeliver-mw")
        elif name in _HOME:
            from importlib import import_module

            value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})
