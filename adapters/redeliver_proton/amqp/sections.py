# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Finds the sections of an AMQP 1.0 message in its bytes, and reads them only where somebody asks. Pure."""

from __future__ import annotations

from typing import Any

import proton

from redeliver_proton.amqp.codec import Malformed, end_of, items, read

HEADER, DELIVERY_ANNOTATIONS, ANNOTATIONS, PROPERTIES, APPLICATION, DATA, SEQUENCE, VALUE, FOOTER = range(0x70, 0x79)
_BODY = (DATA, SEQUENCE, VALUE)
_NAMES = {
    "amqp:header:list": HEADER,
    "amqp:delivery-annotations:map": DELIVERY_ANNOTATIONS,
    "amqp:message-annotations:map": ANNOTATIONS,
    "amqp:properties:list": PROPERTIES,
    "amqp:application-properties:map": APPLICATION,
    "amqp:data:binary": DATA,
    "amqp:amqp-sequence:list": SEQUENCE,
    "amqp:amqp-value:*": VALUE,
    "amqp:footer:map": FOOTER,
}
# The fields of the properties section, in its order.
FIELDS = (
    "message_id",
    "user_id",
    "to",
    "subject",
    "reply_to",
    "correlation_id",
    "content_type",
    "content_encoding",
    "absolute_expiry_time",
    "creation_time",
    "group_id",
    "group_sequence",
    "reply_to_group_id",
)
_INDEX = {name: index for index, name in enumerate(FIELDS)}
_TTL, _DELIVERY_COUNT = 2, 4  # in the header
_SMALL_HEADER = b"\x00\x53\x70\xc0"
_SMALL_ULONG = b"\x53"


class Received:
    """Holds the native message of a delivery. `raw` is all of it, `message` the driver's own form."""

    __slots__ = ("_annotations", "_application", "_items", "_message", "_parts", "body", "fault", "raw")

    def __init__(self, raw: bytes | bytearray) -> None:
        self.raw = bytes(raw)  # the driver hands out bytearrays
        self.fault = ""  # why this cannot be copied exactly; known after the first look at its sections
        self.body: list[tuple[int, int, int]] = []  # section, where it begins, where its value begins
        self._parts: dict[int, int] | None = None
        self._items: dict[int, list[int]] = {}
        self._application: dict[str, tuple[int, int]] | None = None
        self._annotations: dict[str, tuple[int, int]] | None = None
        self._message: proton.Message | None = None

    @property
    def message(self) -> proton.Message:
        """Return the message as the driver decodes it, once."""
        if self._message is None:
            self._message = proton.Message()
            self._message.decode(self.raw)
        return self._message

    @property
    def failed_before(self) -> bool:
        """Return whether the header's delivery-count is above 0. The call is cheap, as the header comes first."""
        raw = self.raw
        if raw[:4] == _SMALL_HEADER:
            if raw[5] <= _DELIVERY_COUNT:
                return False
        elif raw[:3] != _SMALL_HEADER[:3]:
            return False
        return bool(self.header(_DELIVERY_COUNT))

    # -- sections ---------------------------------------------------------------------------------

    @property
    def parts(self) -> dict[int, int]:
        """Return where the value of each section begins that comes once; `body` and `fault` are set then."""
        if self._parts is None:
            self._parts = {}
            try:
                self._look(self._parts)
            except Malformed as error:
                self.fault = f"its bytes are no AMQP message: {error}"
        return self._parts

    def _look(self, parts: dict[int, int]) -> None:
        raw, at = self.raw, 0
        while at < len(raw):
            if raw[at] != 0:
                raise Malformed("a section without a descriptor")
            code, value = self._descriptor(at)
            end = end_of(raw, value)
            if code in _BODY:
                self.body.append((code, at, value))
            parts[code], at = value, end

    def _descriptor(self, at: int) -> tuple[int, int]:
        raw = self.raw
        if raw[at + 1 : at + 2] == _SMALL_ULONG and at + 2 < len(raw):  # as nearly everybody writes it
            return raw[at + 2], at + 3
        value = end_of(self.raw, at + 1)
        found = read(self.raw, at + 1)
        return _NAMES.get(found, 0) if isinstance(found, str) else int(found), value

    def header(self, index: int) -> Any:
        """Return one field of the header section; None if there is none."""
        return self._field(HEADER, index)

    def field(self, name: str) -> Any:
        """Return one field of the properties section, by its name in `FIELDS`."""
        return self._field(PROPERTIES, _INDEX[name])

    @property
    def ttl(self) -> Any:
        """Return the header's time to live in milliseconds."""
        return self.header(_TTL)

    def _field(self, section: int, index: int) -> Any:
        where = self._fields(section)
        return read(self.raw, where[index]) if index < len(where) else None

    def _fields(self, section: int) -> list[int]:
        """Return where the items of a section begin; they are looked for once."""
        if (found := self._items.get(section)) is None:
            at = self.parts.get(section)
            try:
                found = [] if at is None else items(self.raw, at)
            except Malformed as error:
                self.fault, found = str(error), []
            self._items[section] = found
        return found

    def property_wires(self) -> list[bytes]:
        """Return the fields of the properties section as they stand, in the order of `FIELDS`, as many as it has."""
        return [self.raw[at : end_of(self.raw, at)] for at in self._fields(PROPERTIES)]

    # -- maps -------------------------------------------------------------------------------------

    @property
    def application(self) -> dict[str, tuple[int, int]]:
        """Return where the value of each application property begins and ends."""
        if self._application is None:
            self._application = self._map(APPLICATION)
        return self._application

    @property
    def annotations(self) -> dict[str, tuple[int, int]]:
        """Return where the value of each message annotation begins and ends."""
        if self._annotations is None:
            self._annotations = self._map(ANNOTATIONS)
        return self._annotations

    def annotation(self, name: str) -> Any:
        """Return the value of one message annotation, or None."""
        where = self.annotations.get(name)
        return None if where is None else read(self.raw, where[0])

    def _map(self, section: int) -> dict[str, tuple[int, int]]:
        where, raw = self._fields(section), self.raw
        found: dict[str, tuple[int, int]] = {}
        for key, value in zip(where[::2], where[1::2], strict=False):
            name = read(raw, key)
            if not isinstance(name, str) or name in found:
                self.fault = f"a name in it is no text, or comes twice: {name!r}"
                continue
            found[str(name)] = (value, end_of(raw, value))
        return found

    # -- the body ---------------------------------------------------------------------------------

    @property
    def body_wire(self) -> bytes:
        """Return all body sections as they stand, with the footer behind them."""
        _ = self.parts
        return self.raw[self.body[0][1] :] if self.body else b""

    def body_bytes(self) -> bytes:
        """Return data sections as they are, a text as UTF-8, any other value in its AMQP encoding."""
        _ = self.parts
        pieces = []
        for code, _start, value in self.body:
            content = read(self.raw, value) if code in (DATA, VALUE) and self._is_plain(value) else None
            if isinstance(content, bytes):
                pieces.append(content)
            elif isinstance(content, str):
                pieces.append(content.encode())
            else:
                wire = self.raw[value : end_of(self.raw, value)]
                pieces.append(b"" if wire == b"\x40" else wire)
        return b"".join(pieces)

    def _is_plain(self, at: int) -> bool:
        return self.raw[at] in (0xA0, 0xB0, 0xA1, 0xB1)
