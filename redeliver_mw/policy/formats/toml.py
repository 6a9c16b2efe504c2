# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Reads TOML with places, and writes it compactly, as far as the native policy language needs. Pure."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...errors import PolicyError

LARGEST = 1_000_000  # characters
DEEPEST = 100  # dots in one key, and brackets on one line: tomllib takes quadratic time for them, or recurses
_BARE = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)
_PLACE = re.compile(r"\s*\(at (?:line (\d+), column (\d+)|end of document)\)$")
_PART = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*')"""
_HEADER = re.compile(rf"[ \t]*\[\[?[ \t]*({_PART}(?:[ \t]*\.[ \t]*{_PART})*)[ \t]*\]", re.ASCII)
_PAIR = re.compile(rf"[ \t]*({_PART}(?:[ \t]*\.[ \t]*{_PART})*)[ \t]*=", re.ASCII)
_ONE = re.compile(_PART, re.ASCII)
_ESCAPES = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r", '"': '\\"', "\\": "\\\\"}

Path = tuple[str, ...]


def parse(text: str) -> dict[str, Any]:
    """Return the document.

    Raises PolicyError with line and column if the text is not TOML, or too large for a policy.
    """
    if len(text) > LARGEST:
        raise PolicyError(f"{len(text)} characters", cure=f"Give at most {LARGEST}", code="policy-too-large")
    for number, line in enumerate(text.split("\n"), 1):
        if line.count(".") + line.count("[") + line.count("{") > DEEPEST and _too_deep(line):
            raise PolicyError(
                "nested too deeply",
                where=f"line {number}",
                cure=f"Nest at most {DEEPEST} tables",
                code="policy-too-large",
            )
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise PolicyError("nested too deeply", cure=f"Nest at most {DEEPEST} tables", code="policy-too-large") from None
    except ValueError as error:  # TOMLDecodeError, and a number with more digits than int() accepts
        raise _no_toml(error) from None


def places(text: str) -> dict[Path, int]:
    """Return the line of each key and table, as far as the beginnings of lines show it."""
    found: dict[Path, int] = {}
    table: Path = ()
    for number, line in enumerate(text.split("\n"), 1):
        if header := _HEADER.match(line):
            table = _path(header[1])
            found.setdefault(table, number)
        elif pair := _PAIR.match(line):
            found.setdefault(table + _path(pair[1]), number)
    return found


def dotted(path: Sequence[str]) -> str:
    """Return a path as TOML writes it: `destinations."ORDERS.>".backoff`."""
    return ".".join(map(key, path))


def key(word: str) -> str:
    """Return a key, in quotes if it needs them."""
    return word if _BARE.fullmatch(word) else string(word)


def string(text: str) -> str:
    """Return a basic string."""
    return '"' + "".join(_escaped(character) for character in text) + '"'


def value(given: object) -> str:
    """Return a value on one line: a string, a number, a bool, a sequence or a mapping of these."""
    match given:
        case bool():
            return "true" if given else "false"
        case int() | float():
            return _number(given)
        case str():
            return string(given)
        case Mapping():
            return "{ " + ", ".join(f"{key(name)} = {value(inner)}" for name, inner in given.items()) + " }"
        case Sequence():
            return "[" + ", ".join(map(value, given)) + "]"
    raise TypeError(f"no TOML for {given!r}")


def table(path: Sequence[str], pairs: Mapping[str, object]) -> Iterator[str]:
    """Yield the lines of a table; without a path, those of the document's own keys."""
    if path:
        yield f"[{dotted(path)}]"
    for name, given in pairs.items():
        yield f"{key(name)} = {value(given)}"


def _number(given: float) -> str:
    if isinstance(given, float) and given.is_integer() and abs(given) < 1e15:
        return str(int(given))  # 5, because 5.0 would look like a measured value
    if isinstance(given, float) and not math.isfinite(given):
        raise TypeError(f"no TOML for {given!r}")
    return repr(given)


def _escaped(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    control = ord(character) < 0x20 or ord(character) == 0x7F
    return f"\\u{ord(character):04x}" if control else character


def _path(text: str) -> Path:
    return tuple(_plain(part) for part in _ONE.findall(text))


def _plain(part: str) -> str:
    if part[0] not in "\"'":
        return part
    if part[0] == "'" or "\\" not in part:
        return part[1:-1]
    try:
        return str(tomllib.loads(f"x = {part}")["x"])
    except ValueError:
        return part


def _too_deep(line: str) -> bool:
    # A long list of quoted names contains dots too; only dots of keys and open brackets count.
    bare = re.sub(r"\"(?:[^\"\\]|\\.)*\"|'[^']*'", "", line)
    keys = max((chunk.count(".") for chunk in re.split(r"[=,\s\[\]{}]", re.sub(r"\s*\.\s*", ".", bare))), default=0)
    return keys > DEEPEST or bare.count("[") + bare.count("{") > 50 * DEEPEST


def _no_toml(error: ValueError) -> PolicyError:
    what = str(error)
    place = _PLACE.search(what)
    if place is None:
        return PolicyError("no TOML: a number with too many digits", cure="Write smaller numbers", code="policy-syntax")
    where = f"line {place[1]}, column {place[2]}" if place[1] else "end of document"
    what = what[: place.start()]
    if what.startswith(("Cannot overwrite a value", "Cannot declare")):
        return PolicyError(
            "a key or a table stands there twice", where=where, cure="Leave one of the two out", code="policy-conflict"
        )
    return PolicyError(
        f"no TOML: {what[:1].lower()}{what[1:200]}", where=where, cure="See https://toml.io", code="policy-syntax"
    )
