# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Holds what every broker needs: a leash on its processes, free ports, waiting, the last lines of a log."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

_LEASH = Path(__file__).with_name("_leash.py")

_BLOCK = 200
_OF_SPARK = 15_002  # the one port of a Spark Connect server that PySpark itself starts; tests start some
_blocks: dict[int, Iterator[int]] = {}


class BrokerFailed(RuntimeError):
    """Says that a broker that is installed did not do what it was told; the text ends with the broker's own log."""


class Leash:
    """Holds the processes of one broker, and its data folder, which both end with this process at the latest.

    `prefix` is `["sudo", "-n"]` where the broker must be root's and we are not. Not thread-safe: one thread at a time.
    """

    def __init__(self, data: Path, prefix: Sequence[str] = ()) -> None:
        self._data = data
        argv = [*prefix, sys.executable, "-I", "-S", str(_LEASH), str(os.getpid()), str(data)]
        self._process: subprocess.Popen[str] | None = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, start_new_session=True
        )

    def run(self, argv: Sequence[str], env: Mapping[str, str], log: Path) -> int:
        """Start one process with exactly this environment, its output appended to `log`; return its pid."""
        return int(self._ask("run " + json.dumps({"argv": list(argv), "env": dict(env), "log": str(log)})))

    def pids(self) -> list[int]:
        """Return the broker's living processes, helpers included."""
        return [int(pid) for pid in self._ask("pids").split()]

    def holds_any(self) -> bool:
        """Return whether one of the processes is alive."""
        return self._ask("any") == "yes"

    def kill(self) -> None:
        """Send SIGKILL to all processes, and return when they are gone. The data folder stays."""
        self._ask("kill")

    def pause(self) -> None:
        self._ask("stop")

    def resume(self) -> None:
        self._ask("cont")

    def terminate(self) -> None:
        """Send SIGTERM to all processes, and do not wait."""
        self._ask("term")

    def end(self) -> None:
        """Kill everything, delete the data folder. May be called twice."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()  # the leash does the rest
        process.wait(timeout=120)  # a data folder of thousands of files takes a while on a busy machine
        process.stdout.close()
        shutil.rmtree(self._data, ignore_errors=True)  # if the leash itself was killed

    def _ask(self, command: str) -> str:
        if self._process is None:
            raise BrokerFailed("this broker was stopped for good: stop() was called")
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(command + "\n")
            answer = self._process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            raise BrokerFailed("the process that holds the broker has ended by itself")
        return answer.strip()


def free_ports(count: int) -> list[int]:
    """Return different free TCP ports on 127.0.0.1, below the range from which the kernel takes clients' ports.

    A broker that is down for a moment must find its port free again: a client's outgoing connection could
    have taken one from the usual range. No other process that asks here is given the same ports, however
    long a broker takes until it listens.
    """
    found: list[int] = []
    for _ in range(_BLOCK):
        port = _next_port()
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    raise BrokerFailed("no free port on 127.0.0.1")


def _next_port() -> int:
    """Return the next port of this process's block; after the last one it is the first again."""
    process = os.getpid()
    if process not in _blocks:  # a process that was forked takes a block of its own
        _blocks[process] = itertools.cycle(_take_block())
    return next(_blocks[process])


def _take_block() -> range:
    """Return a range of ports that no other process has.

    The mark of a block is a socket with a name that is no file's: it is there as long as the process is, whatever
    ends the process.
    """
    low = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    ports = range(10_000, low) if low > 12_000 else range(20_000, 65_000)
    starts = ports[::_BLOCK][:-1]
    for start in random.SystemRandom().sample(starts, len(starts)):
        if _OF_SPARK in range(start, start + _BLOCK):
            continue
        mark = socket.socket(socket.AF_UNIX)
        try:
            mark.bind(f"\0redeliver-mw-tests-ports-{start}")
        except OSError:
            mark.close()
            continue
        mark.detach()  # it stays open, and nobody closes it
        return range(start, start + _BLOCK)
    raise BrokerFailed(f"all {len(starts)} blocks of {_BLOCK} ports are taken by other test processes")


def listening(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def wait_until(
    true: Callable[[], bool],
    *,
    alive: Callable[[], bool],
    logs: Iterable[Path],
    what: str,
    seconds: float = 90.0,
) -> None:
    """Ask every 50 ms until the answer is true.

    Raises BrokerFailed, with the end of the logs, on a dead process or after `seconds`.
    """
    end = time.monotonic() + seconds
    while not true():
        if not alive():
            raise BrokerFailed(f"{what}: the process ended\n{tail(logs)}")
        if time.monotonic() > end:
            raise BrokerFailed(f"{what}: not within {seconds:.0f} s\n{tail(logs)}")
        time.sleep(0.05)


def tail(logs: Iterable[Path], lines: int = 25) -> str:
    """Return the last lines of each log that is there and is not empty."""
    texts = []
    for log in logs:
        with contextlib.suppress(OSError):  # not written yet, or root's alone
            if said := log.read_text(errors="replace").splitlines()[-lines:]:
                texts.append("\n".join([f"--- {log.name}", *said]))
    return "\n".join(texts)
