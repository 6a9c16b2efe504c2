# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Finds what is wrong with what is written while a round runs: log, output of commands, journal, threads that end."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import re
import threading
import time
from pathlib import Path
from typing import Any

from redeliver_mw.cli import main as cli
from redeliver_mw.pipeline.lake.compaction_task import checked
from redeliver_mw.pipeline.lake.task_messages import SegmentPiece
from tests.hostile.texts import SECRET, STEERING

_KEPT_IN = re.compile(r"which is in (\S+)")


def faults_in(place: str, text: str) -> list[str]:
    """Return the secrets in a text, and what a terminal would obey."""
    found = []
    if SECRET in text:
        at = text.index(SECRET)
        found.append(f"a secret in {place}: {text[max(0, at - 60) : at + 30]!a}")
    if steering := STEERING.search(text):
        at = steering.start()
        found.append(f"a control character in {place}: {text[max(0, at - 60) : at + 20]!a}")
    return found


class Listener(logging.Handler):
    """Looks at each line of the log as a user's own handler would print it, and at threads that end by an exception.

    The listener is a context manager: it listens inside.
    """

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.setFormatter(logging.Formatter("%(levelname)s %(name)s %(message)s"))
        self.faults: list[str] = []
        self.lines: list[str] = []
        self._log = logging.getLogger("redeliver_mw")

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = self.format(record)
        except Exception as error:
            self.faults.append(f"a line of the log cannot be written: {error!r}")
            return
        if record.levelno >= logging.WARNING:
            self.lines.append(text[:3000])
        self.faults += faults_in("the log", text)
        if record.name != "redeliver_mw.failures" and (record.exc_info or "Traceback (most recent" in text):
            self.faults.append(f"a traceback in the log: {text[-1500:]!a}")

    def _died(self, told: Any) -> None:
        self.faults.append(f"{told.thread} ended by {told.exc_type.__name__}: {str(told.exc_value)[:300]!a}")

    def __enter__(self) -> Listener:
        self._before = (self._log.level, self._log.propagate, threading.excepthook)
        self._log.addHandler(self)
        self._log.setLevel(logging.INFO)
        self._log.propagate = False
        threading.excepthook = self._died
        return self

    def __exit__(self, *_: object) -> None:
        self._log.removeHandler(self)
        level, self._log.propagate, threading.excepthook = self._before
        self._log.setLevel(level)


class _Stream(io.TextIOWrapper):
    """Keeps what is written, as UTF-8."""

    def __init__(self) -> None:
        self._kept = io.BytesIO()
        super().__init__(self._kept, encoding="utf-8", errors="strict", newline="")

    def text(self) -> str:
        self.flush()
        return self._kept.getvalue().decode()


def command(*words: str) -> tuple[int, str, list[str]]:
    """Run a command line in this process; return its exit code, its output, and what is wrong with that output."""
    out, err = _Stream(), _Stream()  # as strict as a terminal's: half a surrogate cannot be written
    began = time.monotonic()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = cli.run(words)
    shown = " ".join(word for word in words if "://" not in word)
    told = out.text() + err.text()
    found = faults_in(f"the output of `{shown}`", told)
    if "Traceback (most recent" in told:
        found.append(f"a traceback in the output of `{shown}`")
    if code == 70:
        kept = _KEPT_IN.search(err.text())
        with contextlib.suppress(OSError):
            told = Path(kept[1]).read_text()[-1500:] if kept else told[-1500:]
        found.append(f"`{shown}` ended with 70: {told!a}")
    elif code not in (0, 1, 2, 3):
        found.append(f"`{shown}` ended with {code}")
    if "--json" in words and code == 0:
        try:
            json.loads(out.text(), parse_constant=_no_json)
        except ValueError as error:
            found.append(f"`{shown}` printed no JSON: {error}")
    if (took := time.monotonic() - began) > 60:
        found.append(f"`{shown}` took {took:.0f} s")
    return code, out.text(), found


def _no_json(word: str) -> None:
    raise ValueError(f"{word} is no JSON")


def journal_faults(folder: Path) -> tuple[int, list[str]]:
    """Return how many lines a journal has, and what is wrong with them.

    The lines are read by the standard library, and by the lake's reader.
    """
    count, found = 0, []
    for segment in sorted(folder.rglob("*.jsonl*")):
        data = segment.read_bytes()
        for line in data.splitlines():
            count += 1
            try:
                row = json.loads(line, parse_constant=_no_json)
            except ValueError as error:
                found.append(f"a line of the journal is no JSON: {error}: {line[:200]!r}")
                continue
            if SECRET in json.dumps(row, ensure_ascii=False):
                found += faults_in("the journal", line.decode())[:1]
        piece = SegmentPiece(0, str(segment), 0, None)
        for part in checked(piece):
            found += [f"the lake's reader refuses a line of the journal: {bad.reason}: {bad.head}" for bad in part.bad]
    return count, found
