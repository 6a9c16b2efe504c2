# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Holds `ExactFrames`: a pika connection with it hands out `RawProperties` in place of what pika decodes itself.

pika's own decoding turns 1.75 into 1, and a table nested a thousand deep into a RecursionError on the
connection's thread. And it takes a message through its machinery frame by frame, and copies what is left of a read for
each of them; so a delivery whose three frames are there goes to its consumer in one step. The places where this happens
are private, so their shape is looked at before they are used.
"""

import inspect
import logging
import struct
from typing import TYPE_CHECKING, Any

from pika import channel, connection, frame, spec

from redeliver_pika.amqp.properties import RawProperties

_LOG = logging.getLogger("redeliver_mw.pika")
_FRAME = struct.Struct(">BHI")  # type, channel, size
_FRAME_START = struct.Struct(">BHIHHQ")  # the same; class, weight, body size
_METHOD_START = struct.Struct(">BHIHHB")  # the same; class, method, length of the first argument
_TAG = struct.Struct(">QBB")  # delivery tag, redelivered, length of the exchange's name
_BASIC, _DELIVER = spec.Basic.INDEX, spec.Basic.Deliver.INDEX & 0xFFFF
_Deliver: Any = spec.Basic.Deliver  # which has no types
_ARGUMENTS = ["consumer_tag", "delivery_tag", "redelivered", "exchange", "routing_key"]
_PAYLOAD, _PROPERTIES = 7, 19  # where the payload and, within it, the property flags begin


def known_shape() -> bool:
    """Return whether this pika still reads its frames in the way that `ExactFrames` relies on. Never raises."""
    try:
        used = connection.Connection._on_data_available.__code__.co_names
        delivering = channel.Channel._on_deliver.__code__.co_names
        return (
            {"_frame_buffer", "_read_frame", "_trim_frame_buffer", "_process_frame"} == set(used)
            and "bytes_received" in connection.Connection._trim_frame_buffer.__code__.co_names
            and "frames_received" in connection.Connection._process_frame.__code__.co_names
            and {"_consumers", "_cancelled"} <= set(delivering)
            and list(inspect.signature(spec.Basic.Deliver).parameters) == _ARGUMENTS
            and list(inspect.signature(connection.Connection._read_frame).parameters) == ["self"]
            and list(inspect.signature(frame.Header).parameters) == ["channel_number", "body_size", "props"]
            and spec.props[spec.BasicProperties.INDEX] is spec.BasicProperties
        )
    except Exception:  # whatever a future pika looks like, the answer is no
        return False


if TYPE_CHECKING:
    _Behind = connection.Connection  # what it stands before, and steps into
else:
    _Behind = object


class ExactFrames(_Behind):
    """Stands before pika's class: `class Connection(ExactFrames, pika.SelectConnection)`.

    `exact_headers`: False as soon as pika has to decode the properties itself, so that floats are
    cut: on the class if this pika is not known, on the connection if it surprised us. On its thread only.
    """

    exact_headers: bool = known_shape()

    def _on_data_available(self, data_in: bytes) -> None:
        if not self.exact_headers:
            return super()._on_data_available(data_in)
        self._frame_buffer += data_in
        while self._frame_buffer:
            self._take_deliveries()
            if not self._frame_buffer:
                return
            used, found = self._read_frame()
            if not found:
                return
            self._trim_frame_buffer(used)
            self._process_frame(found)

    def _take_deliveries(self) -> None:
        """Take the deliveries that the buffer begins with, as long as they are whole and have a consumer."""
        buffer, at, channels = self._frame_buffer, 0, self._channels
        try:
            while (found := self._delivery(buffer, at, channels)) is not None:
                at, consumer, *arguments = found
                self.frames_received += 3 if arguments[-1] else 2
                consumer(*arguments)
        finally:
            if at:
                self._trim_frame_buffer(at)

    def _delivery(self, buffer: bytes, at: int, channels: Any) -> Any:
        try:
            return _delivery(buffer, at, channels)
        except Exception:
            return self._surprised()

    def _surprised(self) -> None:
        self.exact_headers = False
        _LOG.exception("pika's frames are not as known: it decodes headers itself, not exactly")

    def _read_frame(self) -> Any:
        if self.exact_headers:
            try:
                found = _exact_header(self._frame_buffer)
            except Exception:
                self._surprised()
            else:
                if found is not None:
                    return found
        return super()._read_frame()


def _exact_header(buffer: bytes) -> tuple[int, Any] | None:
    """Return the bytes used and the frame; None where pika shall look: no header frame, not complete, or not sound."""
    if len(buffer) < _FRAME_START.size or buffer[0] != spec.FRAME_HEADER:
        return None
    _, channel, size, class_id, _, body_size = _FRAME_START.unpack_from(buffer)
    last = _PAYLOAD + size
    if last >= len(buffer) or buffer[last] != spec.FRAME_END or class_id != spec.BasicProperties.INDEX:
        return None
    return last + 1, frame.Header(channel, body_size, RawProperties.from_raw(bytes(buffer[_PROPERTIES:last])))


def _delivery(buffer: bytes, at: int, channels: Any) -> Any:
    """Return where the delivery ends, its consumer, and the consumer's arguments; None if pika has to read it."""
    try:
        kind, number, size, class_id, method_id, width = _METHOD_START.unpack_from(buffer, at)
        if kind != spec.FRAME_METHOD or class_id != _BASIC or method_id != _DELIVER:
            return None
        method_end = at + _PAYLOAD + size
        kind, same, size, class_id, _, body_size = _FRAME_START.unpack_from(buffer, method_end + 1)
        header_end = method_end + 1 + _PAYLOAD + size
        if kind != spec.FRAME_HEADER or same != number or class_id != _BASIC:
            return None
        start = end = header_end
        if body_size:
            kind, same, size = _FRAME.unpack_from(buffer, header_end + 1)
            start = header_end + 1 + _PAYLOAD
            end = start + size
            if kind != spec.FRAME_BODY or same != number or size != body_size:
                return None
        if not (buffer[end] == buffer[header_end] == buffer[method_end] == spec.FRAME_END):
            return None
        on, at = channels[number], at + _METHOD_START.size
        consumer_tag = buffer[at : at + width].decode()
        if consumer_tag in on._cancelled:
            return None
        consumer = on._consumers[consumer_tag]
        at += width
        tag, redelivered, width = _TAG.unpack_from(buffer, at)
        at += _TAG.size
        exchange, key = buffer[at : at + width].decode(), at + width
        if key + 1 + buffer[key] != method_end:
            return None
        routing_key = buffer[key + 1 : method_end].decode()
        method = _Deliver(consumer_tag, tag, bool(redelivered & 1), exchange, routing_key)
    except (struct.error, IndexError, KeyError, UnicodeDecodeError):  # not all of it is there, or it is nothing usual
        return None
    properties = RawProperties.from_raw(buffer[method_end + 1 + _PROPERTIES : header_end])
    return end + 1, consumer, on, method, properties, buffer[start:end]
