# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Real processes for the supervisor, and the line between the two: a pair of sockets, which dies with either.

The supervisor sends a letter, `STOP` or `HURRY`; the process answers with lines of JSON. It is told to end over this
line, not by signals: Ctrl-C and a service manager send theirs to every process of a group, and a second one would be
taken for haste. A process whose supervisor was killed reads the end of the line, and stops as if it were told to.
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

from ..runtime.health_server import HealthAddress, serving_health
from ..runtime.partition import ProcessShare
from ..runtime.signals import StopRequest
from .supervisor import Child, ChildEnded, ChildFailed, ChildHealth, ChildStarted, News, Supervisor, SupervisorResult

log = logging.getLogger("redeliver_mw")

STOP, HURRY = b"s", b"h"
INDEX = "REDELIVER_PROCESS"  # in a process's environment, for whoever needs a number of its own: from 1 on
LOOK = 5.0  # seconds after which a look is taken although nothing was heard
_KINDS: dict[str, type[ChildStarted] | type[ChildFailed] | type[ChildEnded] | type[ChildHealth]] = {
    "up": ChildStarted,
    "failed": ChildFailed,
    "over": ChildEnded,
    "health": ChildHealth,
}


# -- the supervisor's end ---------------------------------------------------------------------------


class ChildProcess:
    """A process that runs `command`, with the number of its end of the line and its share behind. OSError."""

    def __init__(self, command: Sequence[str], share: ProcessShare) -> None:
        ours, theirs = socket.socketpair()
        words = [*command, str(theirs.fileno()), str(share.index), str(share.of)]
        try:
            self._process = subprocess.Popen(
                words,
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
        with suppress(OSError):  # nothing more has come, or it is dead
            while some := self.line.recv(65_536):
                self._heard += some
            self.silent = True
        *lines, self._heard = self._heard.split(b"\n")
        said = (json.loads(line) for line in lines)
        return [_KINDS[kind](*values) for kind, *values in said]

    def stop(self) -> None:
        self._say(STOP)

    def hurry(self) -> None:
        self._say(HURRY)

    def _say(self, word: bytes) -> None:
        with suppress(OSError):  # it is dead, which is seen elsewhere
            self.line.send(word)

    def kill(self) -> None:
        self._process.kill()

    def close(self) -> None:
        self.line.close()


def supervise(command: Sequence[str], wanted: int, health: HealthAddress | None = None) -> SupervisorResult:
    """Run `wanted` processes of `command` until SIGTERM or SIGINT. On the main thread.

    At `health` it answers for all of them whether they are ready. ConfigError, RedeliverError where it cannot.
    """
    lines: list[ChildProcess] = []

    def start(share: ProcessShare) -> Child:
        process = ChildProcess(command, share)
        lines.append(process)
        return process

    supervisor = Supervisor(start, wanted)
    answers = serving_health(health, lambda: supervisor.not_ready(time.monotonic()))
    with answers, _signals(supervisor.ask) as woken:
        while True:
            rest = supervisor.turn(time.monotonic())
            if supervisor.is_over:  # the last one has ended, so nothing more will be heard
                break
            lines[:] = [one for one in lines if not one.silent and one.line.fileno() >= 0]
            select.select([woken, *(one.line for one in lines)], [], [], min(rest, LOOK))
            with suppress(BlockingIOError):
                woken.recv(4096)
    return supervisor.outcome


@contextmanager
def _signals(ask: Callable[[], None]) -> Iterator[socket.socket]:
    """SIGTERM and SIGINT ask; each of them, and the end of a process, makes the socket readable."""
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
    """To the supervisor, by the number of its file. What it says before there is anything to end is kept."""

    def __init__(self, fd: int) -> None:
        os.set_inheritable(fd, False)  # not for what this process starts
        self._socket = socket.socket(fileno=fd)
        self._changed = threading.Lock()
        self._ending: StopRequest | None = None
        self._told: list[bytes] = []
        self._saying = threading.Lock()
        threading.Thread(target=self._listen, name="redeliver-line", daemon=True).start()

    def say(self, news: News) -> None:
        """Never raises: where nobody listens, the end of the line says so."""
        kind = next(name for name, known in _KINDS.items() if isinstance(news, known))
        with suppress(OSError), self._saying:
            self._socket.sendall(json.dumps([kind, *news]).encode() + b"\n")

    def watch(self, ending: StopRequest) -> None:
        """From now on `ending` is told; and what has come before, now."""
        with self._changed:
            self._ending, told = ending, [*self._told]
        for word in told:
            _send(ending, word)

    def _listen(self) -> None:
        while word := self._next():
            self._hear(word)
        log.warning("the supervisor is gone: stopping")
        self._hear(STOP)

    def _next(self) -> bytes:
        try:
            return self._socket.recv(1)
        except OSError:
            return b""

    def _hear(self, word: bytes) -> None:
        with self._changed:
            self._told.append(word)
            ending = self._ending
        if ending is not None:
            _send(ending, word)


def _send(ending: StopRequest, word: bytes) -> None:
    if word == HURRY:
        ending.hurry()
    else:
        ending.stop()
