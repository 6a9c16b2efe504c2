# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Converts letters of the store to lines of JSON, and back: each line holds one letter exactly.

A line is an object in ASCII with `redeliver_letter` (the version of the format), the columns of
`redeliver_store_letter` that describe the letter, its headers as texts, and in base64 `head` (all but the body, as its
adapter packs it) and `body`. `digest` is the SHA-256 of both. Whatever a line says is checked before it is stored. A
file of discarded letters has a line before them that names its operation.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, select

from ..errors import ConfigError, RedeliverError
from ..message import Destination
from ..redaction import clean
from .letters import MOST_HEADERS, NAME_CHARS, TEXT_CHARS, Row, digest_of, rows_of_own
from .tables import bodies, headers, letters, own_headers

FORMAT: Final = 1
MARK: Final = "redeliver_letter"
_HEADER: Final = b'{"redeliver_discard": "'
_WHOLE_HEADER: Final = re.compile(re.escape(_HEADER) + rb'[\w.-]{1,64}"\}\s*', re.ASCII)
_TEXTS: Final = ("broker", "queue", "dialect", "problem", "reason", "same", "known_by")
_MAYBE: Final = (
    *("source", "error_type", "error_message", "fingerprint", "app"),
    *("replay_id", "message_key", "message_id", "content_type"),
)
_NUMBERS: Final = {"failures": 2**31, "generation": 2**31, "died_us": 2**63, "collected_us": 2**63}
_LONGEST: Final = {"source": 2000, "fingerprint": 500, "same": 64}  # bytes that an index takes
_NAMES: Final = ("dl_id", "base_id", *_TEXTS, *_MAYBE, *_NUMBERS, "state", "digest")
_ID: Final = re.compile(r"(?P<base>[\w.:+/=-]{1,128})(~(?P<ordinal>[1-9][0-9]{0,8}))?", re.ASCII)
_SHOWN: Final = 60


class LetterLine(NamedTuple):
    """Holds the rows of one letter that a line describes, without its number, its state and its times of change."""

    letter: Row
    body: Row
    headers: Sequence[Row]


def lines_of(connection: Connection, letter_ids: Sequence[int]) -> Iterator[tuple[int, bytes | None]]:
    """Yield the number and the line of each of these letters; None for a letter whose body was removed.

    One body at a time is in memory. Letters that are not in the store are left out.
    """
    named = select(letters.c.letter_id, *(letters.c[name] for name in _NAMES)).where(
        letters.c.letter_id.in_(letter_ids)
    )
    found = {row["letter_id"]: row for row in connection.execute(named).mappings()}
    texts: defaultdict[int, list[list[Any]]] = defaultdict(list)
    columns = headers.c
    asked = select(columns.letter_id, columns.name, columns.text, columns.number)
    for letter_id, *header in connection.execute(asked.where(columns.letter_id.in_(letter_ids)).order_by(columns.name)):
        texts[letter_id].append(header)
    for own in connection.execute(select(own_headers).where(own_headers.c.letter_id.in_(letter_ids))):
        texts[own.letter_id] += [list(row.values()) for row in rows_of_own(own.texts, own.numbers)]
        texts[own.letter_id].sort(key=itemgetter(0))
    for letter_id in letter_ids:
        if letter_id in found:
            body = connection.execute(select(bodies).where(bodies.c.letter_id == letter_id)).mappings().first()
            line = {MARK: FORMAT} | {name: found[letter_id][name] for name in _NAMES}
            yield letter_id, None if body is None else _line(line, texts[letter_id], body)


def header_line(operation_id: str) -> bytes:
    """Return the first line of a file of discarded letters, which says whose file it is."""
    return _HEADER + operation_id.encode() + b'"}\n'


def is_header(line: bytes) -> bool:
    """Return whether a line is such a first line, whole, which holds no letter."""
    return _WHOLE_HEADER.fullmatch(line) is not None


def _line(line: dict[str, Any], texts: list[list[Any]], body: Any) -> bytes:
    packed = {name: base64.b64encode(body[name]).decode() for name in ("head", "body")}
    return json.dumps({**line, "headers": texts, "redelivered": body["redelivered"], **packed}).encode() + b"\n"


