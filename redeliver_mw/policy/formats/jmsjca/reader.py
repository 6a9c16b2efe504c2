# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
r"""Reads the redelivery string of JMSJCA (Java CAPS, Sun JMS adapter).

Grammar::

    string := entry (WS* ";" WS* entry)* ";"?  |  blank  |  ";"
    entry  := COUNT ":" WS? (MILLISECONDS | "delete" | "move(" kind WS? ":" WS? NAME ")")
    kind   := "queue" | "topic" | "same"          same: as the source
    NAME   := one or more characters but ";"       every $ is the name of the source

COUNT is 1 to 50000000 and grows from entry to entry; `move` and `delete` come last. Upper and lower case differ; WS is
one blank. The same string may follow `?JMSJCA.redeliveryhandling=` in a URL, raw or percent-encoded (a `+` is a plus
there), up to the next `&`.

Worked example, `2:500; 4:2000; 6:move(same:$.dead)` on the queue `orders`, the handler always failing::

    failure 1   no entry has been reached: again at once
    failure 2   again after 500 ms
    failure 3   again after 500 ms: an entry holds until the next one
    failure 4   again after 2000 ms
    failure 5   again after 2000 ms
    failure 6   moved to the queue `orders.dead`; the handler was called six times

COUNT is the number of failures, the first one included: the original counts redeliveries as they arrive, so its
`6:move` acts when delivery 7 arrives, and the handler does not see that delivery. `decide()` returns the move already
at failure 6, when the error can still be written on the dead letter; `on_arrival()` returns the move for a message that
arrives with 6 failures or more. The original's manual speaks of "no delay for the first five attempts at redelivery"
for `5:1000`; its program, followed here, delays the fifth. Without `move` or `delete` the last entry repeats for ever;
the empty string retries at once for ever. DEFAULT is JMSJCA's own default.

`redeliver_mw/redelivery/interop.py` describes the properties that a handler sets on a message and that a moved message
carries.

The manual allows 5000 ms at most; the program accepts more, and waits in pieces of 5000 ms that are not counted.
`read()` accepts more too, as one delay of that length; with `strict` it refuses what the manual refuses.

The language cannot express: growth without a table, jitter, more than one target, rules by exception, expiry,
wildcards, an end by time.

Errors carry the original's codes: E102 not an entry, E103 move not last, E104 bad target, E105 delete not last, E106
not ascending, E107 a count twice, E109 delay too long, E111 count below 1, E112 count above the largest. (The original
wraps all of them in E101; E110, a source of no kind, cannot occur here.)
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NoReturn, cast
from urllib.parse import unquote

from ....errors import PolicyError
from ...backoff import LONGEST, Steps
from ...decisions import Target, TargetKind
from ...destinations import PolicyMap
from ...model import RedeliveryPolicy
from ..diagnostics import nearest

DEFAULT = "3:25; 5:50; 10:100; 20:1000; 50:5000"
LARGEST_COUNT = 50_000_000
STRICT_LONGEST_MS = 5000
URL_OPTION = "JMSJCA.redeliveryhandling="

_ACTIVEMQ = "jms.redeliveryPolicy."  # the options of another language
_ENTRY = re.compile(r"([0-9]+):\s?(?:([0-9]+)|(delete)|move\((.*)\))", re.DOTALL | re.ASCII)
_TARGET = re.compile(r"(queue|topic|same)\s?:\s?(.+)", re.DOTALL | re.ASCII)
_URL = re.compile(r"\s*[A-Za-z][A-Za-z0-9+.-]*://")
_BLANKS = " \t\n\r\f\v"
_DIGITS = re.compile(r"[0-9]+", re.ASCII)
_AMOUNT = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*([A-Za-z]*)", re.ASCII)
_UNITS = {"ms": 1, "s": 1000, "sec": 1000, "seconds": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000}
_NEXT = re.compile(r"[0-9]\s*:", re.ASCII)  # the count of another entry
_SEVERAL = re.compile(r",\s*(queue|topic|same)\s?:")


class JmsjcaError(PolicyError):
    """Reports a redelivery string that cannot be read; `code` is the original's (`E104`), `element` counts from 1."""

    element = 0

    def __str__(self) -> str:
        return self.message  # which has the code in it already


