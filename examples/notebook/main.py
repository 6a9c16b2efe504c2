# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Runs the cells of `lake.ipynb` on a small lake: `python main.py [--out FOLDER]`. Needs Spark, and no Jupyter.

The journal is of one day of the quarter, July 14, when the warehouse was down. The same seed gives the same attempts.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from redeliver_mw.pipeline import compact, session
from redeliver_mw.pipeline.insights import insights

HERE = Path(__file__).resolve().parent
MESSAGES = 300


def cells(notebook: Path) -> list[str]:
    """Return the code of a notebook, cell by cell."""
    given = json.loads(notebook.read_text(encoding="utf-8"))
    return ["".join(cell["source"]) for cell in given["cells"] if cell["cell_type"] == "code"]


def make_lake(folder: Path) -> Path:
    """Make the journal of a day, and a lake of it with its marts."""
    sys.path.insert(0, str(HERE.parent / "quarter"))
    import day

    journal, lake = folder / "journal", folder / "lake"
    day.run(day.Day(13, 0, MESSAGES, 1), journal)
    spark = session("local[2]")
    compact(spark, journal, lake)
    insights(spark, lake)
    return lake


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="a new folder that stays; by default a temporary one")
    told = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        os.environ["REDELIVER_LAKE"] = str(make_lake(told.out or Path(temporary)))
        names: dict[str, Any] = {"__name__": "__main__"}
        for number, source in enumerate(cells(HERE / "lake.ipynb"), 1):
            exec(compile(source, f"cell {number}", "exec"), names)
        names["spark"].stop()


if __name__ == "__main__":
    main()
