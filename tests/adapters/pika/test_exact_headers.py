# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests deliveries in one step: whatever comes, in whatever pieces, consumers are called as pika would call them."""

from __future__ import annotations

import logging
from typing import Any

import pika
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pika import frame, spec
from pika.callback import CallbackManager
from pika.channel import Channel

from redeliver_pika.amqp import exact_headers
from redeliver_pika.amqp.exact_headers import ExactFrames
from redeliver_pika.amqp.properties import RawProperties

Call = tuple[Any, ...]


class Bare(pika.connection.Connection):
    """Works as pika's connection does from the socket's bytes on, without a socket."""

    def __init__(self) -> None:
        self.callbacks = CallbackManager()
        self._frame_buffer, self._channels, self._heartbeat_checker = b"", {}, None
        self.bytes_received = self.frames_received = 0
        self.calls: list[Call] = []
        for number in (1, 2):
            channel = self._channels[number] = Channel(self, number, lambda _: None)
            channel._consumers = {"one": self._consumer("one"), "zwölf": self._consumer("zwölf")}
            channel._cancelled = {"cancelled"}
            channel._consumers_with_noack = {"cancelled"}

    def _consumer(self, name: str) -> Any:
        def called(channel: Any, method: Any, properties: Any, body: bytes) -> None:
            assert method.consumer_tag == name
            told = (method.delivery_tag, method.redelivered, method.exchange, method.routing_key)
            self.calls.append((channel.channel_number, name, told, properties.message_id, properties.headers, body))

        return called


Bare.__abstractmethods__ = frozenset()


class Direct(ExactFrames, Bare):
    pass


NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
DELIVERIES = st.tuples(
    st.sampled_from([1, 2]),
    st.sampled_from(["one", "zwölf", "cancelled", "nobody"]),
    st.integers(1, 2**40),
    st.booleans(),
    NAMES,
    NAMES,
    st.none() | NAMES,
    st.binary(max_size=300),
    st.integers(1, 200),
)


def frames_of(given: Call) -> list[bytes]:
    """Return the frames of a delivery, with its body in parts of the size that comes last in `given`."""
    number, consumer, tag, redelivered, exchange, key, message_id, body, part = given
    properties = RawProperties.of(message_id=message_id, headers={"a": "b"})
    method = spec.Basic.Deliver(consumer, tag, redelivered, exchange, key)
    parts = [body[at : at + part] for at in range(0, len(body), part)]
    return [
        frame.Method(number, method).marshal(),
        frame.Header(number, len(body), properties).marshal(),
        *(frame.Body(number, one).marshal() for one in parts),
    ]


@given(
    deliveries=st.lists(DELIVERIES, max_size=12),
    between=st.lists(st.integers(0, 3), max_size=12),
    cuts=st.lists(st.integers(1, 400), min_size=1, max_size=30),
)
def test_consumers_are_called_as_pika_calls_them(deliveries: list[Call], between: list[int], cuts: list[int]) -> None:
    logging.getLogger("pika").setLevel(logging.CRITICAL)
    pieces: list[bytes] = []
    for n, one in enumerate(deliveries):
        frames = frames_of(one)
        beat = between[n] if n < len(between) else 0
        if beat:  # a heart-beat may come between any two frames
            frames.insert(beat % len(frames), frame.Heartbeat().marshal())
        pieces += frames
    stream = b"".join(pieces)
    by_pika, directly = Bare(), Direct()
    at = turn = 0
    while at < len(stream):
        data = stream[at : at + cuts[turn % len(cuts)]]
        at, turn = at + len(data), turn + 1
        by_pika._on_data_available(data)
        directly._on_data_available(data)
    assert directly.calls == by_pika.calls
    assert (directly.bytes_received, directly.frames_received) == (by_pika.bytes_received, by_pika.frames_received)
    assert (directly._frame_buffer, directly.exact_headers) == (b"", True)


def test_a_consumer_that_raises_has_had_its_delivery() -> None:
    connection = Direct()

    def raising(*_: Any) -> None:
        raise KeyError("a fault of the consumer's")

    connection._channels[1]._consumers["one"] = raising
    two = [(1, "one", tag, False, "", "orders", None, b"x", 100) for tag in (1, 2)]
    with pytest.raises(KeyError, match="a fault of the consumer's"):
        connection._on_data_available(b"".join(piece for one in two for piece in frames_of(one)))
    assert connection._frame_buffer == b"".join(frames_of(two[1]))


def test_a_surprise_leaves_the_rest_to_pika(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(exact_headers, "_Deliver", None)
    connection = Direct()
    connection._on_data_available(b"".join(frames_of((1, "one", 7, False, "", "orders", "m", b"x", 100))))
    assert [call[2][0] for call in connection.calls] == [7]
    assert not connection.exact_headers
    assert "not as known" in caplog.text
