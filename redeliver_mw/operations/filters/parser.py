# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
r"""Reads the text of `--where` as a filter. Pure: no I/O and no clock; relative times stay relative.

::

    filter     = all { "or" all }
    all        = unit { "and" unit }
    unit       = "not" unit | "(" filter ")" | condition
    condition  = field ( "=" | "!=" | "<" | "<=" | ">" | ">=" | "~" ) value
               | field "in" "(" value { "," value } ")"
               | field "is" ( "missing" | "present" )
    field      = a name of FIELDS | "header." WORD | "header" "[" STRING "]"
    value      = WORD | STRING
    WORD       = one or more of: letters, digits, _ - . : / + @ # $ % *
    STRING     = '"' { character | escape } '"' | "'" { character | escape } "'"
    escape     = "\\" | "\"" | "\'" | "\n" | "\r" | "\t" | "\u{" 1 to 6 hexadecimal digits "}"

    failures > 3 and (error ~ timeout or header.tenant in (acme, "other one")) and not queue = dlq.test and age < 2h

Keywords may be written in capitals. A keyword is no value unless it is quoted. The kind of the field says how a value
is read: `3` is a text for `id`, a number for `failures` and for a header. `docs/filters.md` is the users' reference.
"""

from __future__ import annotations

import difflib
import math
import re
from datetime import UTC, date, datetime, timedelta
from typing import Final, Literal, NamedTuple, NoReturn, cast

from ...errors import ConfigError
from .fields import FIELDS, OTHER_NAMES, FilterField, HeaderField
from .model import (
    KEYWORDS,
    NUMBER,
    UNITS,
    Ago,
    Comparison,
    Conjunction,
    Day,
    Disjunction,
    Filter,
    FilterTime,
    FilterValue,
    Instant,
    Membership,
    Negation,
    Operator,
    Presence,
    RelativeDay,
    Span,
    quoted,
)

MAX_LENGTH: Final = 10_000  # characters, of the text and of its canonical form
MAX_NESTING: Final = 50  # brackets and `not` in one another
MAX_VALUES: Final = 1_000  # of one `in`
MAX_CONDITIONS: Final = 200  # SQLite refuses an expression of more than 1000 levels; each condition may add three
LARGEST_NUMBER: Final = 2**63 - 1
LONGEST_SPAN: Final = 36_525 * 86_400  # a century, in seconds

_WIDTH = 100  # characters of a filter that is shown with its error
_SHOWN = 40  # characters of a wrong word that are shown
_PART = re.compile(
    r"""(?P<blank>\s+)|(?P<word>[\w\-.:/+@#$%*]+)|(?P<operator>[=!<>~]+)|(?P<mark>[()\[\],])"""
    r"""|(?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')""",
    re.DOTALL,
)
_NEVER = re.compile("[\0\ud800-\udfff]")  # no database and no broker has these in a text
_ESCAPE = re.compile(r"\\(?:u\{(?P<hex>[0-9A-Fa-f]{1,6})\}|(?P<letter>.))", re.DOTALL)
_LETTERS = {"\\": "\\", '"': '"', "'": "'", "n": "\n", "r": "\r", "t": "\t"}
_WHOLE = re.compile(r"-?[0-9]{1,30}")
_SPAN = re.compile(r"(?P<past>-?)(?P<count>[0-9]{1,15})(?P<unit>[dhms])")
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIME = re.compile(_DAY.pattern + r"[T ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?(Z|[+-][0-9]{2}:[0-9]{2})?")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_OPERATORS = ("=", "!=", "<", "<=", ">", ">=", "~")
_MEANT_OPERATORS = {"==": "=", "===": "=", "<>": "!=", "=<": "<=", "=>": ">=", "=~": "~", "~=": "~", "~~": "~"}
_MEANT_CHARACTERS = {
    "&": "Write and",
    "|": "Write or",
    "\\": "Put the text in quotes, and write \\\\ in it",
    **dict.fromkeys("\u2018\u2019\u201a\u201c\u201d\u201e\u00ab\u00bb`", "Write \" or ' around a text"),
}
_HOW = {
    "text": "Write a word, or a text in quotes",
    "header": "Write a word, a number, or a text in quotes",
    "number": "Write a whole number without quotes, as in failures > 3",
    "time": 'Write a time as in 2026-11-25, 2026-11-25T06:00Z, "2026-11-25 06:00", -2h, today or yesterday',
    "age": "Write a whole number with s, m, h or d, as in age > 2h",
}


