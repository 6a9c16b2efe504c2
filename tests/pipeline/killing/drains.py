# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""`python drains.py LAKE MASTER BATCH URL QUEUE …`: drains each queue until nothing is left; a line for each drain."""

import json
import sys
from dataclasses import asdict

from redeliver_mw.errors import RedeliverError
from redeliver_mw.pipeline import drain, session

MANY = 12  # drains of one queue


def main() -> None:
    lake, master, batch, *queues = sys.argv[1:]
    spark = session(master)
    for url, queue in zip(queues[::2], queues[1::2], strict=True):
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
    spark.stop()


main()
