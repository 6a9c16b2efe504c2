# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Drains each queue until nothing is left: `python drains.py LAKE MASTER BATCH KILLS URL QUEUE …`.

The program prints a line for each drain. KILLS is how many kills may be had for each queue; see sitecustomize.
"""

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path

from redeliver_mw.errors import RedeliverError
from redeliver_mw.pipeline import drain, session

MANY = 12  # drains of one queue


def main() -> None:
    lake, master, batch, kills, *queues = sys.argv[1:]
    folder = Path(os.environ["REDELIVER_KILLS"])
    spark = session(master)
    for url, queue in zip(queues[::2], queues[1::2], strict=True):
        for number in range(int(kills)):
            (folder / f"ticket-{queue}-{number:03}").touch()
        for _ in range(MANY):
            try:
                done = drain(spark, url, queue, f"{lake}/{queue}", batch=int(batch))
            except RedeliverError as error:
                print(json.dumps({"queue": queue, "error": str(error)}), flush=True)
                continue
            print(json.dumps({"queue": queue, **asdict(done)}), flush=True)
            if not done.found:
                break
        else:
            sys.exit(f"{queue} is not empty after {MANY} drains")
        for ticket in folder.glob("ticket-*"):
            ticket.unlink()
    spark.stop()


main()