class _Token(NamedTuple):
    """Is one part of the text. `value` is its text; of a string, what stands between the quotes."""

    kind: Literal["word", "operator", "mark", "string", "end"]
    value: str
    column: int  # from 1


def parse_filter(text: str, where: str = "--where") -> Filter:
    """Return the filter that the text describes.

    Raises ConfigError with the code `filter-syntax` for every other text; the error names the column, and begins with
    `where`.
    """
    parser = _Parser(text, where)
    return parser.whole()


def parse_since(text: str, now_us: int, where: str = "--since") -> int:
    """Return the first microsecond since 1970 that a text means: a length of time before now, a day, or an instant.

    Raises ConfigError for every other text.
    """
    token = _Token("string", text.strip(), 1)
    span = _SPAN.fullmatch(token.value)
    found = _time(token._replace(value=f"-{token.value}") if span and not span["past"] else token)
    if found is None:
        raise ConfigError(
            f"{_shown(token)} is no time",
            where=where,
            cure='Write a length of time as in 2h or 3d, or a time as in 2026-11-25 or "2026-11-25 06:00Z"',
            code="option-value",
        )
    return found.interval_us(now_us)[0]


def parse_age(text: str, where: str) -> int:
    """Return the seconds of a length of time such as `30d`. Raises ConfigError for every other text."""
    token = _Token("string", text.strip(), 1)
    found = _age(token)
    if found is None:
        raise ConfigError(
            f"{_shown(token)} is no length of time",
            where=where,
            cure="Write a whole number with s, m, h or d, as in 30d",
            code="option-value",
        )
    return found.seconds


