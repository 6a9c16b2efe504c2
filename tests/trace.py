# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Shows which source files a message enters on its way through an App on `memory://`: `python -m tests.trace`.

The tool sends a message on three trips and counts calls:

- `healthy`: the message is handled at its first attempt;
- `failing`: the handler fails, the message is held, the handler fails again, and the message is dead-lettered;
- `everything`: the trip `failing` with a breaker, a journal, a limbo, `crash_safe=True`, and order by key.

A call is counted if the called function is in a file of `redeliver_mw/` or `adapters/`, except for the memory broker
and the testing package; returns are not counted. A change of file is a counted call whose file is not the file of
the counted call before it. Counting begins when the message is sent and ends when the message is settled and its
journal lines are written. Start and stop of the App are not counted.

The numbers are the same in each run on the same Python version; from 3.12 on, comprehensions are no calls. `TestApp`
moves the clock by hand and runs everything except the journal on the calling thread. The journal's thread waits at its
first counted call until the message is settled, so its calls always follow all others. Each trip is made twice, and the
second one counts: all modules are imported by then. Each of the two has a new App and a new handler. What
`redeliver_mw.failure` makes of a stack is kept for later failures of the same code, so only a new handler shows the
first failure of a handler.
"""

from __future__ import annotations

import argparse
import itertools
import json
import logging
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import FrameType, FunctionType
from typing import Any

import redeliver_mw
from redeliver_mw import App, Delivery, RedeliveryPolicy
from redeliver_mw.testing import TestApp

REPOSITORY = Path(__file__).resolve().parent.parent
COUNTED = ("redeliver_mw/", "adapters/")
LEFT_OUT = ("redeliver_mw/memory/", "redeliver_mw/testing/")

SOURCE = "orders"
DELAY = 1.0  # seconds; short enough to be held
PATIENCE = 10.0  # seconds of real time for the journal's thread
WAITING_CALLS = frozenset({"SimpleQueue.get", "lock.acquire"})  # where an idle thread waits for work


@dataclass(frozen=True, slots=True)
class Trip:
    """Describes what happens to one message, and with which options of the App."""

    name: str
    fails: bool = False
    everything: bool = False

    @property
    def attempts(self) -> int:
        """Return how often the handler is called."""
        return 2 if self.fails else 1


TRIPS = (Trip("healthy"), Trip("failing", fails=True), Trip("everything", fails=True, everything=True))


@dataclass(frozen=True, slots=True)
class Trace:
    """Holds the counted calls of one trip, as the files of the called functions in the order of the calls."""

    trip: str
    calls: tuple[str, ...]

    @property
    def files(self) -> dict[str, int]:
        """Return the number of calls of each file, in the order in which the files were first entered."""
        return dict(Counter(self.calls))

    @property
    def changes(self) -> int:
        """Return how often a counted call was in another file than the counted call before it."""
        return sum(before != after for before, after in itertools.pairwise(self.calls))


class CallCounter:
    """Counts calls on the thread that made this object and on threads that start while `installed`.

    The other threads wait at their first counted call until `finish` is called.
    """

    def __init__(self) -> None:
        self.calls: list[str] = []
        self._own_thread = threading.get_ident()
        self._counting = False
        self._finishing = threading.Event()
        self._idle: dict[int, bool] = {}  # for each other thread with a counted call: whether it waits for work
        self._events = 0  # profile events of other threads

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Observe this thread and each thread that starts meanwhile."""
        before = sys.getprofile(), threading.getprofile()
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)
        try:
            yield
        finally:
            self._counting = False
            self._finishing.set()
            sys.setprofile(before[0])
            threading.setprofile(before[1])

    def start(self) -> None:
        """Count calls from here on."""
        self._counting = True

    def finish(self, is_finished: Callable[[], bool]) -> None:
        """Let the other threads run until `is_finished()` and each of them waits for work; then stop counting.

        Raises RuntimeError if that takes too long.
        """
        self._finishing.set()
        until = time.monotonic() + PATIENCE
        events = -1
        # A thread that waits for work has no events between two looks. A thread that the machine has suspended has
        # none either, but its last event was not the call of a waiting function.
        while not (events == self._events and all(self._idle.values()) and is_finished()):
            if time.monotonic() > until:
                raise RuntimeError("a background thread did not finish its work on the message in time")
            events = self._events
            time.sleep(0.01)
        self._counting = False

    def _profile(self, frame: FrameType, event: str, arg: Any) -> None:
        """Count one call. Called by Python for each call and return on each thread."""
        thread = threading.get_ident()
        if thread != self._own_thread:
            self._events += 1
            if thread in self._idle:
                self._idle[thread] = event == "c_call" and getattr(arg, "__qualname__", "") in WAITING_CALLS
        if event != "call" or not self._counting:
            return
        file = counted_file(frame.f_code.co_filename)
        if file is None:
            return
        if thread != self._own_thread:
            self._idle[thread] = False
            self._finishing.wait()
        self.calls.append(file)


