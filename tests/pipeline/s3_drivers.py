# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Runs commands of `redeliver pipeline` as processes with a lake in a bucket, which are killed, or made to race.

A driver reaches the server through a proxy of its own, which counts the requests that change the bucket.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.brokers import _install
from tests.brokers.skips import not_to_be_had
from tests.pipeline.hadoop_jars import s3_client
from tests.pipeline.s3_server import KEY, SECRET, Proxy, environment

REPOSITORY = Path(__file__).resolve().parents[2]
REDELIVER = "import sys; from redeliver_mw.cli.main import run; sys.exit(run(sys.argv[1:]))"
PATIENCE = 400.0


def jars() -> str:
    """Return Spark's S3 client as `spark.jars` wants it; skip the test if the client cannot be had."""
    try:
        return ",".join(map(str, s3_client()))
    except _install.BrokerMissing as missing:
        not_to_be_had(missing)


def _environment(url: str) -> dict[str, str]:
    paths = os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "adapters")])
    return {**os.environ, **environment(url), "PYTHONPATH": paths}


class Driver:
    """Runs one command of `redeliver pipeline` in a process of its own, and reads what it says."""

    def __init__(self, url: str, *words: str, spark: bool = True) -> None:
        options = ["--master", "local[2]", "--conf", f"spark.jars={jars()}"] if spark else []
        self.process = subprocess.Popen(
            [sys.executable, "-c", REDELIVER, "pipeline", *words, *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=_environment(url),
            cwd=REPOSITORY,
            process_group=0,
        )

    def ended(self) -> tuple[int, str, str]:
        """Wait until the driver and its JVM have ended; return its exit code, and what it said and complained about."""
        try:
            said, complained = self.process.communicate(timeout=PATIENCE)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
        assert KEY not in said + complained
        assert SECRET not in said + complained
        return self.process.returncode, said, complained


class WarmSession:
    """Runs one command after another in one process, whose Spark session stays."""

    def __init__(self, url: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.pipeline.s3_chain", jars()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=_environment(url),
            cwd=REPOSITORY,
            process_group=0,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with self._process:  # which closes the pipes
            if self._process.stdin is not None:
                self._process.stdin.close()
            try:
                self._process.wait(60)
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)

    def run(self, *words: str, code: int = 0) -> str:
        """Run a command of `redeliver pipeline`, which must end with this exit code, and return all it has said."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(words) + "\n")
        self._process.stdin.flush()
        said: list[str] = []
        for line in self._process.stdout:
            if found := re.fullmatch(rf"CODE {words[0]} (\d+)\n", line):
                text = "".join(said)
                assert found[1] == str(code), text
                assert KEY not in text
                assert SECRET not in text
                return text
            said.append(line)
        raise AssertionError("".join(said))


class Killer:
    """Kills a driver with SIGKILL at a request that changes the bucket, and lets nothing through that comes later.

    The driver is killed at its request of this `number` among the requests that `request` is found in, such as
    `PUT /lakes/…/_head.json`. The request is carried out just before the kill if `carried_out`, otherwise never.
    `seen` are all requests that were to change something until then.
    """

    def __init__(self, proxy: Proxy, request: str = "", number: int = 1, *, carried_out: bool = False) -> None:
        self.seen: list[str] = []
        self.killed = ""
        self._request, self._left, self._carried_out = request, number, carried_out
        self._driver: Driver | None = None
        self._alone = threading.Lock()
        proxy.guard = self._guard

    def run(self, url: str, *words: str, spark: bool = True) -> tuple[int, str, str]:
        """Start the driver, wait until it has ended, and return its exit code and its output."""
        with self._alone:
            self._driver = Driver(url, *words, spark=spark)
        code, said, complained = self._driver.ended()
        assert code == (-signal.SIGKILL if self.killed else 0), complained + said
        return code, said, complained

    def _guard(self, method: str, path: str, hand_on: Callable[[], object]) -> bool:
        if method not in ("PUT", "POST", "DELETE"):
            return not self.killed
        with self._alone:
            if self.killed:
                return False
            text = f"{method} {path}"
            self.seen.append(text)
            self._left -= bool(re.search(self._request, text))
            if self._left:
                return True
            if self._carried_out:
                hand_on()
            self.killed = text
            if self._driver is not None:
                os.kill(self._driver.process.pid, signal.SIGKILL)
            return False


def race(proxies: Sequence[Proxy], head: str, words: Sequence[str]) -> list[tuple[int, str, str]]:
    """Run the same command twice, so that both want to replace `head` when neither has; return how the two ended.

    The first process that has written its snapshot is stopped (SIGSTOP) until the other process has written its own.
    """
    snapshots, both, together = head.replace("_head.json", "_snapshots/"), threading.Event(), threading.Barrier(2)
    drivers: list[Driver] = []
    arrived: set[int] = set()
    alone = threading.Lock()

    def guard(number: int) -> Callable[[str, str, Callable[[], object]], bool]:
        heads: list[str] = []

        def wait(method: str, path: str, hand_on: Callable[[], object]) -> bool:
            if method == "PUT" and snapshots in path:
                with alone:
                    again, first = number in arrived, not arrived
                    arrived.add(number)
                if not again and first:
                    process = drivers[number].process
                    os.kill(process.pid, signal.SIGSTOP)
                    both.wait(PATIENCE)
                    os.kill(process.pid, signal.SIGCONT)
                elif not again:
                    both.set()
            elif method == "PUT" and path.endswith(head) and not heads:
                heads.append(path)
                with suppress(threading.BrokenBarrierError):
                    together.wait(20)
            return True

        return wait

    for number, proxy in enumerate(proxies):
        proxy.guard = guard(number)
    for proxy in proxies:
        drivers.append(Driver(proxy.url, *words))  # which sends nothing before it has started
    ends: list[tuple[int, str, str]] = []
    try:
        ends += [one.ended() for one in drivers]
    finally:
        both.set()
    assert not together.broken, "they did not come together"
    return ends
