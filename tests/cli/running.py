# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Runs `redeliver run` as a process of its own, in a folder of its own."""

from __future__ import annotations

import functools
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from tests.cli.forked import Forked, ForkServer

REPOSITORY = Path(__file__).resolve().parents[2]
# -P: that the current folder is in reach has to be the command's own doing.
_READ_FIRST = ("PYTHON", "LC_", "LANG")  # variables that Python reads before it imports anything
COMMAND = [sys.executable, "-P", "-c", "from redeliver_mw.cli.entry import main; main()"]


def environment(folder: Path, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return an environment without variables that would change what is tested.

    `folder/site` comes before all other modules.
    """
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "REDELIVER_"))}
    path = os.pathsep.join(map(str, (folder / "site", REPOSITORY, REPOSITORY / "adapters")))
    return kept | {"PYTHONPATH": path, "PYTHONUNBUFFERED": "1"} | dict(extra or {})


def redeliver(
    folder: Path,
    *words: str,
    extra: Mapping[str, str] | None = None,
    by: Sequence[str] = (),
    patience: float = 60.0,
) -> subprocess.CompletedProcess[str]:
    """Run one command line to its end, within `patience` seconds; the command `by` starts it, if there is one."""
    if by:
        argv, env = [*by, *COMMAND, *words], environment(folder, extra)
        return subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True, timeout=patience)
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = started(folder, words, extra, out.fileno(), err.fileno())
        try:
            code = process.wait(patience)
        finally:
            process.kill()
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode())
        return subprocess.CompletedProcess(words, code, *texts)


def started(
    folder: Path,
    words: Sequence[str],
    extra: Mapping[str, str] | None,
    out: int,
    err: int,
    own_group: bool = False,
) -> subprocess.Popen[bytes] | Forked:
    """Start a command line as a fork, or as usual where that matters. `out` and `err` are files for its output."""
    env = environment(folder, extra)
    if not (folder / "site").exists() and not any(name.startswith(_READ_FIRST) for name in extra or ()):
        return _fork_server().start(words, folder, env, out, err, own_group)
    group = 0 if own_group else None
    return subprocess.Popen([*COMMAND, *words], cwd=folder, env=env, process_group=group, stdout=out, stderr=err)


@functools.cache
def _fork_server() -> ForkServer:
    """Return the fork server of this process."""
    return ForkServer(environment(REPOSITORY))


class Running:
    """Runs a command that goes on until it is told to stop. Its output is read all the time, on threads."""

    def __init__(
        self, folder: Path, *words: str, extra: Mapping[str, str] | None = None, own_group: bool = False
    ) -> None:
        pipes = [os.pipe(), os.pipe()]
        try:
            self._process = started(folder, words, extra, pipes[0][1], pipes[1][1], own_group)
        finally:
            for _, end in pipes:
                os.close(end)
        self._streams = [os.fdopen(end, encoding="utf-8") for end, _ in pipes]
        self._news = threading.Condition()
        self.out, self.err = "", ""
        self._readers = [
            threading.Thread(target=self._read, args=(name, stream), daemon=True)
            for name, stream in zip(("out", "err"), self._streams, strict=True)
        ]
        for reader in self._readers:
            reader.start()

    def _read(self, name: str, stream: IO[str]) -> None:
        for line in stream:
            with self._news:
                setattr(self, name, getattr(self, name) + line)
                self._news.notify_all()

    def saw(self, pattern: str, timeout: float = 30.0) -> bool:
        """Return whether the command has said this, on stdout or stderr, within `timeout` seconds."""
        with self._news:
            return self._news.wait_for(lambda: re.search(pattern, self.out + self.err) is not None, timeout)

    def signal(self, number: signal.Signals = signal.SIGTERM) -> None:
        self._process.send_signal(number)

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait(self, timeout: float = 30.0) -> int:
        """Return the exit code of the command, when all that it said has been read."""
        code = self._process.wait(timeout)
        for reader in self._readers:
            reader.join(10)
        return code

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self.wait()
        for stream in self._streams:
            stream.close()
