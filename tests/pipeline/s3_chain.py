# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Runs commands of `redeliver pipeline` on one Spark session, for test_s3_drivers: `python s3_chain.py JARS`.

Each line of the standard input is a JSON list of words. The program prints a line with each command's exit code.
"""

from __future__ import annotations

import json
import sys

from redeliver_mw.cli.main import run
from redeliver_mw.pipeline import session


def main() -> None:
    spark = session("local[2]", {"spark.jars": sys.argv[1]})
    for line in sys.stdin:
        words = json.loads(line)
        print(f"CODE {words[0]} {run(['pipeline', *words])}", flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