class _Parser:
    """Reads one text from left to right, by recursive descent."""

    def __init__(self, text: str, where: str) -> None:
        self._text, self._where = text, where
        if len(text) > MAX_LENGTH:
            raise self._error(
                MAX_LENGTH + 1,
                f"the filter has {len(text)} characters, and {MAX_LENGTH} are possible",
                "Write less, or select in two steps",
            )
        self._tokens = self._split()
        self._at = 0
        self._nesting = 0
        self._conditions = 0

    def whole(self) -> Filter:
        if self._next().kind == "end":
            raise self._error(1, "the filter is empty", "Write a condition, as in failures > 3")
        found = self._disjunction()
        if self._next().kind != "end":
            self._fail_after_a_condition()
        if len(str(found)) > MAX_LENGTH:
            raise self._error(
                1,
                f"the filter has more than {MAX_LENGTH} characters once it is written with its blanks and escapes",
                "Write less, or select in two steps",
            )
        return found

    # -- tokens -------------------------------------------------------------------------------------

    def _split(self) -> list[_Token]:
        """Return the parts of the text, and one that marks its end."""
        if never := _NEVER.search(self._text):
            raise self._error(
                never.start() + 1, f"U+{ord(never[0]):04X} is in no text of a dead letter", "Leave it out"
            )
        tokens: list[_Token] = []
        position = 0
        while position < len(self._text):
            part = _PART.match(self._text, position)
            if part is None:
                self._fail_at_a_character(position)
            kind = part.lastgroup
            if kind == "string":
                tokens.append(_Token("string", self._unescaped(part[0][1:-1], position + 1), position + 1))
            elif kind != "blank":
                tokens.append(_Token(cast(Literal["word", "operator", "mark"], kind), part[0], position + 1))
            position = part.end()
        return [*tokens, _Token("end", "", len(self._text) + 1)]

    def _unescaped(self, inner: str, start: int) -> str:
        def character(escape: re.Match[str]) -> str:
            if escape["letter"] in _LETTERS:
                return _LETTERS[escape["letter"]]
            code = int(escape["hex"], 16) if escape["hex"] else 0
            if code > 0x10FFFF or _NEVER.match(chr(code)):
                raise self._error(
                    start + escape.start() + 1,
                    f"{quoted(escape[0])[1:-1].replace(chr(92) * 2, chr(92))} is no escape of a character",
                    r"""Write \\ \" \' \n \r \t or \u{e9}""",
                )
            return chr(code)

        return _ESCAPE.sub(character, inner)

    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _take(self) -> _Token:
        token = self._tokens[self._at]
        self._at += token.kind != "end"
        return token

    def _take_keyword(self, word: str) -> bool:
        found = self._next().kind == "word" and self._next().value.lower() == word
        self._at += found
        return found

    def _take_mark(self, mark: str) -> bool:
        found = self._next().kind == "mark" and self._next().value == mark
        self._at += found
        return found

    # -- conditions and what joins them -------------------------------------------------------------

    def _disjunction(self) -> Filter:
        parts = [self._conjunction()]
        while self._take_keyword("or"):
            parts.append(self._conjunction())
        return Disjunction(tuple(parts)) if len(parts) > 1 else parts[0]

    def _conjunction(self) -> Filter:
        parts = [self._unit()]
        while self._take_keyword("and"):
            parts.append(self._unit())
        return Conjunction(tuple(parts)) if len(parts) > 1 else parts[0]

    def _unit(self) -> Filter:
        opening = self._next()
        if self._take_keyword("not"):
            self._enter(opening)
            found: Filter = Negation(self._unit())
        elif self._take_mark("("):
            self._enter(opening)
            found = self._disjunction()
            if not self._take_mark(")"):
                if self._next().kind != "end":
                    self._fail_after_a_condition()
                raise self._error(opening.column, "this ( is never closed", "Write a ) after its last condition")
        else:
            return self._condition()
        self._nesting -= 1
        return found

    def _enter(self, opening: _Token) -> None:
        self._nesting += 1
        if self._nesting > MAX_NESTING:
            raise self._error(
                opening.column,
                f"brackets and not are nested more than {MAX_NESTING} deep",
                "Leave out brackets that change nothing",
            )

    def _condition(self) -> Filter:
        start = self._next()
        field = self._field()
        self._count(start)
        token = self._take()
        if token.kind == "operator":
            return self._comparison(field, token)
        word = token.value.lower() if token.kind == "word" else ""
        if word == "in":
            return self._membership(field)
        if word == "is":
            return self._presence(field)
        raise self._wrong_operator(field, token)

    def _count(self, start: _Token) -> None:
        self._conditions += 1
        if self._conditions > MAX_CONDITIONS:
            raise self._error(
                start.column,
                f"the filter has more than {MAX_CONDITIONS} conditions",
                "Write in (…) for several values of one field; each value of a time or an age counts as a condition",
            )

    def _comparison(self, field: FilterField | HeaderField, token: _Token) -> Filter:
        if token.value not in _OPERATORS:
            raise self._wrong_operator(field, token)
        operator = cast(Operator, token.value)
        if operator == "~" and isinstance(field, FilterField) and field.kind != "text":
            raise self._error(
                token.column, f"~ looks into texts, and {field} is none", "Compare it with =, !=, <, <=, > or >="
            )
        return Comparison(field, operator, self._value(field, operator))

    def _membership(self, field: FilterField | HeaderField) -> Filter:
        opening = self._next()
        if not self._take_mark("("):
            raise self._unexpected("in needs its values in brackets", f"Write {_name(field)} in (…, …)")
        values: list[FilterValue] = []
        while True:
            start = self._next()
            if len(values) == MAX_VALUES:
                raise self._error(
                    start.column, f"this in has more than {MAX_VALUES} values", "Divide them among several filters"
                )
            values.append(self._value(field, "="))
            if len(values) > 1 and isinstance(field, FilterField) and field.kind in ("time", "age"):
                self._count(start)
            if self._take_mark(")"):
                return Membership(field, tuple(values))
            if self._next().kind == "end":
                raise self._error(opening.column, "this ( is never closed", "Write a ) after the last value")
            if not self._take_mark(","):
                raise self._unexpected(
                    "there is no comma between two values", "Write a comma; put a text with blanks in quotes"
                )

    def _presence(self, field: FilterField | HeaderField) -> Filter:
        if self._take_keyword("present"):
            return Presence(field, True)
        if self._take_keyword("missing"):
            return Presence(field, False)
        word = self._next().value.lower() if self._next().kind == "word" else ""
        cure = {"not": "present", "null": "missing", "none": "missing", "empty": "missing"}.get(word)
        cure = f"Write {_name(field)} is {cure}" if cure else "Write is present or is missing; for a value, write ="
        raise self._unexpected("is asks only whether a field is there", cure)

    # -- fields -------------------------------------------------------------------------------------

    def _field(self) -> FilterField | HeaderField:
        token = self._take()
        if token.kind == "word" and token.value.lower() not in KEYWORDS:
            if token.value == "header":
                return self._header_in_brackets(token)
            if token.value.startswith("header.") and len(token.value) > len("header."):
                return HeaderField(token.value.removeprefix("header."))
            if token.value in FIELDS:
                return FIELDS[token.value]
            raise self._error(token.column, f"{_shown(token)} is no field", _meant_field(token.value))
        if token.kind == "operator" and set(token.value) == {"!"}:
            raise self._error(token.column, f"{_shown(token)} is no operator here", "Write not")
        if token.kind == "string":
            raise self._error(
                token.column,
                f"the text {_shown(token)} stands where a field is needed",
                "Write the field without quotes on the left, and its value on the right",
            )
        raise self._error(
            token.column,
            f"a field is needed here, not {_shown(token)}",
            "Write a condition, as in failures > 3, or not, or a bracket",
        )

    def _header_in_brackets(self, token: _Token) -> HeaderField:
        how = 'Write header.NAME, or header["any name"]'
        if not self._take_mark("["):
            raise self._error(token.column, "header needs the name of a header", how)
        name = self._next()
        if name.kind != "string":
            raise self._unexpected("the name of a header stands in quotes between [ and ]", how)
        self._take()
        if not self._take_mark("]"):
            raise self._unexpected("the ] after the name of a header is missing", how)
        return HeaderField(name.value)

    # -- values -------------------------------------------------------------------------------------

    def _value(self, field: FilterField | HeaderField, operator: Operator) -> FilterValue:
        token = self._take()
        kind = field.kind if isinstance(field, FilterField) else "header"
        if token.kind not in ("word", "string"):
            raise self._error(token.column, f"a value is needed here, not {_shown(token)}", _HOW[kind])
        if token.kind == "word" and token.value.lower() in KEYWORDS:
            raise self._error(
                token.column,
                f"a value is needed here, not the keyword {token.value}",
                f"Write {quoted(token.value)} for the text",
            )
        if token.value == "" and (kind != "header" or operator == "~"):
            raise self._error(
                token.column,
                f"nothing can be compared with an empty text as a value of {_name(field)}",
                f"Write {_name(field)} is missing, or is present",
            )
        if isinstance(field, FilterField) and kind == "text" and operator in ("=", "!="):
            return _as_stored(field, token.value)
        if kind == "text" or (kind == "header" and (token.kind == "string" or operator == "~")):
            return token.value
        if kind == "header":
            return self._number(token) if NUMBER.fullmatch(token.value) else token.value
        found = {"number": _whole_number, "time": _time, "age": _age}[kind](token)
        if found is None:
            raise self._error(
                token.column, f"{_shown(token)} is no value of {_name(field)}", _meant_value(kind, token) or _HOW[kind]
            )
        return found

    def _number(self, token: _Token) -> float:
        found = float(token.value) + 0.0  # makes 0.0 of -0.0
        if not math.isfinite(found):
            raise self._error(
                token.column, f"the number {_shown(token)} is too large", "Compare it as a text, in quotes"
            )
        return found

    # -- errors -------------------------------------------------------------------------------------

    def _error(self, column: int, what: str, cure: str) -> ConfigError:
        """Return the error, with the text and a mark under the column where both fit on one line."""
        if len(self._text) <= _WIDTH and self._text.isascii() and self._text.isprintable() and self._text.strip():
            cure = f"{cure}\n  {self._text}\n  {' ' * (column - 1)}^"
        return ConfigError(what, where=f"{self._where}: column {column}", cure=cure, code="filter-syntax")

    def _unexpected(self, what: str, cure: str) -> ConfigError:
        return self._error(self._next().column, f"{what}, and here is {_shown(self._next())}", cure)

    def _wrong_operator(self, field: FilterField | HeaderField, token: _Token) -> ConfigError:
        name, word = _name(field), token.value.lower()
        if token.kind == "operator":
            what = f"{_shown(token)} is no operator"
            meant = _MEANT_OPERATORS.get(word)
            cure = f"Write {meant}" if meant else f"Write not {name} ~ …" if word == "!~" else ""
        else:
            what = f"an operator is needed after {name}, not {_shown(token)}"
            cure = {
                "not": f"Write not {name} in (…), or not {name} = …",
                "like": f"Write {name} ~ …",
                "contains": f"Write {name} ~ …",
                "between": f"Write {name} >= … and {name} <= …",
            }.get(word, "")
        return self._error(token.column, what, cure or "Write =, !=, <, <=, >, >=, ~, in (…), is present or is missing")

    def _fail_after_a_condition(self) -> NoReturn:
        token = self._next()
        if token.kind == "mark" and token.value == ")":
            raise self._error(token.column, "this ) closes no (", "Leave it out, or write a ( before")
        raise self._error(
            token.column,
            f"a condition ends before {_shown(token)}",
            "Write and, or or between two conditions; put a text with blanks in quotes",
        )

    def _fail_at_a_character(self, position: int) -> NoReturn:
        character = self._text[position]
        if character in "\"'":
            raise self._error(
                position + 1, f"this {character} is never closed", f"Write another {character} after the text"
            )
        shown = character if character.isprintable() else f"U+{ord(character):04X}"
        raise self._error(
            position + 1,
            f"{shown} cannot stand outside of quotes",
            _MEANT_CHARACTERS.get(character, "Put the text in quotes"),
        )


