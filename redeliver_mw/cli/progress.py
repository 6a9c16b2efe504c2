# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Shows on stderr, if that is a terminal, how far a command is."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from .output import plain


@contextmanager
def told_by_queue() -> Iterator[Callable[[str, int, int | None], None] | None]:
    """Yield a function that shows the number of letters of a queue, or None if stderr is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    with _bars() as shown:
        bars: dict[str, Any] = {}

        def tell(queue: str, taken: int, of: int | None) -> None:
            if queue not in bars:
                bars[queue] = shown.add_task(plain(queue), total=of)
            shown.update(bars[queue], completed=taken, total=of)

        yield tell


@contextmanager
def told(what: str) -> Iterator[Callable[[int, int], None] | None]:
    """Yield a function that shows how many of how many are done, or None if stderr is no terminal."""
    with told_by_queue() as tell:
        yield None if tell is None else lambda done, total: tell(what, done, total or None)


@contextmanager
def _bars() -> Iterator[Any]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        yield shown