def read_line(line: bytes, where: str) -> LetterLine:
    """Return what a line describes. Raises ConfigError with the code `letter-line`, which begins with `where`."""
    try:
        given = json.loads(line)
    except (ValueError, RecursionError):
        cut = "" if line.endswith(b"\n") else "; it seems to be cut off"
        raise _wrong(where, f"it is no JSON{cut}", "Export the letter again") from None
    if not isinstance(given, dict) or MARK not in given:
        raise _wrong(where, f"it is no letter: it has no {MARK!r}", "Import what `redeliver dead export` has written")
    if given[MARK] != FORMAT:
        raise _wrong(
            where,
            f"its format is {_shown(given[MARK])}, and this release reads {FORMAT}",
            "Import it with the release that has written it, or a newer one",
        )
    try:
        return _read(given)
    except _Wrong as error:
        raise _wrong(where, str(error), "Export the letter again; a line is not to be edited by hand") from None


class _Wrong(Exception):
    """Says what is wrong with a line."""


def _read(given: dict[str, Any]) -> LetterLine:
    dl_id, base_id = _text(given, "dl_id"), _text(given, "base_id")
    named = _ID.fullmatch(dl_id)
    if named is None or named["base"] != base_id or named["ordinal"] == "1":
        raise _Wrong("its dl_id and base_id do not belong together")
    letter: Row = {"dl_id": dl_id, "base_id": base_id, "ordinal": int(named["ordinal"] or 1)}
    letter |= {name: _text(given, name) for name in _TEXTS}
    letter |= {name: None if given.get(name) is None else _text(given, name) for name in _MAYBE}
    letter |= {name: _number(given, name, most) for name, most in _NUMBERS.items()}
    for name, most in _LONGEST.items():
        if len((letter[name] or "").encode()) > most:
            raise _Wrong(f"its {name} is longer than {most} bytes")
    if letter["known_by"] not in ("copy", "id", ""):
        raise _Wrong("its known_by is none of copy, id and an empty text")
    try:
        Destination.parse(letter["queue"])
    except RedeliverError:
        raise _Wrong("its queue is no destination") from None
    head, body = _bytes(given, "head"), _bytes(given, "body")
    letter |= {"digest": digest_of(head, body), "body_bytes": len(body), "again_of": None, "batch_id": None}
    if given.get("digest") != letter["digest"]:
        raise _Wrong("its head and body do not have its digest")
    redelivered = _number(given, "redelivered", 2)
    if redelivered not in (0, 1):
        raise _Wrong("its redelivered is neither 0 nor 1")
    return LetterLine(letter, {"redelivered": redelivered, "head": head, "body": body}, _headers(given))


def _headers(given: dict[str, Any]) -> list[Row]:
    listed = given.get("headers")
    if not isinstance(listed, list) or len(listed) > MOST_HEADERS:
        raise _Wrong(f"its headers are no list of at most {MOST_HEADERS}")
    rows: dict[str, Row] = {}
    for one in listed:
        if not isinstance(one, list) or len(one) != 3:
            raise _Wrong("one of its headers is no list of a name, a text and a number")
        name, text, number = one
        if not _is_text(name, NAME_CHARS, 500) or not _is_text(text, TEXT_CHARS, 2000):
            raise _Wrong("a name or a text of its headers is no text, or too long")
        if name in rows:
            raise _Wrong("two of its headers have the same name")
        if number is not None and (type(number) not in (int, float) or not _is_finite(number)):
            raise _Wrong("a number of its headers is none")
        rows[name] = {"name": name, "text": text, "number": None if number is None else float(number)}
    return list(rows.values())


def _text(given: dict[str, Any], name: str) -> str:
    found = given.get(name)
    if not _is_text(found):
        raise _Wrong(f"its {name} is no text")
    return str(found)


def _number(given: dict[str, Any], name: str, most: int) -> int:
    found = given.get(name)
    if type(found) is not int or not -most <= found < most:
        raise _Wrong(f"its {name} is no whole number, or too large")
    return found


def _bytes(given: dict[str, Any], name: str) -> bytes:
    try:
        return base64.b64decode(given.get(name) or "" if isinstance(given.get(name), str) else "!", validate=True)
    except (binascii.Error, ValueError):
        raise _Wrong(f"its {name} is no base64") from None


def _is_text(found: Any, chars: int | None = None, most: int | None = None) -> bool:
    if not isinstance(found, str) or clean(found) != found:
        return False
    return (chars is None or len(found) <= chars) and (most is None or len(found.encode()) <= most)


def _is_finite(number: float) -> bool:
    try:
        return math.isfinite(float(number))
    except OverflowError:
        return False


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def _wrong(where: str, what: str, cure: str) -> ConfigError:
    return ConfigError(what, where=where, cure=cure, code="letter-line")
