# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Reads requests into dataclasses, and describes dataclasses as JSON Schema, from the same annotations. Pure.

A field is a str, int, float, bool, a Literal, one of these or None, a sequence, a mapping from texts, another
dataclass, or Any. `Annotated[…, Limits(…)]` bounds it. A field without a default is required, and a name that is no
field is refused, so that a wrong name never means "no condition".
"""

from __future__ import annotations

import re
import types
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import Annotated, Any, Final, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from .problems import ApiError

T = TypeVar("T")
Schema = dict[str, Any]
LARGEST: Final = 2**63 - 1
LONGEST: Final = 10_000  # characters of a text that nothing else bounds
MOST_ITEMS: Final = 1000
_HINTS: Final[dict[type[Any], Mapping[str, Any]]] = {}
_CURE: Final = "See the description of this route in openapi.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds a value: a number between `least` and `most`, a text or a list with so many characters or items."""

    about: str = ""
    least: int | None = None
    most: int | None = None
    pattern: str = ""
    format: str = ""


def read_json(kind: type[T], value: Any) -> T:
    """Return the dataclass that a JSON value describes. Raises ApiError."""
    return cast(T, _read(kind, value, "body", from_text=False))


def read_query(kind: type[T], pairs: Iterable[tuple[str, str]]) -> T:
    """Return the dataclass that a URL's query describes; a name that is repeated is a sequence. Raises ApiError."""
    hints, given = hints_of(kind), dict[str, Any]()
    for name, text in pairs:
        if name not in hints:
            raise _refused("query", f"there is no parameter {name[:100]!r}", f"There are: {', '.join(hints) or 'none'}")
        if _sequence_of(hints[name]) is not None:
            given.setdefault(name, []).append(text)
        elif name in given:
            raise _refused(f"query {name}", "it is given twice", "Give it once")
        else:
            given[name] = text
    return cast(T, _read(kind, given, "query", from_text=True))


def hints_of(kind: type[Any]) -> Mapping[str, Any]:
    """Return the annotation of each field."""
    if kind not in _HINTS:
        hints = get_type_hints(kind, include_extras=True)
        _HINTS[kind] = {field.name: hints[field.name] for field in fields(kind)}
    return _HINTS[kind]


# -- reading ----------------------------------------------------------------------------------------


def _read(kind: Any, value: Any, where: str, *, from_text: bool) -> Any:
    bare, limits = _bare(kind)
    origin = get_origin(bare)
    if origin in (Union, types.UnionType):
        options = [one for one in get_args(bare) if one is not type(None)]
        if value is None and len(options) < len(get_args(bare)):
            return None
        return _read(Annotated[options[0], limits], value, where, from_text=from_text)
    if is_dataclass(bare):
        return _read_object(cast(type, bare), value, where, from_text=from_text)
    if origin is Literal:
        return _read_choice(get_args(bare), value, where)
    if (item := _sequence_of(bare)) is not None:
        return _read_items(item, value, where, limits, from_text=from_text)
    if origin is not None and issubclass(origin, Mapping):
        return _read_mapping(get_args(bare)[1], value, where, limits)
    if bare is bool:
        return _read_bool(value, where, from_text=from_text)
    if bare in (int, float):
        return _read_number(bare, value, where, limits, from_text=from_text)
    return _read_text(value, where, limits) if bare is str else value


def _read_object(kind: type, value: Any, where: str, *, from_text: bool) -> Any:
    if not isinstance(value, dict):
        raise _refused(where, "it is no JSON object", _CURE)
    hints = hints_of(kind)
    if unknown := sorted(value.keys() - hints.keys()):
        raise _refused(where, f"there is no field {unknown[0][:100]!r}", f"There are: {', '.join(hints) or 'none'}")
    for field in fields(kind):
        if field.name not in value and field.default is MISSING and field.default_factory is MISSING:
            raise _refused(where, f"{field.name!r} is missing", _CURE)
    return kind(
        **{name: _read(hints[name], one, f"{where} {name}", from_text=from_text) for name, one in value.items()}
    )


def _read_choice(choices: Sequence[str], value: Any, where: str) -> str:
    if isinstance(value, str) and value in choices:
        return value
    raise _refused(where, "this is not one of the possible values", f"Write one of: {', '.join(choices)}")


def _read_items(item: Any, value: Any, where: str, limits: Limits, *, from_text: bool) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise _refused(where, "it is no JSON array", _CURE)
    _check_number(len(value), where, limits, "items", MOST_ITEMS)
    return tuple(_read(item, one, where, from_text=from_text) for one in value)


def _read_mapping(item: Any, value: Any, where: str, limits: Limits) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _refused(where, "it is no JSON object", _CURE)
    _check_number(len(value), where, limits, "members", MOST_ITEMS)
    return {
        _read_text(name, where, Limits(least=1)): _read(item, one, where, from_text=False)
        for name, one in value.items()
    }


def _read_bool(value: Any, where: str, *, from_text: bool) -> bool:
    if from_text and value in ("true", "false"):
        return bool(value == "true")
    if isinstance(value, bool):
        return value
    raise _refused(where, "it is neither true nor false", _CURE)