@cache
def counted_file(path: str) -> str | None:
    """Return the path of a source file inside the repository, or None if its calls are not counted."""
    resolved = Path(path).resolve()
    if not resolved.is_relative_to(REPOSITORY):
        return None
    file = resolved.relative_to(REPOSITORY).as_posix()
    return file if file.startswith(COUNTED) and not file.startswith(LEFT_OUT) else None


def trace(trip: Trip) -> Trace:
    """Make the trip twice, and return the calls of the second message."""
    _make(trip)
    return Trace(trip.name, tuple(_make(trip)))


def _make(trip: Trip) -> list[str]:
    """Make the trip once, with a new App, and return its counted calls.

    Raises RuntimeError if the message did not go the way of the trip.
    """
    counter = CallCounter()
    attempts: list[None] = []
    with tempfile.TemporaryDirectory(prefix="redeliver-trace-") as folder, counter.installed():
        journal = Path(folder, "journal")
        app = _app(trip, Path(folder), journal)
        app.handler(SOURCE, key="customer" if trip.everything else None)(_handler(trip, attempts))
        with TestApp(app) as test:
            counter.start()
            test.send(SOURCE, b"one lamp", {"customer": "7"})
            if trip.fails:
                test.advance(DELAY)
            counter.finish(lambda: not trip.everything or _lines(journal) == trip.attempts)
        # The App has stopped: a message that was not settled would be in the queue again.
        letters = len(test.dead_letters(SOURCE))
        if (len(attempts), letters, test.depth(SOURCE)) != (trip.attempts, int(trip.fails), 0):
            raise RuntimeError(f"{trip.name}: {len(attempts)} attempts and {letters} dead letters were not expected")
    return counter.calls


def _app(trip: Trip, folder: Path, journal: Path) -> App:
    """Return a new App, with the options of the trip."""
    policy = RedeliveryPolicy(dead_after=2, backoff=DELAY)
    if not trip.everything:
        return App("memory://", policy=policy, app_name="trace")
    return App(
        "memory://",
        policy=policy,
        app_name="trace",
        breaker=True,
        journal=journal,
        limbo=f"sqlite:///{folder / 'limbo.db'}",
        crash_safe=True,
    )


def _handler(trip: Trip, attempts: list[None]) -> Callable[[Delivery], None]:
    """Return a handler whose failures are new to the process."""

    def on_order(delivery: Delivery) -> None:
        attempts.append(None)
        if trip.fails:
            raise ConnectionError("the warehouse does not answer")

    code = on_order.__code__.replace()
    return FunctionType(code, on_order.__globals__, on_order.__name__, None, on_order.__closure__)


def _lines(journal: Path) -> int:
    """Return the number of lines in the segments of a journal, open segments included."""
    return sum(segment.read_bytes().count(b"\n") for segment in journal.iterdir())


def table(traces: Sequence[Trace]) -> str:
    """Return the numbers of each trip as a table."""
    rows = [("trip", "files entered", "changes of file")]
    rows += [(each.trip, str(len(each.files)), str(each.changes)) for each in traces]
    return "\n".join(f"{trip:<12}{files:>15}{changes:>18}" for trip, files, changes in rows)


def file_list(traced: Trace) -> str:
    """Return the files of a trip in the order of first entry, with the number of calls of each."""
    return "\n".join([f"{traced.trip}:", *(f"{calls:>6}  {file}" for file, calls in traced.files.items())])


def as_json(traces: Sequence[Trace]) -> str:
    """Return the numbers and the files of each trip as JSON."""
    values = {
        each.trip: {
            "files_entered": len(each.files),
            "changes_of_file": each.changes,
            "files": [{"file": file, "calls": calls} for file, calls in each.files.items()],
        }
        for each in traces
    }
    return json.dumps(values, indent=2)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all trips and print what was asked for."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.trace",
        description="Show which source files a message enters on three trips, and how often execution changes file.",
        epilog="healthy: handled at the first attempt. failing: fails, is held, fails again, is dead-lettered. "
        "everything: failing, with a breaker, a journal, a limbo, crash_safe=True and order by key.",
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--files", action="store_true", help="also list the files of each trip, with their calls")
    form.add_argument("--json", action="store_true", help="print everything as JSON")
    options = parser.parse_args(arguments)
    logging.getLogger("redeliver_mw").addHandler(logging.NullHandler())  # the failures of the trips are no news
    imported = Path(redeliver_mw.__file__).resolve().parent
    if imported != REPOSITORY / "redeliver_mw":
        parser.error(f"redeliver_mw was imported from {imported}; run this command in {REPOSITORY}")

    traces = [trace(trip) for trip in TRIPS]
    if options.json:
        print(as_json(traces))
        return 0
    print(table(traces))
    if options.files:
        for each in traces:
            print(f"\n{file_list(each)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