@dataclass(frozen=True)
class _Entry:
    at: int
    delay: int | None = None  # milliseconds; None for the two actions that end the redelivery
    target: Target | None = None  # None and no delay: delete


def read(text: str, strict: bool = False) -> RedeliveryPolicy:
    """Return the policy of a redelivery string, or of a URL that carries one. Raises JmsjcaError, a PolicyError.

    `strict` refuses delays above 5000 ms.
    """
    if URL_OPTION not in text and _URL.match(text):
        # A URL may hold a password, so it is not shown.
        raise PolicyError(
            "this URL carries no policy",
            cure=f"Add ?{URL_OPTION}3:1000; 8:move(queue:dlq.$)",
            code="policy-not-recognized",
        )
    native = from_url(text) if URL_OPTION in text else text
    entries = _entries(native, strict)
    last = entries[-1] if entries else None
    steps = Steps(tuple((entry.at, entry.delay / 1000) for entry in entries if entry.delay is not None))
    if last is None or last.delay is not None:
        return RedeliveryPolicy(None, steps, None, "keep", language="jmsjca", native=native)
    if last.target is None:
        return RedeliveryPolicy(last.at, steps, None, "discard", act="arrival", language="jmsjca", native=native)
    return RedeliveryPolicy(last.at, steps, last.target, act="arrival", language="jmsjca", native=native)


def read_map(text: str, strict: bool = False) -> PolicyMap:
    """Return the policy of the string for every destination, because the language has no destinations."""
    policy = read(text, strict)
    warnings = [
        f"move({target}) is one {target.kind}, whose name has the comma in it: JMSJCA moves a message to one place. "
        "Name one"
        for target in policy.targets
        if _SEVERAL.search(target.template)
    ]
    if text.count(URL_OPTION) > 1:
        warnings.append(f"{URL_OPTION[:-1]} stands there twice, and the first one counts. Leave one out")
    if URL_OPTION in text and _ACTIVEMQ in text:
        warnings.append(f"{_ACTIVEMQ[:-1]} is not read beside {URL_OPTION[:-1]}. Leave one of the two out")
    return PolicyMap(None, policy, language="jmsjca", native=policy.native, warnings=tuple(warnings))


def from_url(url: str) -> str:
    """Return the redelivery string in a URL, decoded. Raises PolicyError if its percent-encoding is not UTF-8."""
    value = url.partition(URL_OPTION)[2].partition("&")[0]
    try:
        return unquote(value, errors="strict")
    except UnicodeDecodeError:
        raise PolicyError(
            "percent-encoded bytes that are no UTF-8",
            where=URL_OPTION[:-1],
            cure="Encode the string as UTF-8",
            code="policy-encoding",
        ) from None


def _entries(text: str, strict: bool) -> list[_Entry]:
    body = text[:-1] if text.endswith(";") else text
    if not body.strip():
        return []
    parts = _split(body)
    entries: list[_Entry] = []
    for number, part in enumerate(parts, 1):
        place = _Position(number, len(parts), part)
        entry = _read_entry(part, place, strict)
        _check_order(entry, entries[-1].at if entries else 0, place)
        entries.append(entry)
    return entries


def _split(body: str) -> list[str]:
    # Blanks around a separator belong to the separator; blanks around the whole string stay, and cause E102.
    parts = body.split(";")
    parts[1:] = [part.lstrip(_BLANKS) for part in parts[1:]]
    parts[:-1] = [part.rstrip(_BLANKS) for part in parts[:-1]]
    return parts


@dataclass(frozen=True)
class _Position:
    number: int
    count: int
    entry: str

    def fail(self, code: str, what: str, cure: str) -> NoReturn:
        shown = self.entry if len(self.entry) <= 80 else self.entry[:77] + "..."
        place = f"{code} in element {self.number} of {self.count}, {shown!r}"
        error = JmsjcaError(f"{place}: {what}", cure=cure, code=code)
        error.element = self.number
        raise error


