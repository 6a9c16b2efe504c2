# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Runs a transaction by the bare driver, which shares nothing with the adapter."""

from __future__ import annotations

from typing import Any

import proton
from proton.handlers import MessagingHandler, TransactionHandler


class Transaction(MessagingHandler, TransactionHandler):
    """Takes one message and sends one in a transaction, and ends that as `end` says.

    `end` is `commit` or `abort`; with any other text the transaction is left, and the connection closed.
    """

    def __init__(self, url: str, source: str, target: str, end: str) -> None:
        MessagingHandler.__init__(self, prefetch=1, auto_accept=False)
        self._url, self._source, self._target, self._end = url, source, target, end
        self._transaction: Any = None
        self._delivery: Any = None

    def on_start(self, event: Any) -> None:
        self._container = event.container
        self._connection = self._container.connect(self._url, reconnect=False, allowed_mechs="PLAIN")
        self._sender = self._container.create_sender(self._connection, self._target)
        self._container.create_receiver(self._connection, self._source)

    def on_message(self, event: Any) -> None:
        self._delivery = event.delivery
        self._container.declare_transaction(self._connection, handler=self)

    def on_transaction_declared(self, event: Any) -> None:
        self._transaction = event.transaction
        self._transaction.send(self._sender, proton.Message(body=b"m", durable=True))

    def on_settled(self, event: Any) -> None:
        if event.link == self._sender:
            self._transaction.accept(self._delivery)
            if self._end == "commit":
                self._transaction.commit()
            elif self._end == "abort":
                self._transaction.abort()
            else:
                self._connection.close()

    def on_transaction_committed(self, event: Any) -> None:
        self._delivery.settle()
        self._connection.close()

    def on_transaction_aborted(self, event: Any) -> None:
        self._connection.close()
