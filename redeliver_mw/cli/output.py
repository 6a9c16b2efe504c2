# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Formats tables, messages and times for the command line, without secrets and without terminal control characters."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

from ..dead_letters.shown import body_of as body_of
from ..dead_letters.shown import headers_shown as headers_shown
from ..dead_letters.shown import history_as_json as history_as_json
from ..message import Delivery
from ..redaction import visible
from ..redelivery.headers import AttemptHistory

CUT = 80  # characters of a text in a table
SHORT_ID = 8  # characters of an id in a table, if that is enough
_STEERING = re.compile(
    r"[\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)  # characters that are escaped in JSON


def print_table(names: Sequence[str], rows: Iterable[Sequence[str]], *, right: Collection[int] = ()) -> None:
    """Print a table on stdout. Columns in `right` are right-aligned.

    A pipe has no width, so nothing is cut for a pipe.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for number, name in enumerate(names):
        table.add_column(name, justify="right" if number in right else "left", overflow="fold")
    for cells in rows:
        table.add_row(*(Text(cell) for cell in cells))  # Text, because a name may look like markup
    console = Console()
    (console if console.is_terminal else Console(width=10_000)).print(table)


def plain(text: str, *, lines: bool = False) -> str:
    """Return another program's text with its control characters spelled out; `lines` keeps line ends and tabs."""
    return visible(text, lines=lines)


def print_json(value: object) -> None:
    """Print one line of JSON. Terminal control characters, and characters that UTF-8 cannot encode, are escaped."""
    print(_STEERING.sub(lambda c: f"\\u{ord(c[0]):04x}", json.dumps(value, ensure_ascii=False)))


def cut(text: str) -> str:
    return text if len(text) <= CUT else text[: CUT - 1] + "…"


def when(seconds: float | None) -> str:
    """Return a time as UTC text; empty for None.

    A time outside of any calendar, from another program, is described in words.
    """
    if seconds is None:
        return ""
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return "no time" if seconds != seconds else "after 9999" if seconds > 0 else "before the year 1"


def short_ids(ids: Sequence[str]) -> dict[str, str]:
    """Return each id, shortened as far as `--id` still distinguishes it from the other ids of this list."""
    ordered = sorted(set(ids))
    need = dict.fromkeys(ordered, SHORT_ID)
    for left, right in pairwise(ordered):
        common = next((n for n, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), len(left)) + 1
        need[left], need[right] = max(need[left], common), max(need[right], common)
    return {id_: plain(id_[:length]) for id_, length in need.items()}


def print_history(attempts: AttemptHistory) -> None:
    """Print a table of a letter's last attempts, oldest first; nothing if there are none."""
    rows = [
        (when(a.at_us / 1e6), plain(a.fingerprint), plain(a.host), "" if a.delay is None else f"{a.delay:g} s")
        for a in attempts
    ]
    if rows:
        print_table(("failed", "fingerprint", "host", "then rested"), rows, right={3})


def headers_of(delivery: Delivery) -> dict[str, Any]:
    """Return all headers, redacted, as JSON values."""
    return headers_shown(delivery.headers)
