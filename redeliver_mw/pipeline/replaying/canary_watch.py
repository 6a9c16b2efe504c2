# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Watches the letters that were sent back in the consumers' journal.

A journal records which messages were handled and which were dead-lettered again. Without one, the dead-letter queues
are watched: see `dead_letters.sending.queue_watch`.
"""

from __future__ import annotations

import json
import os
from typing import Final, Protocol

from ...dead_letters.sending.queue_watch import CanarySeen
from ...errors import ConfigError
from ..errors import lake_error

_DIED: Final = {"dead_lettered", "discarded"}
_DECIDED: Final = _DIED | {"accepted", "kept"}
_HEAD, _TAIL = ("_", ""), (".open", "")


class CanaryWatch(Protocol):
    """Watches letters. Every method may raise RedeliverError."""

    @property
    def names(self) -> frozenset[str] | None:
        """Return the keys of all messages of this replay that were dead-lettered again; None if they are not known."""

    def mark(self) -> None: ...
    def look(self) -> CanarySeen: ...
    def close(self) -> None: ...


class JournalWatch:
    """Watches the consumers' journal, including segments that are being written.

    Raises ConfigError if it does not exist.

    Only segments that were written to since `since_us` are read, each byte once.
    """

    def __init__(self, folder: str, plan_id: str, since_us: int) -> None:
        if not os.path.isdir(folder):
            cure = "Give the folder that the consumers' `App(journal=…)` writes to"
            raise ConfigError("no journal is here", where=folder, cure=cure, code="journal-missing")
        self._folder, self._plan_id, self._since_us = folder, plan_id, since_us
        self._read_to: dict[str, int] = {}  # by the name of the finished segment
        self._died: set[str] = set()
        self._decided: set[str] = set()
        self._marked = (0, 0)

    @property
    def names(self) -> frozenset[str] | None:
        return frozenset(self._died)

    def mark(self) -> None:
        self._look()
        self._marked = len(self._died), len(self._decided)

    def look(self) -> CanarySeen:
        self._look()
        died, decided = self._marked
        return CanarySeen(len(self._died) - died, len(self._decided) - decided)

    def close(self) -> None:
        pass

    def _look(self) -> None:
        try:
            for name in sorted(os.listdir(self._folder)):
                stem = name.removeprefix("_").removesuffix(".open")
                if stem.startswith("seg-") and stem.endswith(".jsonl"):
                    self._segment(os.path.join(self._folder, name), stem)
        except FileNotFoundError:
            return  # renamed since it was listed: the next look finds it
        except OSError as error:
            raise lake_error(error, self._folder) from error

    def _segment(self, path: str, stem: str) -> None:
        about = os.stat(path)
        start = self._read_to.get(stem, 0)
        if about.st_size <= start or about.st_mtime_ns // 1000 < self._since_us:
            return
        with open(path, "rb") as file:
            file.seek(start)
            content = file.read(about.st_size - start)
        whole = content[: content.rfind(b"\n") + 1]
        self._read_to[stem] = start + len(whole)
        wanted = self._plan_id.encode()
        for line in whole.splitlines():
            if wanted in line:
                self._line(line)

    def _line(self, line: bytes) -> None:
        try:
            record = json.loads(line)
        except ValueError:
            return  # `compact` moves it into quarantine
        if not isinstance(record, dict) or record.get("replay_id") != self._plan_id:
            return
        if record.get("outcome") in _DECIDED:
            self._decided.add(str(record.get("message_key")))
        if record.get("outcome") in _DIED:
            self._died.add(str(record.get("message_key")))
