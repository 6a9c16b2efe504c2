# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Converts dead letters to rows of the store, and back to packed letters. Pure.

PostgreSQL's indexes take about 2700 bytes of a row, and neither database takes NUL in every text. So texts in columns
are cleaned and, in indexes, bounded. The exact letter is in the table of bodies.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, Final, NamedTuple

import orjson

from ..adapter.capabilities import Capabilities
from ..dead_letters import LetterDetails, Packed, details_of, pack, stored_text
from ..message import Delivery, Destination
from ..redaction import clean, trim_utf8
from ..redelivery.headers import PREFIX
from .filters.matching import FilterSubject, header_number
from .tables import is_own_header

NAME_CHARS: Final = 255
TEXT_CHARS: Final = 1000
MOST_HEADERS: Final = 1000  # of a letter; the others are in `head` only
_NAME_BYTES, _TEXT_BYTES = 500, 2000  # together less than an index takes
_SOURCE_BYTES: Final = 2000
_SHORT_BYTES: Final = 500
_SMALLEST, _LARGEST = -(2**63), 2**63 - 1

_FEW = 100  # headers whose names are worth to be remembered
_DIGITS = frozenset("0123456789")  # how the text of every number ends

Row = dict[str, Any]


class Shelf(NamedTuple):
    """Names the place that letters are taken from: a queue of a broker."""

    broker: str
    queue: Destination
    capabilities: Capabilities


class StoreRows(NamedTuple):
    """Holds the rows of one letter, without its number; `own` and `foreign` are those of its headers."""

    letter: Row
    body: Row
    own: Sequence[Row]
    foreign: Sequence[Row]

    @property
    def headers(self) -> Sequence[Row]:
        """Return a row for each header, as in the table of headers."""
        return _all_rows(self.own, self.foreign)

    def numbered(self, letter_id: int) -> None:
        """Write the letter's number into all of its rows."""
        for row in (self.letter, self.body, *self.own, *self.foreign):
            row["letter_id"] = letter_id


def rows_by_table(headers: Iterable[Row]) -> tuple[Sequence[Row], Sequence[Row]]:
    """Return the row of own headers, if there are any, as values and not as JSON, and the rows of the others."""
    own: list[Row] = []
    foreign: list[Row] = []
    for row in headers:
        (own if is_own_header(row["name"]) else foreign).append(row)
    if not own:
        return (), foreign
    texts = {row["name"]: row["text"] for row in own}
    numbers = {row["name"]: row["number"] for row in own if row["number"] is not None}
    return ({"texts": texts, "numbers": numbers},), foreign


def rows_of_own(texts: Mapping[str, str], numbers: Mapping[str, float]) -> list[Row]:
    """Return a row for each header of a row of own headers, as in the table of headers.

    PostgreSQL returns a number without a fraction as an int, however large it is.
    """
    return [
        {"name": name, "text": text, "number": None if (number := numbers.get(name)) is None else float(number)}
        for name, text in texts.items()
    ]


def _all_rows(own: Sequence[Row], foreign: Sequence[Row]) -> list[Row]:
    read = (rows_of_own(json.loads(row["texts"]), json.loads(row["numbers"])) for row in own)
    return [*foreign, *chain.from_iterable(read)]


def rows_of(delivery: Delivery, shelf: Shelf, now_us: int) -> StoreRows:
    """Return the rows of a letter. Raises NotCopyable if it cannot be restored exactly: then it stays in its queue."""
    packed = pack(delivery)
    details = details_of(delivery, shelf.broker, shelf.queue, shelf.capabilities)
    body = {"redelivered": int(packed.redelivered), "head": packed.head, "body": packed.body}
    return StoreRows(_letter_row(delivery, shelf, packed, details, now_us), body, *_header_rows(delivery, details))


def subject_of(delivery: Delivery, shelf: Shelf) -> FilterSubject:
    """Return what a filter sees of a letter in its queue: its state, and a time that nobody knows, are missing."""
    details = details_of(delivery, shelf.broker, shelf.queue, shelf.capabilities)
    packed = Packed(delivery.destination, delivery.redelivered, b"", delivery.body)
    row = _letter_row(delivery, shelf, packed, details, 0)
    unknown = {"state": None, "collected_us": None} | ({"died_us": None} if details.died_us is None else {})
    return FilterSubject.of_rows(row | unknown, _all_rows(*_header_rows(delivery, details)))


