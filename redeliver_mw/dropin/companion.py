# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""`publisher=`: a connection of our own for copies, beside the user's."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

from ..adapter.capabilities import Capabilities
from ..adapter.protocol import OnAnswer
from ..adapter.registry import adapter_for, parse_url
from ..errors import ConfigError, RedeliverError
from ..message import Delivery, Destination, Outgoing
from .copy_publisher import CopyPublisher, IsAlive

log = logging.getLogger("redeliver_mw.dropin")


class NullSink:
    """The sink of an adapter that consumes nothing."""

    def connected(self, capabilities: Capabilities, /) -> None:
        pass

    def ready(self, source: Destination, generation: int, /) -> None:
        pass

    def arrived(self, batch: Sequence[Delivery], /) -> None:
        pass

    def lost(self, generation: int, error: BaseException | None, /) -> None:
        pass

    def failed(self, error: RedeliverError, source: Destination | None, /) -> None:
        log.error("copies cannot go out: %s", error)


class CompanionPublisher(CopyPublisher, NullSink):
    """Publishes through an adapter that consumes nothing. Methods from any thread; answers on the adapter's."""

    elsewhere = True

    def __init__(self, url: str, dialect: str) -> None:
        """ConfigError when the URL is not of `dialect`. Connects at the first copy."""
        parsed = parse_url(url)
        if parsed.dialect != dialect:
            scheme = dialect.partition("+")[0]
            raise ConfigError(f"publisher= is no {scheme} here", where=parsed.text, cure=f"Give a {scheme}:// URL")
        self._adapter = adapter_for(parsed)
        self._started = False
        self._starting = threading.Lock()

    def store(self, out: Outgoing, after: float, answer: OnAnswer, alive: IsAlive) -> None:
        with self._starting:
            if not self._started:
                self._started = True
                self._adapter.start(self)
        if alive():
            self._adapter.publish(out, answer, after=after)
        else:
            answer("unsent", "the original was lost meanwhile")

    def close(self, timeout: float = 5.0) -> None:
        self._adapter.close(timeout)
