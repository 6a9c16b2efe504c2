# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Implements `publisher=`: a connection of our own for copies, beside the user's."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

from ..adapter.capabilities import Capabilities
from ..adapter.protocol import Adapter, OnAnswer
from ..adapter.registry import adapter_for, parse_url
from ..errors import ConfigError, RedeliverError
from ..message import Delivery, Destination, Outgoing
from .copy_publisher import CopyPublisher, IsAlive

log = logging.getLogger("redeliver_mw.dropin")


class NullSink:
    """Is the sink of an adapter that consumes nothing."""

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
    """Publishes through an adapter that consumes nothing. Methods from any thread; answers on the adapter's.

    An adapter whose first connect fails gives up. The next copy makes another adapter, after a wait that grows.
    """

    off_thread = True

    def __init__(self, url: str, dialect: str) -> None:
        """Keep the URL, and connect at the first copy. Raises ConfigError if the URL is not of `dialect`."""
        parsed = parse_url(url)
        if parsed.dialect != dialect:
            scheme = dialect.partition("+")[0]
            raise ConfigError(
                f"publisher= is no {scheme} here",
                where=parsed.text,
                cure=f"Give a {scheme}:// URL",
                code="publisher-url",
            )
        self._url = parsed
        self._adapter: Adapter | None = adapter_for(parsed)  # None: it was given up
        self._started = False
        self._logged = ""  # what was logged since it was last connected
        self._lock = threading.Lock()  # of the adapter in use

    def store(self, out: Outgoing, after: float, answer: OnAnswer, alive: IsAlive) -> None:
        if not alive():
            return answer("unsent", "the original was lost meanwhile")
        try:
            with self._lock:  # an adapter that is given up is asked for nothing any more
                self._running().publish(out, answer, after=after)
        except ConfigError as error:  # a file of certificates has changed
            answer("unsent", str(error))
        return None

    def _running(self) -> Adapter:
        if self._adapter is None:
            self._adapter, self._started = adapter_for(self._url), False
        if not self._started:
            self._started = True
            self._adapter.start(self)
        return self._adapter

    def connected(self, capabilities: Capabilities, /) -> None:
        self._logged = ""

    def failed(self, error: RedeliverError, source: Destination | None, /) -> None:
        if str(error) != self._logged:
            self._logged = str(error)
            super().failed(error, source)
        # Not on this thread, which is the adapter's own. Its copies are answered, and tried again by who asked.
        threading.Thread(target=self.close, args=(1.0,), name="redeliver-companion-close", daemon=True).start()

    def close(self, timeout: float = 5.0) -> None:
        with self._lock:
            adapter, self._adapter = self._adapter, None
        if adapter is not None:
            adapter.close(timeout)
