# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""How far the tasks of a compaction are: each leaves an empty file for a piece that it has done.

That works with any Spark: a session over Connect knows nothing of tasks.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from .lake.journal_segments import ListedSegment
from .lake.task_messages import CompactionTask

_EVERY: Final = 0.5  # seconds between two looks


@contextmanager
def ticking(
    work: CompactionTask, segments: Sequence[ListedSegment], tell: Callable[[str, int, int], None] | None
) -> Iterator[None]:
    """Calls `tell("reading", bytes read, bytes to read)` now and then while the block runs, from a thread."""
    if tell is None or work.ticks is None:
        yield
        return
    os.makedirs(work.ticks)
    pieces = [piece for task in work.tasks for piece in task]
    ends = {piece: segments[piece.segment].size if piece.end is None else piece.end for piece in pieces}
    sizes = {f"{piece.segment}-{piece.start}": end - piece.start for piece, end in ends.items()}
    total, over = sum(sizes.values()), threading.Event()

    def look() -> None:
        while not over.wait(_EVERY):
            done = sum(sizes[name] for name in os.listdir(work.ticks))
            tell("reading", done, total)

    tell("reading", 0, total)
    looking = threading.Thread(target=look, name="redeliver-ticking", daemon=True)
    looking.start()
    try:
        yield
    finally:
        over.set()
        looking.join()
