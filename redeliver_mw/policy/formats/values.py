# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Reads texts of XML as numbers, flags and words; problems are reported to `Diagnostics`. Pure."""

from __future__ import annotations

import math
import re

from .diagnostics import Diagnostics, nearest
from .xml import Element

LONG = 2**63 - 1
INT = 2**31 - 1
_UNITS = {"ms": 1, "s": 1000, "sec": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000}
_WITH_UNIT = re.compile(r"([0-9]{1,15})\s*(ms|sec|s|min|m|h)", re.ASCII | re.IGNORECASE)
_TIMES = ("delay", "time-to-live")  # endings of the names of times
_WHOLE = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_REAL = re.compile(r"[+-]?([0-9]{1,40}\.?[0-9]{0,40}|\.[0-9]{1,40})([eE][+-]?[0-9]{1,4})?", re.ASCII)


def whole(element: Element, problems: Diagnostics, least: int, most: int) -> int | None:
    """Return the whole number in an element, from `least` to `most`; otherwise None, with a problem reported."""
    number = int(element.text) if _WHOLE.fullmatch(element.text) else None
    if number is None or not least <= number <= most:
        unit = " of milliseconds" if element.name.endswith(_TIMES) else ""
        cure = without_unit(element.text) if unit else None
        _wrong(element, problems, cure or f"Give a whole number{unit} from {least} to {most}")
        return None
    return number


def without_unit(text: str) -> str | None:
    """Return the cure for a delay that is written with a unit, such as `5s`; None for any other text."""
    timed = _WITH_UNIT.fullmatch(text.strip())
    if timed is None:
        return None
    milliseconds = int(timed[1]) * _UNITS[timed[2].lower()]
    return f"Write {milliseconds}: a delay is a whole number of milliseconds, without a unit"


def real(element: Element, problems: Diagnostics, least: float, most: float = math.inf) -> float | None:
    """Return the number in an element, from `least` to `most`; otherwise None, with a problem reported."""
    number = float(element.text) if _REAL.fullmatch(element.text) else math.nan
    if not least <= number <= most or math.isinf(number):
        top = f" to {most:g}" if most < math.inf else " on"
        _wrong(element, problems, f"Give a number from {least:g}{top}")
        return None
    return number


def flag(element: Element, problems: Diagnostics) -> bool | None:
    """Return `true` or `false`, in any case; otherwise None, with a problem reported."""
    if element.text.lower() in ("true", "false"):
        return element.text.lower() == "true"
    _wrong(element, problems, "Use true or false")
    return None


def word(element: Element, problems: Diagnostics, allowed: tuple[str, ...]) -> str | None:
    """Return one of the words, in any case; otherwise None, with a problem that names the nearest word reported."""
    for one in allowed:
        if element.text.lower() == one.lower():
            return one
    near = nearest(element.text, allowed)
    _wrong(element, problems, (f"Did you mean {near}? " if near else "") + f"Use one of: {', '.join(allowed)}")
    return None


def name(element: Element, problems: Diagnostics) -> str | None:
    """Return the name of a destination; None, with a problem reported, if it cannot be a target here."""
    if "$" in element.text:
        problems.add(
            f"a $ in the name {element.text!r:.200}",
            where=element.where,
            cure="Use a name without it: in a target here, $ stands for the name of the source",
            code="policy-target",
        )
        return None
    return element.text


def _wrong(element: Element, problems: Diagnostics, cure: str) -> None:
    found = repr(element.text)[:100] if element.text else "nothing"
    if "${" in element.text:
        cure = "Write the value itself: placeholders are not looked up"
    problems.add(f"{found} is not possible here", where=element.where, cure=cure, code="policy-value")