def _read_entry(part: str, place: _Position, strict: bool) -> _Entry:
    match = _ENTRY.fullmatch(part)
    if match is None:
        place.fail("E102", *_no_entry(part))
    count, delay, delete, target = match.groups()
    at = _count(count, place)
    if delay is not None:
        return _Entry(at, _delay(delay, place, strict))
    ends = "E105" if delete else "E103"
    if place.number < place.count:
        place.fail(ends, f"{'delete' if delete else 'move'} is not the last entry", "Put it at the end")
    return _Entry(at) if delete else _Entry(at, target=_target(target, place))


def _no_entry(part: str) -> tuple[str, str]:
    """Return the problem with text that is not an entry, and the cure."""
    count, colon, action = part.partition(":")
    word = action.strip(_BLANKS)
    if not part.strip():
        return "nothing stands between two separators", "Leave one of the ; out"
    if not colon:
        return "there is no colon behind the count", "Write COUNT:MILLISECONDS, such as 3:1000"
    if not count.strip():
        return "there is no count before the colon", f"Write from which failure on it holds, such as 3:{word:.40}"
    if count != count.strip(_BLANKS) or action.rstrip(_BLANKS) != action or action[:2].strip(_BLANKS) == "":
        if word:
            return "a blank where none may stand", f"Write {count.strip(_BLANKS):.40}:{word:.40}"
        return "nothing stands behind the colon", "Write milliseconds, delete or move(queue:NAME) there"
    if not _DIGITS.fullmatch(count):
        return f"the count {count!r:.40} is no whole number", "Count failures from 1"
    if amount := _AMOUNT.fullmatch(word):
        factor = _UNITS.get((amount[2] or "ms").lower())
        return (
            f"{word!r:.40} is no whole number of milliseconds",
            f"Write {count}:{round(float(amount[1]) * factor)}" if factor else "Write whole milliseconds",
        )
    if _NEXT.search(action):
        return "two entries without a separator", "Write a ; between them"
    kind = word.partition("(")[0].strip().lower()
    if word.startswith("move"):
        return "the place to move to is not in brackets", f"Write {count}:move(queue:NAME)"
    if near := nearest(kind.split(" ")[0], ("delete", "move")):
        right = "delete" if near == "delete" else "move(queue:NAME)"
        return f"{word!r:.40} is neither a delay nor delete nor move", f"Write {count}:{right}, in small letters"
    return (
        f"{word!r:.40} is neither a delay nor delete nor move",
        "Write milliseconds, delete or move(queue:NAME) behind the colon",
    )


def _count(digits: str, place: _Position) -> int:
    at = _number(digits)
    if at < 1:
        place.fail("E111", "the count is below 1", "Count failures from 1")
    if at > LARGEST_COUNT:
        place.fail("E112", f"the count is above {LARGEST_COUNT}", "Leave the entry out: it is never reached")
    return at


def _delay(digits: str, place: _Position, strict: bool) -> int:
    milliseconds = _number(digits)
    longest = STRICT_LONGEST_MS if strict else int(LONGEST) * 1000
    if milliseconds > longest:
        place.fail("E109", f"the delay is above {longest} ms", f"Give at most {longest} ms")
    return milliseconds


def _target(text: str, place: _Position) -> Target:
    match = _TARGET.fullmatch(text)
    if match is None or not match[2].strip():
        place.fail("E104", "the target is not kind:NAME", "Write queue:NAME, topic:NAME or same:NAME")
    return Target(cast(TargetKind, match[1]), match[2])


def _check_order(entry: _Entry, before: int, place: _Position) -> None:
    if entry.at == before:
        place.fail("E107", f"the count {entry.at} stands there twice", "Leave one of the two out")
    if entry.at < before:
        place.fail("E106", f"the count {entry.at} comes after {before}", "Sort the entries by their count")


def _number(digits: str) -> int:
    # int() refuses thousands of digits; a number this long is too large anyway.
    return int(digits) if len(digits) <= 18 else 10**18
