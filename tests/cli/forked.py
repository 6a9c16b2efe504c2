# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Starts commands by forking a process that has imported the command line already.

Most of the processor time of a test of a command would go into imports. A fork has them done. Apart from that it is a
process like any other, with its own folder, environment, output, signals and exit code. What Python reads before it
imports anything (its own variables, the locale, `sitecustomize`) is that of the server, so a command that needs another
one is started as usual. `make test` takes about two minutes longer without this module.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path

IMPORTED = ("redeliver_mw.cli.main", "redeliver_mw.operations", "redeliver_pika", "redeliver_stomp", "redeliver_proton")
LARGEST = 1 << 20  # bytes of a request


class Forked:
    """Is a command that was started, with what tests use of `subprocess.Popen`. Thread-safe."""

    def __init__(self, words: Sequence[str], pid: int, answer: socket.socket) -> None:
        self.args, self.pid = list(words), pid
        self._answer = answer
        self._code: int | None = None
        self._waiting = threading.Lock()

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code, a signal's number as a negative one. Raises TimeoutExpired after `timeout` seconds."""
        with self._waiting:
            if self._code is None:
                self._answer.settimeout(timeout)
                try:
                    self._code = int(self._answer.recv(64))
                except (TimeoutError, BlockingIOError):
                    raise subprocess.TimeoutExpired(self.args, timeout or 0.0) from None
                self._answer.close()
            return self._code

    def poll(self) -> int | None:
        """Return the exit code, or None while the command runs."""
        try:
            return self.wait(0.0)
        except subprocess.TimeoutExpired:
            return None

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the command has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End the command by SIGKILL."""
        self.send_signal(signal.SIGKILL)


class ForkServer:
    """Starts commands, which run beside each other, and ends with the process that made it. Thread-safe."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            program = f"from tests.cli.forked import serve; serve({theirs.fileno()})"
            command = [sys.executable, "-P", "-c", program]
            self._process = subprocess.Popen(
                command, cwd="/", env=dict(environment), stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()]
            )
        self._one_request = threading.Lock()
        atexit.register(self.close)

    def start(
        self, words: Sequence[str], folder: Path, environment: Mapping[str, str], out: int, err: int, own_group: bool
    ) -> Forked:
        """Start a command, with `own_group` in a group of its own. `out` and `err` are files for its output."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        request = json.dumps([list(words), str(folder), dict(environment), own_group]).encode()
        with theirs, self._one_request, open(os.devnull, "rb") as nothing:
            socket.send_fds(self._requests, [request], [nothing.fileno(), out, err, theirs.fileno()])
        return Forked(words, int(ours.recv(64)), ours)

    def close(self) -> None:
        """End the server. Commands go on."""
        self._requests.close()
        self._process.wait(10)


def serve(requests: int) -> None:
    """Fork for each request until nobody is left to make one. In a fork, return when its command has ended."""
    for name in IMPORTED:
        import_module(name)
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks how the forks below end
    source = socket.socket(fileno=requests)
    while True:
        request, files, _, _ = socket.recv_fds(source, LARGEST, 4)
        if not request:
            return
        if os.fork() == 0:
            source.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            return _run_command(*json.loads(request), files)
        for file in files:
            os.close(file)


def _run_command(words: list[str], folder: str, environment: dict[str, str], own_group: bool, files: list[int]) -> None:
    """Fork once more and run the command there. The first fork tells its process id, and then its exit code."""
    *standard, answer = files
    pid = os.fork()
    if pid:
        for file in standard:
            os.close(file)
        os.write(answer, str(pid).encode())
        _, status = os.waitpid(pid, 0)
        os.write(answer, str(os.waitstatus_to_exitcode(status)).encode())
        os._exit(0)
    os.close(answer)
    if own_group:
        os.setpgid(0, 0)
    for number, file in enumerate(standard):
        os.dup2(file, number)
        os.close(file)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    sys.argv[1:] = words
    from redeliver_mw.cli.entry import main

    main()
