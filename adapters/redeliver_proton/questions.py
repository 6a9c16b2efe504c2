# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Asks on the loop's thread and waits for the answer on the caller's, for whoever has time to wait."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import Any, Literal

import proton

from redeliver_mw.errors import BrokerUnavailable
from redeliver_proton.loop import CallLoop
from redeliver_proton.wire import refusal

PATIENCE = 15.0  # seconds; a management gives up before that
_numbers = itertools.count(1)


class LoopQuestions:
    """Asks questions of one connection, one after the other. Not for the loop's thread."""

    def __init__(self, loop: CallLoop, connection: proton.Connection) -> None:
        self.loop, self.connection = loop, connection

    def wait(self, ask: Callable[[Callable[[Any], None]], object], patience: float = PATIENCE) -> Any:
        """Return what `ask` is answered; it is called on the loop's thread. Raises BrokerUnavailable."""
        answered: Future[Any] = Future()

        def answer(found: Any) -> None:
            with suppress(InvalidStateError):  # only the first answer counts
                answered.set_result(found)

        def asking() -> None:
            try:
                ask(answer)
            except proton.ProtonException as error:  # the connection is closed
                answer(error)

        self.loop.call(asking)
        try:
            found = answered.result(patience)
        except TimeoutError:
            raise BrokerUnavailable("the broker does not answer", code="broker-timeout") from None
        if isinstance(found, proton.ProtonException):
            raise BrokerUnavailable(f"the connection was lost: {found}", code="connection-lost")
        return found

    def refused(self, role: Literal["receiver", "sender"], address: str, capability: str = "") -> str:
        """Return why a link cannot be attached to an address; empty if it can. No message goes either way."""
        found: str = self.wait(lambda answer: _LinkTrial(self.connection, role, address, capability, answer))
        return found


class _LinkTrial(proton.Handler):
    """Attaches a link without credit in a session of its own, and ends the session; the answer is the refusal."""

    def __init__(
        self, connection: proton.Connection, role: str, address: str, capability: str, answer: Callable[[str], None]
    ) -> None:
        self._answer, self._refused = answer, ""
        session = self._session = connection.session()
        session.handler = self
        session.open()
        name = f"redeliver-doctor-{next(_numbers)}-{id(self):x}"
        link = self._link = session.receiver(name) if role == "receiver" else session.sender(name)
        end = link.source if role == "receiver" else link.target
        end.address = address
        if capability:
            end.capabilities.put_object(proton.symbol(capability))
        link.open()

    def on_link_remote_open(self, event: Any) -> None:
        """Close the session.

        A refused link is opened first, and closed at once: the end of the session comes after both.
        """
        self._session.close()

    def on_link_remote_close(self, event: Any) -> None:
        if event.link.remote_condition is not None:
            self._refused = self._refused or str(refusal(event.link.remote_condition))

    on_link_remote_detach = on_link_remote_close

    def on_session_remote_close(self, event: Any) -> None:
        if event.session.remote_condition is not None:
            self._refused = self._refused or str(refusal(event.session.remote_condition))
        event.session.close()
        event.session.handler = None
        self._answer(self._refused)
