# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Implements `limbo=`: a drop-in's database of parked messages, and a connection of its own that publishes them."""

from __future__ import annotations

import atexit
import threading
from typing import TYPE_CHECKING

from ..adapter.protocol import Adapter, OnAnswer
from ..adapter.registry import adapter_for
from ..clock import Clock, SystemClock
from ..message import Outgoing
from ..redelivery.copies import RetryTerms
from ..telemetry.hook import NO_TELEMETRY, TelemetryHook
from .companion import NullSink

if TYPE_CHECKING:
    from ..limbo.service import LimboService

GOODBYE = 2.0  # seconds, when the program ends


class DropinLimbo:
    """Runs the limbo of a drop-in: opened with the first source, closed with the program. Thread-safe.

    Due messages go out through an adapter for `publisher`. Its threads and the limbo's are none of the user's, so the
    messages go out also while the user's connection is closed. `driven`: by a clock that is moved by hand.
    """

    def __init__(
        self,
        url: str,
        publisher: str,
        app_name: str,
        *,
        clock: Clock | None = None,
        driven: bool = False,
        telemetry: TelemetryHook = NO_TELEMETRY,
    ) -> None:
        self._url, self._publisher, self._app_name = url, publisher, app_name
        self._telemetry = telemetry
        self._clock, self._driven = clock or SystemClock(), driven
        self._service: LimboService | None = None
        self._adapter: Adapter | None = None
        self._opening = threading.Lock()

    def open(self) -> None:
        """Open the database and start to publish what is due. The second call does nothing.

        Raises ConfigError or LimboError if the database cannot be had.
        """
        with self._opening:
            if self._service is not None:
                return
            from ..limbo.service import LimboService as Opened  # it brings SQLAlchemy along

            if self._adapter is None:  # one that was made for nothing is used by the next try
                self._adapter = adapter_for(self._publisher)
            listener = Opened(
                self._url,
                self._adapter,
                self._app_name,
                self._clock,
                driven=self._driven,
                sent=self._telemetry.parked_copy_answered,
            )
            listener.open()
            self._adapter.start(NullSink())
            listener.start()
            self._service = listener
            atexit.register(self.close)

    def close(self) -> None:
        """Finish what is being published, so that the next program need not wait for our lease."""
        with self._opening:
            listener, adapter = self._service, self._adapter
            self._service = self._adapter = None
        if listener is not None and adapter is not None:
            atexit.unregister(self.close)
            listener.close(GOODBYE)
            adapter.close(GOODBYE)

    def park(self, out: Outgoing, due: float, answer: OnAnswer, terms: RetryTerms | None = None) -> None:
        """Park a copy as `LimboService.park` does. The answer comes on a thread that is not the driver's."""
        listener = self._service
        if listener is None:
            return answer("refused", "the limbo is closed")
        listener.park(out, due, answer, terms)
