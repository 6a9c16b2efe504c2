# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Runs compact, insights and report, twice, on one session, for test_s3: `python s3_jobs.py JARS JOURNAL LAKE`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from redeliver_mw.pipeline import Lake, compact, session
from redeliver_mw.pipeline.insights import insights
from redeliver_mw.pipeline.report.job import report
from tests.pipeline.journals import lines, segment


def main() -> None:
    jars, journal, place = sys.argv[1:]
    spark = session("local[2]", {"spark.jars": jars})
    said = []
    for start in (20, 0):  # a copy of ten lines the second time, and one that is no record
        segment(Path(journal), [*lines(range(start, start + 30)), b"half\n"])
        done = compact(spark, journal, place, progress=lambda *_: None)
        rows = insights(spark, place)
        page = report(spark, place)
        lake = Lake(place)
        said.append(
            {
                "records": done.records,
                "duplicates": done.duplicates,
                "quarantined": done.quarantined,
                "events": lake.events(spark).count(),
                "bad": lake.quarantine(spark).count(),
                "messages": rows["messages"],
                "mart": lake.mart(spark, "messages").count(),
                "failed": page.totals.failed,
                "again": compact(spark, journal, place).run,
            }
        )
    print(json.dumps(said))
    spark.stop()


if __name__ == "__main__":
    main()
