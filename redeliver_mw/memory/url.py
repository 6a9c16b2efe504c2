# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Resolves `memory://NAME?personality=rabbitmq`: the same name is the same broker everywhere in this process.

Nobody sets such a broker up, so it makes the queues that are asked for; with `App(declare="none")` it does not.
"""

from __future__ import annotations

import threading
from urllib.parse import parse_qsl, urlsplit

from ..errors import ConfigError
from .adapter import MemoryAdapter
from .broker import MemoryBroker

_brokers: dict[str, MemoryBroker] = {}
_lock = threading.Lock()
_DEFAULT = "default"


def register_broker(name: str, broker: MemoryBroker) -> None:
    """Make `memory://NAME` mean this broker from now on; an empty name is the default broker."""
    with _lock:
        _brokers[name or _DEFAULT] = broker


def broker_from_url(url: str) -> MemoryBroker:
    """Return the broker of this URL, made at the first call.

    Raises ConfigError if the URL contradicts the existing broker.
    """
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    wanted = options.pop("personality", None)
    if parts.scheme != "memory" or options:
        what = f"does not know {', '.join(options)}" if options else "does not begin with memory://"
        raise ConfigError(
            f"the URL {what}", where=url, cure="Write memory://NAME?personality=rabbitmq", code="broker-url-syntax"
        )
    name = parts.netloc or _DEFAULT
    with _lock:
        broker = _brokers.get(name)
        if broker is None:
            broker = _brokers[name] = MemoryBroker(wanted or "rabbitmq", name=name, makes_queues=True)
    if wanted not in (None, broker.ways.name):
        cure = "Take another name for another personality"
        raise ConfigError(
            f"the broker {name} plays {broker.ways.name}, not {wanted}", where=url, cure=cure, code="broker-url-option"
        )
    return broker


def adapter_from_url(url: str) -> MemoryAdapter:
    """Return an adapter on the broker of this URL."""
    return MemoryAdapter(broker_from_url(url))
