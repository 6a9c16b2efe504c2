# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Measures how fast ActiveMQ lets go of messages: a bare socket reads nothing of them but the ids for its acks.

    python -m tests.bench.activemq_acks [--rounds 7] [--messages 10000]

The prefetch is 500. The acks are sent one by one, in batches, and in batches that are a transaction each. No consumer
gets more out of this broker on this machine, in whatever language it is written. A first round, which warms the JVM,
does not count. The medians are printed with the least and the most, in Markdown.
"""

from __future__ import annotations

import argparse
import re
import socket
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from tests.bench.asked import VENV, Asked
from tests.bench.rounds import Case
from tests.bench.side import Task

_ACK = re.compile(rb"\nack:([^\n]*)\n")


class Way(NamedTuple):
    """Says how many acks are written at once, and whether they are a transaction."""

    together: int
    transaction: bool = False

    def __str__(self) -> str:
        return f"acks by {self.together}{', each time a transaction' if self.transaction else ''}"

    def frames(self, ids: Sequence[bytes], number: int) -> bytes:
        if not self.transaction:
            return b"".join(b"ACK\nid:%b\n\n\0" % one for one in ids)
        within = b"transaction:%d\n\n\0" % number
        return b"BEGIN\n" + within + b"".join(b"ACK\nid:%b\n" % one + within for one in ids) + b"COMMIT\n" + within


WAYS = (Way(1), Way(64), Way(64, True), Way(128, True))  # more than 200 it may not page in before it hears of some


def rate(task: Task, way: Way) -> float:
    """Return the messages per second, from the subscription until the broker has received the last ack."""
    at = urlsplit(task.url)
    login, passcode = unquote(at.username or "").encode(), unquote(at.password or "").encode()
    with socket.create_connection((at.hostname, at.port or 61613), 10) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(b"CONNECT\naccept-version:1.2\nhost:bench\nlogin:%b\npasscode:%b\n\n\0" % (login, passcode))
        unread = connection.recv(65536)
        assert b"CONNECTED" in unread, unread
        began = time.perf_counter()
        connection.sendall(
            b"SUBSCRIBE\nid:1\ndestination:/queue/%b\nack:client-individual\nactivemq.prefetchSize:%d\n\n\0"
            % (task.queue.encode(), task.prefetch)
        )
        left, waiting, number = task.messages, [], 0
        while left:
            data = connection.recv(65536)
            assert data, "the broker closed the connection"
            unread += data
            end = 0
            for found in _ACK.finditer(unread):
                waiting.append(found[1])
                left, end = left - 1, found.end()
            unread = unread[end:]
            while len(waiting) >= way.together or (waiting and not left):
                number += 1
                connection.sendall(way.frames(waiting[: way.together], number))
                del waiting[: way.together]
        connection.sendall(b"DISCONNECT\nreceipt:bye\n\n\0")
        while b"receipt-id:bye" not in unread:
            unread += connection.recv(65536)
        return task.messages / (time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--messages", type=int, default=10_000)
    told = parser.parse_args()
    rates: dict[Way, list[float]] = defaultdict(list)
    with Asked(told.rounds, told.messages, 0, ("activemq",), VENV).ground("activemq") as at:
        for number in range(told.rounds + 1):
            for way in WAYS:
                with tempfile.TemporaryDirectory() as scratch:
                    task = at.task(Case(told.messages), Path(scratch))
                    at.bench.fill(task)
                    found = rate(task, way)
                if number:
                    rates[way].append(found)
    print("| | messages per second |\n|---|---:|")
    for way, values in rates.items():
        print(f"| {way} | {statistics.median(values):,.0f} ({min(values):,.0f} to {max(values):,.0f}) |")


if __name__ == "__main__":
    main()