def _read_number(kind: type, value: Any, where: str, limits: Limits, *, from_text: bool) -> int | float:
    if from_text:
        pattern = r"-?[0-9]{1,19}" if kind is int else r"-?[0-9]{1,19}(\.[0-9]{1,19})?"
        if re.fullmatch(pattern, value) is None:
            raise _refused(where, "it is no number", _CURE)
        value = kind(value)
    if kind is int and isinstance(value, float) and value.is_integer() and abs(value) <= LARGEST:
        value = int(value)  # JSON knows one kind of numbers
    if isinstance(value, bool) or not isinstance(value, int if kind is int else int | float):
        raise _refused(where, "it is no whole number" if kind is int else "it is no number", _CURE)
    _check_number(value, where, limits, "", LARGEST, -LARGEST)
    return int(value) if kind is int else float(value)


def _read_text(value: Any, where: str, limits: Limits) -> str:
    if not isinstance(value, str):
        raise _refused(where, "it is no text", _CURE)
    if "\0" in value or any("\ud800" <= one <= "\udfff" for one in value):
        raise _refused(where, "it has a character that no database and no broker has in a text", "Leave it out")
    _check_number(len(value), where, limits, "characters", LONGEST)
    if limits.pattern and re.search(limits.pattern, value, re.ASCII) is None:
        raise _refused(where, "it does not have the form that is asked for", f"It has to match {limits.pattern}")
    return value


def _check_number(value: float, where: str, limits: Limits, unit: str, most: int, least: int = 0) -> None:
    least = least if limits.least is None else limits.least
    most = most if limits.most is None else limits.most
    if not least <= value <= most:
        what = f"it has {value} {unit}" if unit else "it is out of range"
        raise _refused(where, what, f"Possible are {least} to {most}")


def _refused(where: str, what: str, cure: str) -> ApiError:
    return ApiError(400, what, where=where, cure=cure, code="api-request")


def _bare(kind: Any) -> tuple[Any, Limits]:
    if get_origin(kind) is Annotated:
        inner, *extras = get_args(kind)
        return inner, next((one for one in extras if isinstance(one, Limits)), Limits())
    return kind, Limits()


def _sequence_of(kind: Any) -> Any | None:
    bare, _ = _bare(kind)
    origin = get_origin(bare)
    if origin is not None and isinstance(origin, type) and issubclass(origin, Sequence):
        return get_args(bare)[0]
    return None


# -- JSON Schema ------------------------------------------------------------------------------------


def schema_of(kind: Any, definitions: dict[str, Schema]) -> Schema:
    """Return the schema of an annotation; schemas of dataclasses go into `definitions`, and are referred to."""
    bare, limits = _bare(kind)
    origin = get_origin(bare)
    about: Schema = {"description": limits.about} if limits.about else {}
    if origin in (Union, types.UnionType):
        options = [one for one in get_args(bare) if one is not type(None)]
        inner = schema_of(Annotated[options[0], limits], definitions)
        if len(options) == len(get_args(bare)):
            return inner
        if isinstance(inner.get("type"), str) and "enum" not in inner:
            return inner | {"type": [inner["type"], "null"]}
        inner.pop("description", None)
        return {"anyOf": [inner, {"type": "null"}], **about}
    if is_dataclass(bare):
        return {"$ref": f"#/components/schemas/{_define(cast(type, bare), definitions)}", **about}
    if origin is Literal:
        return {"type": "string", "enum": list(get_args(bare)), **about}
    if (item := _sequence_of(bare)) is not None:
        return {"type": "array", "items": schema_of(item, definitions), **_bounds(limits, "Items"), **about}
    if origin is not None and issubclass(origin, Mapping):
        values = schema_of(get_args(bare)[1], definitions)
        return {"type": "object", "additionalProperties": values, **_bounds(limits, "Properties"), **about}
    if bare is bool:
        return {"type": "boolean", **about}
    if bare in (int, float):
        found: Schema = {"type": "integer" if bare is int else "number"}
        ends = {"minimum": limits.least, "maximum": limits.most}
        return found | {name: end for name, end in ends.items() if end is not None} | about
    if bare is str:
        more = {"pattern": limits.pattern, "format": limits.format}
        return {"type": "string", **_bounds(limits, "Length"), **{n: v for n, v in more.items() if v}, **about}
    return about


def _bounds(limits: Limits, noun: str) -> Schema:
    ends = {f"min{noun}": limits.least, f"max{noun}": limits.most}
    return {name: end for name, end in ends.items() if end is not None}


def _define(kind: type, definitions: dict[str, Schema]) -> str:
    name = kind.__name__
    if name not in definitions:
        definitions[name] = {}  # a shape may hold itself
        hints = hints_of(kind)
        required = [
            field.name for field in fields(kind) if field.default is MISSING and field.default_factory is MISSING
        ]
        text = " ".join((kind.__doc__ or "").split())
        definitions[name] = {
            "type": "object",
            **({"description": text} if text and not text.startswith(f"{name}(") else {}),
            "properties": {one: schema_of(hint, definitions) for one, hint in hints.items()},
            **({"required": required} if required else {}),
            "additionalProperties": False,
        }
    return name
