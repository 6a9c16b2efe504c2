# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Holds what a round needs of a broker and its driver.

Messages are made of bytes, sent raw, read raw, and consumed by a drop-in.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

from redeliver_mw.limbo import Parked
from tests.brokers import Broker
from tests.hostile.texts import CASE

N = TypeVar("N", str, bytes)
Handle = Callable[[bytes], None]  # given all of a message in which its case can be found; raises what it raises


@dataclass(frozen=True)
class Made:
    """Holds a message before it is sent.

    `wire` is the carrier's own; `user` names the headers that are the user's.
    """

    case: str
    wire: Any
    body: bytes
    user: frozenset[bytes]
    about: str


@dataclass(frozen=True)
class Found:
    """Holds a message as a bare client reads it: names and values of headers as they stand on the wire."""

    body: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    raw: bytes = b""

    @property
    def case(self) -> str:
        """Return the case of a message, or an empty text if the message is none of ours, or has lost its case."""
        seen = CASE.search(self.body) or next((c for _, v in self.headers if (c := CASE.search(v))), None)
        return seen[1].decode() if seen else ""

    def of_the_user(self, names: frozenset[bytes]) -> list[tuple[bytes, bytes]]:
        return sorted(pair for pair in self.headers if pair[0] in names)


@dataclass(frozen=True)
class Limits:
    """Says how hostile messages may be. With `too_large` there are also those whose headers cannot be copied."""

    largest: int = 1 << 16
    too_large: bool = False


class Carrier(ABC):
    """Reaches one broker through one driver. Used by one thread."""

    scheme: str
    driver: str
    has_dropin = True

    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    @property
    def url(self) -> str:
        scheme, _, rest = self.broker.url.partition("://")
        return f"{self.scheme or scheme}://{rest}"

    @abstractmethod
    def make(self, queue: str, rng: Random) -> None:
        """Declare a queue, of a kind that `rng` chooses."""

    @abstractmethod
    def delete(self, queue: str) -> None: ...

    @abstractmethod
    def message(self, rng: Random, case: str, limits: Limits) -> Made:
        """Make a hostile message. `case` is in its body, or in a header, or in both."""

    @abstractmethod
    def healthy(self, case: str) -> Made: ...

    @abstractmethod
    def send(self, queue: str, made: Made) -> str:
        """Send a message, and wait for the broker's answer.

        The returned text is what the broker said instead of yes; it is empty if the broker has the message.
        """

    @abstractmethod
    def take(self, queue: str) -> list[Found]:
        """Take all messages of a queue, and return them."""

    @abstractmethod
    def depth(self, queue: str) -> int: ...

    @abstractmethod
    def readable(self, made: Made) -> bool:
        """Return whether the bare driver can read a message: a drop-in is not given what its driver fails on."""

    def parked(self, row: Parked) -> Found:
        """Return a parked message as a bare client will read it once it is published."""
        return Found(row.out.body, ())

    def as_the_driver_reads(self, wire: bytes) -> object:
        """Return a header's value, as far as a drop-in can keep it: it has what the driver has read, and no more."""
        return wire

    @abstractmethod
    def dropin(self, queue: str, handle: Handle, options: Mapping[str, Any]) -> AbstractContextManager[None]:
        """Run the driver's own consumer with a drop-in around its callback, as long as the context lasts."""

    @abstractmethod
    def close(self) -> None: ...


def body_for(rng: Random, case: str, largest: int) -> bytes:
    """Return bytes with the case at their begin; sometimes text, sometimes as much as the broker takes."""
    mark = f"case={case};".encode()
    size = rng.choice((0, 0, 10, 1000, 1000, 70_000, largest)) if rng.random() < 0.5 else rng.randrange(2000)
    size = min(size, max(0, largest - len(mark)))
    if size > 1 << 17:
        return mark + b"\0\xff\x1b[2J" * (size // 6) + b"x" * (size % 6)
    kind = rng.randrange(4)
    if kind == 0:
        return mark + rng.randbytes(size)
    if kind == 1:
        return mark + (b"\x1b[31m\x9b2J\0\r\n{}" * (size // 14 + 1))[:size]
    if kind == 2:
        return mark + ("grüße \u202e 🐇 password=Zq9S3cr3tbody " * (size // 40 + 1)).encode()[:size]
    return mark


def fitting(
    entries: list[tuple[N, bytes]], most: int, size: Callable[[tuple[N, bytes]], int], kept: N
) -> list[tuple[N, bytes]]:
    """Return as many of the headers as have room in `most` bytes; the one that is named `kept` in any case."""
    left = most - sum(size(entry) for entry in entries if entry[0] == kept)
    found = []
    for entry in entries:
        need = 0 if entry[0] == kept else size(entry)
        if need <= left:
            found.append(entry)
            left -= need
    return found