def _name(field: FilterField | HeaderField) -> str:
    return field.name if isinstance(field, FilterField) else "header.NAME"


def _as_stored(field: FilterField, text: str) -> str:
    """Return the text of a destination as the store has it: `source` names its kind, `queue` only if it has to."""
    if field.name == "source":
        return text if text.startswith(("queue:", "topic:")) else f"queue:{text}"
    bare = text.removeprefix("queue:")
    return bare if field.name == "queue" and bare and not bare.startswith(("queue:", "topic:")) else text


def _shown(token: _Token) -> str:
    """Return what a person sees of a token."""
    if token.kind == "end":
        return "the end of the filter"
    if token.kind in ("mark", "operator"):
        return token.value[:_SHOWN]
    return quoted(token.value if len(token.value) <= _SHOWN else token.value[: _SHOWN - 1] + "…")


def _meant_field(name: str) -> str:
    head, _, rest = name.partition(".")
    if rest and head.lower() in ("header", "headers", "property", "properties", "application_properties"):
        return f"Did you mean header.{rest[:_SHOWN]}?"
    near = name.lower() if name.lower() in FIELDS else OTHER_NAMES.get(name.lower())
    near = near or next(iter(difflib.get_close_matches(name.lower()[:_SHOWN], FIELDS, n=1)), None)
    listed = f"The fields are {', '.join(FIELDS)}; a header is header.NAME"
    return f"Did you mean {near}? {listed}" if near else listed


