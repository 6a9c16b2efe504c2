# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""`ExactFrames`: makes a pika connection hand out `RawProperties` in place of what pika decodes itself.

pika's own decoding turns 1.75 into 1, and a table nested a thousand deep into a RecursionError on the
connection's thread. The place where it happens is private, so its shape is looked at before it is used.
"""

import inspect
import logging
import struct
from typing import TYPE_CHECKING, Any

from pika import connection, frame, spec

from redeliver_pika._properties import RawProperties

_LOG = logging.getLogger(__name__)
_FRAME_START = struct.Struct(">BHIHHQ")  # type, channel, size; class, weight, body size
_PAYLOAD, _PROPERTIES = 7, 19  # where the payload and, within it, the property flags begin


def known_shape() -> bool:
    """Whether this pika still reads its frames in the way that `ExactFrames` steps into. Never raises."""
    try:
        used = connection.Connection._on_data_available.__code__.co_names
        return (
            {"_frame_buffer", "_read_frame"} <= set(used)
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

    def _read_frame(self) -> Any:
        if self.exact_headers:
            try:
                found = _exact_header(self._frame_buffer)
            except Exception:
                self.exact_headers = False
                _LOG.exception("pika's frames are not as known: it decodes headers itself, not exactly")
            else:
                if found is not None:
                    return found
        return super()._read_frame()


def _exact_header(buffer: bytes) -> tuple[int, Any] | None:
    """Bytes used and the frame; None where pika shall look: no header frame, not complete, or not sound."""
    if len(buffer) < _FRAME_START.size or buffer[0] != spec.FRAME_HEADER:
        return None
    _, channel, size, class_id, _, body_size = _FRAME_START.unpack_from(buffer)
    last = _PAYLOAD + size
    if last >= len(buffer) or buffer[last] != spec.FRAME_END or class_id != spec.BasicProperties.INDEX:
        return None
    return last + 1, frame.Header(channel, body_size, RawProperties.from_raw(bytes(buffer[_PROPERTIES:last])))
