# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Starts real processes for the supervisor, connected by a pair of sockets that closes when either side dies.

The supervisor sends one letter, `STOP` or `HURRY`; the process answers with lines of JSON. The process is stopped over
this connection, not by signals: Ctrl-C and a service manager send signals to every process of a group, and a second
signal would mean haste. A process whose supervisor was killed reads the end of the connection, and stops as if it had
been asked to.
"""

from __future__ import annotations

import json
import logging
import os
import select
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType

from ..runtime.health_pages import health_pages
from ..runtime.partition import ProcessShare
from ..runtime.signals import StopRequest
from ..telemetry.page_server import ServedPages, ServerAddress, serving
from ..telemetry.served import PATH
from .supervisor import (
    Child,
    ChildChecked,
    ChildEnded,
    ChildFailed,
    ChildHealth,
    ChildMetrics,
    ChildStarted,
    News,
    Supervisor,
    SupervisorResult,
)

log = logging.getLogger("redeliver_mw")

STOP, HURRY = b"s", b"h"
INDEX = "REDELIVER_PROCESS"  # in a process's environment, for code that needs its own number: from 1 on
LOOK = 5.0  # seconds after which processes are checked although nothing was received
_KINDS: dict[str, type[News]] = {
    "checked": ChildChecked,
    "up": ChildStarted,
    "failed": ChildFailed,
    "over": ChildEnded,
    "health": ChildHealth,
    "metrics": ChildMetrics,
}


# -- the supervisor's end ---------------------------------------------------------------------------


class ChildProcess:
    """Is a process that runs `command`, with its file number of the connection and its share appended.

    Raises OSError.
    """

    def __init__(self, command: Sequence[str], share: ProcessShare) -> None:
        ours, theirs = socket.socketpair()
        argv = [*command, str(theirs.fileno()), str(share.index), str(share.of)]
        try:
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                env=os.environ | {INDEX: str(share.index + 1)},
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        ours.setblocking(False)
        self.line, self.silent = ours, False
        self._heard = b""

    @property
    def pid(self) -> int:
        return self._process.pid

    def ended(self) -> int | None:
        return self._process.poll()

    def news(self) -> Sequence[News]:
        with suppress(OSError):  # there is nothing more to read, or the process is dead
            while some := self.line.recv(65_536):
                self._heard += some
            self.silent = True
        *lines, self._heard = self._heard.split(b"\n")
        messages = (json.loads(line) for line in lines)
        return [_KINDS[kind](*values) for kind, *values in messages]

    def stop(self) -> None:
        self._say(STOP)

    def hurry(self) -> None:
        self._say(HURRY)

    def _say(self, message: bytes) -> None:
        with suppress(OSError):  # a dead process is noticed elsewhere
            self.line.send(message)

    def kill(self) -> None:
        self._process.kill()

    def close(self) -> None:
        self.line.close()


def supervise(
    command: Sequence[str], wanted: int, health: ServerAddress | None = None, metrics: ServerAddress | None = None
) -> SupervisorResult:
    """Run `wanted` processes of `command` until SIGTERM or SIGINT. Called on the main thread.

    At `health` the supervisor answers for all of them whether they are ready, and at `metrics` with the metrics of all
    of them. Raises ConfigError or RedeliverError if it cannot run.
    """
    lines: list[ChildProcess] = []

    def start(share: ProcessShare) -> Child:
        process = ChildProcess(command, share)
        lines.append(process)
        return process

    supervisor = Supervisor(start, wanted)
    answers = serving(_health(health, supervisor), _metrics(metrics, supervisor))
    with answers, _signals(supervisor.ask) as woken:
        while True:
            rest = supervisor.run_once(time.monotonic())
            if supervisor.is_over:  # the last process has ended, so no more news will come
                break
            lines[:] = [one for one in lines if not one.silent and one.line.fileno() >= 0]
            select.select([woken, *(one.line for one in lines)], [], [], min(rest, LOOK))
            with suppress(BlockingIOError):
                woken.recv(4096)
    return supervisor.outcome


def _health(address: ServerAddress | None, supervisor: Supervisor) -> ServedPages | None:
    if address is None:
        return None
    return ServedPages(address, "--health", health_pages(lambda: supervisor.not_ready(time.monotonic())))


def _metrics(address: ServerAddress | None, supervisor: Supervisor) -> ServedPages | None:
    if address is None:
        return None
    from ..telemetry.prometheus import PrometheusMetrics  # needs an extra

    metrics = PrometheusMetrics(samples=supervisor.samples.merged)
    return ServedPages(address, "--metrics", {PATH: metrics.page})


@contextmanager
def _signals(ask: Callable[[], None]) -> Iterator[socket.socket]:
    """Call `ask` for SIGTERM and SIGINT; each of them, and the end of a process, makes the socket readable."""
    woken, waker = socket.socketpair()
    woken.setblocking(False)
    waker.setblocking(False)

    def on_signal(number: int, frame: FrameType | None) -> None:
        if number != signal.SIGCHLD:
            ask()

    before = {s: signal.signal(s, on_signal) for s in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)}
    fd = signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
    try:
        yield woken
    finally:
        signal.set_wakeup_fd(fd)
        for number, handler in before.items():
            signal.signal(number, handler)
        woken.close()
        waker.close()


# -- the process's end ------------------------------------------------------------------------------


class ControlChannel:
    """Connects a process to its supervisor, by a file number. Requests from before `watch` are kept."""

    def __init__(self, fd: int) -> None:
        os.set_inheritable(fd, False)  # not inherited by processes that this process starts
        self._socket = socket.socket(fileno=fd)
        self._changed = threading.Lock()
        self._ending: StopRequest | None = None
        self._requests: list[bytes] = []
        self._saying = threading.Lock()
        threading.Thread(target=self._listen, name="redeliver-line", daemon=True).start()

    def say(self, news: News) -> None:
        """Send news. Never raises: if nobody listens, the end of the connection shows that."""
        kind = next(name for name, known in _KINDS.items() if isinstance(news, known))
        with suppress(OSError), self._saying:
            self._socket.sendall(json.dumps([kind, *news]).encode() + b"\n")

    def watch(self, ending: StopRequest) -> None:
        """Pass requests to `ending` from now on, and immediately those that came before."""
        with self._changed:
            self._ending, requests = ending, [*self._requests]
        for message in requests:
            _send(ending, message)

    def _listen(self) -> None:
        while message := self._next():
            self._hear(message)
        log.warning("the supervisor is gone: stopping")
        self._hear(STOP)

    def _next(self) -> bytes:
        try:
            return self._socket.recv(1)
        except OSError:
            return b""

    def _hear(self, message: bytes) -> None:
        with self._changed:
            self._requests.append(message)
            ending = self._ending
        if ending is not None:
            _send(ending, message)


def _send(ending: StopRequest, message: bytes) -> None:
    if message == HURRY:
        ending.hurry()
    else:
        ending.stop()