def _whole_number(token: _Token) -> int | None:
    if token.kind == "string" or not _WHOLE.fullmatch(token.value):
        return None
    found = int(token.value)
    return found if abs(found) <= LARGEST_NUMBER else None


def _age(token: _Token) -> Span | None:
    found = _SPAN.fullmatch(token.value)
    seconds = _seconds(found) if found and not found["past"] else None
    return None if seconds is None else Span(seconds)


def _seconds(found: re.Match[str]) -> int | None:
    seconds = int(found["count"]) * UNITS[found["unit"]]
    return seconds if seconds <= LONGEST_SPAN else None


def _time(token: _Token) -> FilterTime | None:
    text = token.value
    if (word := text.lower()) in ("today", "yesterday"):
        return RelativeDay(cast(Literal["today", "yesterday"], word))
    if (found := _SPAN.fullmatch(text)) and found["past"]:
        seconds = _seconds(found)
        return None if seconds is None else Ago(seconds)
    try:
        if _DAY.fullmatch(text):
            return Day((date.fromisoformat(text) - _EPOCH.date()).days)
        if not _TIME.fullmatch(text):
            return None
        when = datetime.fromisoformat(text)
        when = when.replace(tzinfo=UTC) if when.tzinfo is None else when.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return Instant((when - _EPOCH) // timedelta(microseconds=1))


def _meant_value(kind: str, token: _Token) -> str:
    """Return the cure for a value that was nearly right; empty if none is known."""
    found = _SPAN.fullmatch(token.value)
    if found and _seconds(found) is None:
        return f"Write a shorter time; {Span(LONGEST_SPAN)} is the longest"
    if found and kind == "time":
        return f"Write -{token.value} for the time that long ago"
    if found and kind == "age":
        return f"Write {token.value[1:]}, without the sign"
    if kind == "number" and token.kind == "string" and _WHOLE.fullmatch(token.value):
        return "Write it without quotes"
    if kind == "number" and _WHOLE.fullmatch(token.value):
        return f"The largest number is {LARGEST_NUMBER}"
    return ""
