# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Applies the same changes to every letter of a plan, as given by `--set` and `--unset`. No Spark.

::

    --set header.NAME=VALUE    a header, as a text
    --set body.PATH=VALUE      in a body that is a JSON object: PATH is names, and numbers of list items, with dots
                               between them; VALUE is JSON, or a text if it is no valid JSON
    --set to=queue:NAME        the letter's target
    --unset header.NAME        the header is removed
    --unset body.PATH          the name in the body is removed
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from ...dead_letters.edits.letter import Letter, checked_target
from ...errors import ConfigError

_CURE: Final = "Write header.NAME=VALUE, body.PATH=VALUE or to=queue:NAME"
_CURE_UNSET: Final = "Write header.NAME or body.PATH"


@dataclass(frozen=True, slots=True)
class Edit:
    """Describes one change. `place`: `header`, `body` or `to`. `path`: the header's name, or the names in the body."""

    place: str
    path: tuple[str, ...]
    value: Any = None
    remove: bool = False


def parse_edits(given: Sequence[str], removed: Sequence[str] = ()) -> tuple[Edit, ...]:
    """Return the edits of the options. Raises ConfigError for an invalid edit."""
    return (*(_parsed(one) for one in given), *(_removal(one) for one in removed))


def edited(letter: Letter, edits: Sequence[Edit]) -> Letter:
    """Return the letter with all edits applied in order.

    Raises ValueError if an edit does not fit the letter's body.
    """
    in_body = [edit for edit in edits if edit.place == "body"]
    if in_body:
        letter = letter.changed(json=_in_body(letter, in_body))
    for edit in edits:
        if edit.place == "header":
            letter = letter.changed(headers={edit.path[0]: edit.value})
        elif edit.place == "to":
            letter = letter.changed(target=edit.value)
    return letter


def _in_body(letter: Letter, edits: Sequence[Edit]) -> Any:
    try:
        body = json.loads(letter.body, parse_float=_exact)
    except UnicodeDecodeError as error:
        raise ValueError(f"its body is not UTF-8, at byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"its body is no JSON: {error}") from None
    for edit in edits:
        _set(body, edit)
    return body


def _set(body: Any, edit: Edit) -> None:
    here, way = body, "body"
    for name in edit.path[:-1]:
        here, way = _step(here, name, way), f"{way}.{name}"
    last = edit.path[-1]
    if isinstance(here, list):
        number = _index(here, last, way)
        if edit.remove:
            del here[number]
        else:
            here[number] = edit.value
    elif not isinstance(here, dict):
        raise ValueError(f"{way} is no JSON object or list")
    elif edit.remove:
        here.pop(last, None)
    else:
        here[last] = edit.value


def _step(here: Any, name: str, way: str) -> Any:
    if isinstance(here, list):
        return here[_index(here, name, way)]
    if not isinstance(here, dict) or name not in here:
        raise ValueError(f"{way} has no {name!r}")
    return here[name]


def _index(items: list[Any], name: str, way: str) -> int:
    if not (name.isascii() and name.isdigit() and int(name) < len(items)):
        raise ValueError(f"{way} is a list of {len(items)}, and has no {name!r}")
    return int(name)


def _exact(text: str) -> float:
    """Return the number in a text. Raises ValueError for a number that would change when it is written again.

    Parts of the body that no edit names must stay unchanged.
    """
    value = float(text)
    if Decimal(text) != Decimal(repr(value)):
        raise ValueError(f"its body has a number that cannot be written again exactly: {text[:40]}")
    return value


def _parsed(given: str) -> Edit:
    place, mark, value = given.partition("=")
    place, path = _place(place.strip(), given, _CURE) if mark else ("", ())
    if place == "header":
        return Edit("header", path, value)
    if place == "body":
        return Edit("body", path, _json_or_text(value))
    if place == "to":
        try:
            return Edit("to", (), checked_target(value))
        except (ConfigError, ValueError) as error:
            raise ConfigError(
                getattr(error, "what", str(error)), where=f"--set {given}", cure=_CURE, code="plan-edit"
            ) from None
    raise ConfigError("no edit", where=f"--set {given}", cure=_CURE, code="plan-edit")


def _removal(given: str) -> Edit:
    place, path = _place(given.strip(), given, _CURE_UNSET)
    if place not in ("header", "body"):
        raise ConfigError("nothing that can be removed", where=f"--unset {given}", cure=_CURE_UNSET, code="plan-edit")
    return Edit(place, path, remove=True)


def _place(text: str, given: str, cure: str) -> tuple[str, tuple[str, ...]]:
    place, _, rest = text.partition(".")
    if place == "header" and rest:
        if rest.startswith("redeliver_"):
            raise ConfigError(
                f"the header {rest} is ours", where=given, cure="Leave it: it says what becomes of it", code="plan-edit"
            )
        return place, (rest,)
    path = tuple(rest.split("."))
    if place == "body" and all(path):
        return place, path
    if place == "to" and not rest:
        return place, ()
    raise ConfigError(f"{text!r} names nothing that can be edited", where=given, cure=cure, code="plan-edit")


def _json_or_text(value: str) -> Any:
    try:
        return json.loads(value, parse_float=_exact, parse_constant=_no_number)
    except ValueError:
        return value


def _no_number(name: str) -> Any:
    raise ValueError(name)
