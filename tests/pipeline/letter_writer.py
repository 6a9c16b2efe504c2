# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Puts staged letters into the table, forgets old ones, and merges small files: a program without Spark or a broker.

`python letter_writer.py PLACE forget|gather|optimize STEP` kills itself before its request of this number.
Credentials come from the environment.
"""

from __future__ import annotations

import sys

from redeliver_mw.pipeline import Lake, optimize
from redeliver_mw.pipeline.draining.commit import gather
from redeliver_mw.pipeline.lake.retention import forget
from tests.pipeline.head_writer import die_before

LATER = "2027-01-01"  # all letters of the tests died before


def main() -> None:
    place, what, step = sys.argv[1:]
    die_before(int(step))
    work(place, what)


def work(place: str, what: str) -> None:
    """Do what a drain does at its end, what `forget --bodies --execute` does, or what `optimize --keep 0s` does."""
    lake = Lake(place)
    if what == "gather":
        with lake.locked("dead_letters"):
            gather(lake)
    elif what == "optimize":
        optimize(lake, keep_s=0, workers=1)
    else:
        forget(lake, LATER, bodies_only=True, execute=True)


if __name__ == "__main__":
    main()
