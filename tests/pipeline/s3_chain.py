# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""`python s3_chain.py JARS COMMANDS`: commands of `redeliver pipeline` on one Spark session. For test_s3_drivers.

COMMANDS is a file with a JSON list of lists of words. Prints a line with each command's exit code.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from redeliver_mw.cli.main import run
from redeliver_mw.pipeline import session


def main() -> None:
    jars, commands = sys.argv[1:]
    spark = session("local[2]", {"spark.jars": jars})
    for words in json.loads(Path(commands).read_text()):
        print(f"CODE {words[0]} {run(['pipeline', *words])}", flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
