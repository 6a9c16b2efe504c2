# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Holds the processes of one broker, so that none of them outlives the tests.

This is a script of its own, run as `python -I -S _leash.py OWNER_PID DATA_FOLDER`, as root where that is needed.
It reads one command a line from standard input and answers each with one line:

    run {"argv": […], "env": {…}, "log": "…"}   start a process -> its pid
    pids                                        what is alive -> "12 34"
    any                                         whether something is alive, without a look at every process -> "yes"
    kill | stop | cont | term                   SIGKILL (till all are gone), SIGSTOP, SIGCONT, SIGTERM to all -> "ok"

When standard input ends, or the owner is gone in whatever way (kill -9 included), everything is killed, the
data folder is deleted, and the leash ends. It imports nothing but the standard library.
"""

import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time

PR_SET_CHILD_SUBREAPER = 36
SIGNALS = {"stop": signal.SIGSTOP, "cont": signal.SIGCONT, "term": signal.SIGTERM}


def main(owner: int, data: str) -> None:
    with contextlib.suppress(PermissionError):  # a session leader already
        os.setsid()  # Ctrl-C in the terminal is for the tests; they end us
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # only the owner's end is the end
    # Daemons that double-fork become our children, not init's, and so stay findable.
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        obey(os.pidfd_open(owner))
    except ProcessLookupError:
        pass  # gone before we began
    finally:
        kill_all()
        shutil.rmtree(data, ignore_errors=True)


def obey(owner_fd: int) -> None:
    """Carry out commands until standard input ends or the owner dies."""
    waiting = select.poll()
    waiting.register(0, select.POLLIN | select.POLLHUP)
    waiting.register(owner_fd, select.POLLIN)
    pending = b""
    while True:
        ready = [fd for fd, _ in waiting.poll(1000)]
        reap()
        if owner_fd in ready:
            return
        if 0 not in ready:
            continue
        chunk = os.read(0, 65536)
        if not chunk:
            return
        *lines, pending = (pending + chunk).split(b"\n")
        for line in lines:
            answer = carry_out(line.decode())
            os.write(1, (answer + "\n").encode())


def carry_out(line: str) -> str:
    word, _, rest = line.partition(" ")
    if word == "run":
        return run(json.loads(rest))
    if word == "pids":
        return " ".join(map(str, living()))
    if word == "any":
        return "yes" if any_living() else "no"
    if word == "kill":
        kill_all()
    else:
        send(SIGNALS[word], living())
    return "ok"


def run(what: dict) -> str:
    with open(what["log"], "ab") as log:
        child = subprocess.Popen(
            what["argv"],
            env=what["env"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            preexec_fn=heed_signals,
        )
    child.returncode = 0  # reap() collects it; keeps Popen from waiting or warning
    return str(child.pid)


def heed_signals() -> None:
    """Undo what `main` did for itself: a child that inherits SIGTERM as ignored cannot be ended in good order."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def living(*, zombies: bool = False) -> list[int]:
    """Return all descendants of this process: an orphan becomes our child, so nothing slips out of this tree."""
    parents, dead = {}, set()
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                state, parent, *_ = file.read().rpartition(b")")[2].split()
        except OSError:
            continue  # ended between the listing and the look
        parents[int(name)] = int(parent)
        if state in b"ZX":
            dead.add(int(name))
    ours: set[int] = set()
    more = {pid for pid, parent in parents.items() if parent == os.getpid()}
    while more:
        ours |= more
        more = {pid for pid, parent in parents.items() if parent in ours} - ours
    return sorted(ours if zombies else ours - dead)


def any_living() -> bool:
    """Return whether there are descendants, which are all children or children's children: no orphan is elsewhere.

    Every running broker is asked after every test.
    """
    reap()
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", "rb") as file:
            return bool(file.read().split())
    except OSError:  # a kernel without that file
        return bool(living())


def send(number: int, pids: list[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def kill_all() -> None:
    """Kill until nothing is left, zombies neither: one with threads still ending keeps its ports for a moment."""
    while pids := living(zombies=True):
        send(signal.SIGKILL, pids)
        time.sleep(0.01)
        reap()


def reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
