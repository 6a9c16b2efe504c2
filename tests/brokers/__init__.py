# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Gives real brokers to the tests: `with broker("rabbitmq", version="4.3") as b: …`.

A broker is taken from the environment where a variable names one, else it is installed here and started on free ports
of 127.0.0.1. What we start ends with this process, however that ends. Each broker is a module, named in `KINDS`,
with `VERSIONS`, `open_broker(version, …)`, `fetch(version)`, and `FETCHED` where `fetch` gets not all of them unasked.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from tests.brokers import activemq, artemis, rabbitmq
from tests.brokers._broker import Broker
from tests.brokers._install import BrokerMissing
from tests.brokers._process import BrokerFailed

__all__ = ["KINDS", "Broker", "BrokerFailed", "BrokerMissing", "broker"]

KINDS: dict[str, ModuleType] = {"activemq": activemq, "artemis": artemis, "rabbitmq": rabbitmq}


def broker(kind: str, *, version: str | None = None, **options: Any) -> Broker:
    """Return a usable broker; `version` is one of the module's `VERSIONS`, the first if not given.

    `options` are those of the module's own broker (RabbitMQ has none).

    Raises BrokerMissing, with reason and cure, where no broker can be had; BrokerFailed, with the broker's log, where
    it would not start.
    """
    module = KINDS[kind]
    version = version or module.VERSIONS[0]
    if version not in module.VERSIONS:
        raise ValueError(f"{kind}: version {version!r} is not one of {', '.join(module.VERSIONS)}")
    opened: Broker = module.open_broker(version, **options)
    return opened
