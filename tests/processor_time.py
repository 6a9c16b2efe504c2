# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Shows which tests, files and fixtures take the processors' time: `pytest --processor-time`.

Seconds that pass say little on a machine that does other things; the processor time of a test stays the same. This
plugin counts that of the process of the tests and of all its descendants, also of those that are alive: a broker
that a fixture has started works during the tests that use it. Processes that have left their parent are not counted.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import Any

import pytest

TICKS = os.sysconf("SC_CLK_TCK")
SHOWN = 40


def used() -> float:
    """Return the processor time in seconds of this process and its descendants, dead or alive."""
    times, parents = {}, {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # the process has ended meanwhile
            parents[int(folder.name)] = int(fields[1])
            times[int(folder.name)] = sum(int(field) for field in fields[11:15]) / TICKS
    ours, found = os.getpid(), {os.getpid()}
    children = defaultdict(list)
    for process, parent in parents.items():
        children[parent].append(process)
    waiting = [ours]
    while waiting:
        more = children[waiting.pop()]
        found.update(more)
        waiting += more
    # The kernel counts its own process finer than in ticks.
    own = time.process_time()
    mine = os.times()
    return own + mine.children_user + mine.children_system + sum(times.get(process, 0.0) for process in found - {ours})


class ProcessorTime:
    """Measures each phase of each test and each fixture, and prints the sums at the end."""

    def __init__(self) -> None:
        self.fixtures: dict[str, list[float]] = defaultdict(list)
        self.files: dict[str, float] = defaultdict(float)
        self.tests: dict[str, float] = defaultdict(float)
        self.workers: dict[str, tuple[float, float]] = {}
        self._inner = [0.0]
        self._last = used()
        self._collected = 0.0

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, Any, Any]:
        """Count what a fixture's set-up takes, without that of the fixtures it asks for in turn."""
        if fixturedef.scope == "function":
            return (yield)
        before = used()
        self._inner.append(0.0)
        try:
            return (yield)
        finally:
            whole, inner = used() - before, self._inner.pop()
            self._inner[-1] += whole
            self.fixtures[fixturedef.argname].append(whole - inner)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Add to a phase's report what has been used since the last."""
        report = yield
        now = used()
        vars(report)["processor_time"] = now - self._last
        self._last = now
        return report

    def pytest_collection_finish(self) -> None:
        """Note what imports and collection have taken."""
        self._collected = self._last = used()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add a phase's time to its file and its test; with several workers, in the process that prints."""
        taken = getattr(report, "processor_time", 0.0)
        self.files[report.nodeid.partition("::")[0]] += taken
        self.tests[report.nodeid] += taken

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Hand a worker's fixtures to the process that prints."""
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["processor_time"] = (dict(self.fixtures), self._collected, used())
        elif self._collected:
            self.workers["this process"] = self._collected, used()

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take a worker's fixtures."""
        fixtures, collected, whole = getattr(node, "workeroutput", {}).get("processor_time", ({}, 0.0, 0.0))
        self.workers[node.gateway.id] = collected, whole
        for name, times in fixtures.items():
            self.fixtures[name] += times

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print what has taken most."""
        write = terminalreporter.write_line
        terminalreporter.section("processor time, seconds")
        for worker, (collected, whole) in sorted(self.workers.items()):
            write(f"{whole:9.1f}  {worker}, of which imports and collection {collected:.1f}")
        _most(write, "file", self.files.items())
        _most(write, "test", self.tests.items())
        _most(write, "fixture", ((f"{name}, {len(each)} times", sum(each)) for name, each in self.fixtures.items()))


def _most(write: Any, what: str, taken: Iterable[tuple[str, float]]) -> None:
    rows = sorted(taken, key=lambda row: -row[1])
    write(f"{sum(seconds for _, seconds in rows):9.1f}  by {what}:")
    for name, seconds in rows[:SHOWN]:
        write(f"{seconds:9.1f}    {name}")
