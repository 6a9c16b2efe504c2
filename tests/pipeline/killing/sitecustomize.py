# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Kills Spark's Python workers, and no other process, each at a line picked by chance, for test_drain_brokers.

Python imports this module by itself where its folder is on the path. A worker is a fork of Spark's daemon. When
a worker is forked, it is settled at which line of which file the worker is killed, and how often that line is passed
first. KILLS is a folder with a file for each kill that may still be had; REDELIVER_KILLS_SEED makes the picks.
"""

import ast
import os
import random
import signal
import sys
import threading
from pathlib import Path

FILES = (
    "dead_letters/drain.py",
    "pipeline/draining/staging.py",
    "pipeline/draining/tasks.py",
    "pipeline/lake/parquet_writer.py",
)
OFTEN = 8  # so many times at most a line is passed first
PICKS = 10  # for one worker, of which the first that comes counts: some lines are never reached


def lines(path):
    """Return the lines of a file that are statements in functions, each with the file's path."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef):
            found |= {one.lineno for part in node.body for one in ast.walk(part) if isinstance(one, ast.stmt)}
    return [(path.as_posix(), line) for line in sorted(found)]


def arm():
    chance = random.Random(f"{os.environ['REDELIVER_KILLS_SEED']}-{os.getpid()}")
    left = {place: chance.randint(1, OFTEN) for place in chance.choices(PLACES, k=PICKS)}
    files = {file for file, _ in left}

    def watch(frame, event, _):
        place = frame.f_code.co_filename, frame.f_lineno
        if event == "line" and place in left:
            left[place] -= 1
            if left[place] == 0:
                kill("{}:{}".format(*place))
                left[place] = chance.randint(1, OFTEN)  # there was no kill to be had
        return watch

    def enter(frame, event, _):
        return watch if frame.f_code.co_filename in files else None

    threading.settrace(enter)
    sys.settrace(enter)


def kill(where):
    for ticket in sorted(KILLS.glob("ticket-*")):
        try:
            ticket.rename(ticket.with_name(ticket.name.replace("ticket", "used")))
        except FileNotFoundError:
            continue  # another worker has taken it
        with open(KILLS / "log", "a") as log:
            log.write(f"{where}\n")
        os.kill(os.getpid(), signal.SIGKILL)


if "REDELIVER_KILLS" in os.environ and "pyspark.daemon" in " ".join(sys.orig_argv):
    KILLS = Path(os.environ["REDELIVER_KILLS"])
    ROOT = Path(os.environ["REDELIVER_KILLS_CODE"])
    PLACES = [place for name in FILES for place in lines(ROOT / "redeliver_mw" / name)]
    os.register_at_fork(after_in_child=arm)
