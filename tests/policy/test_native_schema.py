# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests the JSON Schema of the native language, which editors use: it knows the keys that the reader knows."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

import pytest

from redeliver_mw.errors import PolicyError
from redeliver_mw.policy.formats.native import reader, values

from .test_native import BACKOFFS, RULES, STOPS, WHOLE

SCHEMA: dict[str, Any] = json.loads((files(reader.__package__ or "") / "native.schema.json").read_text("utf-8"))
KEYWORDS = {
    "$schema",
    "title",
    "description",
    "$defs",
    "$ref",
    "type",
    "properties",
    "additionalProperties",
    "required",
    "minProperties",
    "propertyNames",
    "pattern",
    "enum",
    "const",
    "anyOf",
    "items",
    "minItems",
    "maxItems",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "minLength",
    "default",
    "format",
}
TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "integer": int, "number": (int, float)}


def valid(schema: Any, given: Any) -> bool:
    """Return whether JSON Schema allows a value, by the meaning of the few keywords that are used here."""
    if schema is True:
        return True
    if "$ref" in schema and not valid(SCHEMA["$defs"][schema["$ref"].removeprefix("#/$defs/")], given):
        return False
    wanted = schema.get("type")
    if wanted and (not isinstance(given, TYPES[wanted]) or (isinstance(given, bool) and wanted != "boolean")):
        return False
    if "enum" in schema and given not in schema["enum"]:
        return False
    if "const" in schema and given != schema["const"]:
        return False
    if "anyOf" in schema and not any(valid(one, given) for one in schema["anyOf"]):
        return False
    if isinstance(given, int | float) and not isinstance(given, bool):
        between = schema.get("exclusiveMinimum", given - 1) < given < schema.get("exclusiveMaximum", given + 1)
        return bool(between and schema.get("minimum", given) <= given <= schema.get("maximum", given))
    if isinstance(given, str):
        return len(given) >= schema.get("minLength", 0) and bool(re.search(schema.get("pattern", ""), given))
    if isinstance(given, list):
        fits = schema.get("minItems", 0) <= len(given) <= schema.get("maxItems", len(given))
        return fits and all(valid(schema.get("items", True), one) for one in given)
    return not isinstance(given, dict) or _valid_table(schema, given)


def _valid_table(schema: Any, given: dict[str, Any]) -> bool:
    known, others = schema.get("properties", {}), schema.get("additionalProperties", True)
    return (
        len(given) >= schema.get("minProperties", 0)
        and all(name in given for name in schema.get("required", ()))
        and all(valid(schema.get("propertyNames", True), name) for name in given)
        and all(
            valid(known[name], one) if name in known else others and valid(others, one) for name, one in given.items()
        )
    )


def _schemas(part: Any) -> Iterator[dict[str, Any]]:
    if isinstance(part, dict):
        yield part
        inner = [part.get(key) for key in ("additionalProperties", "propertyNames", "items")]
        inner += [*part.get("properties", {}).values(), *part.get("$defs", {}).values(), *part.get("anyOf", [])]
        for one in inner:
            yield from _schemas(one)


def test_only_keywords_are_used_that_these_tests_understand() -> None:
    assert {key for schema in _schemas(SCHEMA) for key in schema} <= KEYWORDS


def test_the_schema_has_the_keys_of_the_reader_and_no_others() -> None:
    fields = set(reader.KEYS)
    assert set(SCHEMA["$defs"]["policy"]["properties"]) == fields
    assert set(SCHEMA["properties"]) == fields | set(reader.TOP) | {"app"}
    assert set(SCHEMA["$defs"]["arm"]["properties"]) == {"share", *reader.FIELDS}
    delays = SCHEMA["$defs"]["delays"]["anyOf"][2]["properties"]
    companions = {name for names in values.SOURCES.values() for name in names}
    assert set(delays) == {*values.SOURCES, *companions, *values.MODIFIERS}
    assert set(delays["recurrence"]["properties"]) == set(values.RECURRENCE)
    assert set(delays["growth"]["properties"]) == set(values.GROWTH)


@pytest.mark.parametrize(
    "text",
    [
        WHOLE,
        "[arms.patient]\nshare = 0.05\nbackoff = 60",
        '[default]\narms = "none"',
        *(f"backoff = {text}" for text, _ in BACKOFFS),
        *(f"dead_after = {text}" for text, _ in STOPS),
        *(f"fatal = {text}" for text, _ in RULES),
    ],
)
def test_what_the_reader_takes_the_schema_takes(text: str) -> None:
    reader.read(text)
    assert valid(SCHEMA, tomllib.loads(text))


@pytest.mark.parametrize(
    "text",
    [
        "dead_afer = 3",
        "dead_after = 0",
        'dead_after = "ever"',
        "backoff = []",
        "backoff = -1",
        "backoff = { inital = 3 }",
        'on_dead = "dicard"',
        "expiry = { log = 'x' }",
        "dead_letter = { kind = 'queue' }",
        "fatal = { flags = ['dotall'] }",
        'syntax = "jms"',
        "[destinations.a]\nbackof = 1",
        "[arms.main]\nshare = 0.05",
        "[arms]",
        "[arms.patient]\nshare = 1",
        "[arms.patient]\nshare = 0",
        "[default.arms.patient]\nbackoff = 60",
        "[default.arms.patient]\nshare = 0.05\nbackof = 60",
        "[arms.patient]\nshare = 0.1\narms = { brave = { share = 0.1 } }",
    ],
)
def test_what_the_schema_refuses_the_reader_refuses(text: str) -> None:
    assert not valid(SCHEMA, tomllib.loads(text))
    with pytest.raises(PolicyError):
        reader.read(text)
