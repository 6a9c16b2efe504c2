# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Plays each fault on each cluster and prints a table.

Usage: `python -m tests.infrastructure [--cluster NAME]… [--fault NAME]… [--json FILE] [--markdown FILE]`.

The exit status is 1 if a message was lost that the broker did not drop itself, if one did not come to its end, or if a
consumer did not consume again in time.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from tests.infrastructure.plan import CLUSTERS
from tests.infrastructure.play import play
from tests.infrastructure.scene import Row
from tests.infrastructure.table import markdown, pages, verdicts


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.infrastructure")
    parser.add_argument("--cluster", action="append", choices=sorted(CLUSTERS), help="all, if none is named")
    parser.add_argument("--fault", action="append", metavar="NAME", help="all, if none is named")
    parser.add_argument("--json", type=Path, metavar="FILE", help="the rows; a file that is there is added to")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="shorter tables, as docs/infrastructure.md has")
    parser.add_argument(
        "--logs", type=Path, metavar="FOLDER", help="keep the logs of consumers and brokers' nodes there"
    )
    asked = parser.parse_args()
    known = {fault.name for plan in CLUSTERS.values() for fault in plan.faults}
    if unknown := set(asked.fault or ()) - known:
        parser.error(f"no fault is called {', '.join(sorted(unknown))}; there are {', '.join(sorted(known))}")
    before = json.loads(asked.json.read_text()) if asked.json and asked.json.exists() else []
    rows = [Row(**row) for row in before]
    new: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="redeliver-infrastructure-") as scratch:
        folder = asked.logs or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        for name in asked.cluster or CLUSTERS:
            for row in play(name, asked.fault, folder):
                new.append(row)
                print(markdown([row]).splitlines()[-1], *row.wrong, sep="\n    ", file=sys.stderr, flush=True)
                if asked.json:
                    asked.json.write_text(json.dumps([one.as_json() for one in rows + new], indent=1) + "\n")
    table = markdown(rows + new)
    if asked.markdown:
        asked.markdown.write_text(pages(rows + new))
    print(table)
    wrong = verdicts(new)
    print(*wrong, sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