def packed_of(queue: str, redelivered: int, head: bytes, body: bytes) -> Packed:
    """Return the packed letter of a row of letters and its row of bodies."""
    return Packed(Destination.parse(queue), bool(redelivered), head, body)


def digest_of(head: bytes, body: bytes) -> str:
    """Return what tells whether a letter is still as somebody has seen it."""
    return hashlib.sha256(head + body).hexdigest()


def _letter_row(delivery: Delivery, shelf: Shelf, packed: Packed, details: LetterDetails, now_us: int) -> Row:
    info, properties = details.info, delivery.properties
    consumed_from = str(info.source)
    source = None if info.source is None else clean(stored_text(consumed_from))
    problem = details.problem
    if source is not None and len(source.encode()) > _SOURCE_BYTES:
        source, problem = None, problem or f"the name of its source is longer than {_SOURCE_BYTES} bytes"
    fingerprint = details.headers.get(PREFIX + "error_fingerprint") or details.info.fingerprint
    same = hashlib.sha256(
        f"{details.dl_id}\0{consumed_from}\0{details.body_digest}".encode("utf-8", "backslashreplace")
    )
    return {
        "base_id": details.dl_id,
        "broker": shelf.broker,
        "queue": shelf.queue.short,
        "dialect": shelf.capabilities.dialect,
        "source": source,
        "problem": clean(problem),
        "reason": clean(info.reason),
        "error_type": clean(info.error_type) or None,
        "error_message": clean(info.error_message) or None,
        "fingerprint": trim_utf8(clean(fingerprint), _SHORT_BYTES) or None,
        "app": clean(details.headers.get(PREFIX + "app", "")) or None,
        "failures": info.failures,
        "generation": info.generation,
        "replay_id": clean(info.replay_id) or None,
        "message_key": None if details.message_key is None else clean(details.message_key),
        "message_id": _text_or_none(delivery.message_id),
        "content_type": _text_or_none(properties.content_type),
        "died_us": now_us if details.died_us is None else min(max(details.died_us, _SMALLEST), _LARGEST),
        "collected_us": now_us,
        "changed_us": now_us,
        "state": "waiting",
        "body_bytes": len(packed.body),
        "digest": digest_of(packed.head, packed.body),
        "same": same.hexdigest()[:32],
        "known_by": details.known_by,
        "may_be_back": details.may_be_back,
        "again_of": None,
    }


def _header_rows(delivery: Delivery, details: LetterDetails) -> tuple[Sequence[Row], Sequence[Row]]:
    """Return the row of own headers, if there are any, and a row for each other one.

    Of names that are equal when they are cut, the first counts.
    """
    names, values = tuple(details.headers), list(delivery.headers.values())
    texts = whole = list(details.headers.values())
    together = "".join(whole)
    longest = TEXT_CHARS if together.isascii() else _TEXT_BYTES // 4
    if max(map(len, whole), default=0) > longest or "\0" in together:  # seldom, and looked for fast
        texts = [trim_utf8(clean(text)[:TEXT_CHARS], _TEXT_BYTES) for text in whole]
    own, foreign = _places(names) if len(names) <= _FEW else _places.__wrapped__(names)
    rows = [{"name": name, "text": texts[at], "number": header_number(values[at])} for name, at in foreign]
    if not own:
        return (), rows
    own_texts = {name: texts[at] for name, at in own}
    numbers = {
        name: number
        for name, at in own
        if whole[at][-1:] in _DIGITS and (number := header_number(values[at])) is not None
    }
    return [{"texts": _to_json(own_texts), "numbers": _to_json(numbers) if numbers else "{}"}], rows


@lru_cache(maxsize=256)
def _places(names: tuple[str, ...]) -> tuple[Sequence[tuple[str, int]], Sequence[tuple[str, int]]]:
    """Return the own headers and the others: the name that is stored, and the place among these names.

    Cached, because the letters of one queue have few different sets of names.
    """
    first: dict[str, int] = {}
    for at, name in enumerate(names):
        first.setdefault(trim_utf8(clean(name)[:NAME_CHARS], _NAME_BYTES), at)
    kept = list(first.items())[:MOST_HEADERS]
    return [one for one in kept if is_own_header(one[0])], [one for one in kept if not is_own_header(one[0])]


def _to_json(values: Mapping[str, str | float]) -> str:
    return orjson.dumps(values).decode()


def _text_or_none(value: Any) -> str | None:
    return None if value is None else clean(stored_text(value))
