# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""What becomes of the letters that were sent back: seen in the consumers' journal, or in the dead-letter queues.

A journal tells which messages were handled and which died again. A queue tells how many died: by the replay's id where
the broker can be looked into, else by how much it grew, whoever filled it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, Protocol

from ...errors import ConfigError, DestinationMissing
from ...message import Destination
from ..errors import lake_error
from .sync_connection import SyncConnection

LOOKED_INTO: Final = 10_000  # letters of a queue that are looked at; a longer one is only counted
_DIED: Final = {"dead_lettered", "discarded"}
_DECIDED: Final = _DIED | {"accepted", "kept"}
_HEAD, _TAIL = ("_", ""), (".open", "")


@dataclass(frozen=True, slots=True)
class CanarySeen:
    """Since the last `mark`: how many have died again, and of how many the end is known (None: that is not told)."""

    died: int
    decided: int | None


class CanaryWatch(Protocol):
    """Every method may raise RedeliverError."""

    @property
    def names(self) -> frozenset[str] | None:
        """The keys of all messages of this replay that died again; None where they are not told."""

    def mark(self) -> None: ...
    def look(self) -> CanarySeen: ...
    def close(self) -> None: ...


class JournalWatch:
    """The journal of the consumers, those segments included that are being written. ConfigError if it is not there.

    Only segments that were written to since `since_us` are read, each byte once.
    """

    def __init__(self, folder: str, plan_id: str, since_us: int) -> None:
        if not os.path.isdir(folder):
            cure = "Give the folder that the consumers' `App(journal=…)` writes to"
            raise ConfigError("no journal is here", where=folder, cure=cure)
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
            return  # it got its readable name since it was listed: the next look finds it
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
            said = json.loads(line)
        except ValueError:
            return  # `compact` puts it into quarantine
        if not isinstance(said, dict) or said.get("replay_id") != self._plan_id:
            return
        if said.get("outcome") in _DECIDED:
            self._decided.add(str(said.get("message_key")))
        if said.get("outcome") in _DIED:
            self._died.add(str(said.get("message_key")))


class QueueWatch:
    """The dead-letter queues that the letters came from, over a connection of its own."""

    def __init__(self, url: str, queues: Collection[Destination], plan_id: str) -> None:
        self._queues, self._plan_id = queues, plan_id
        self._line = SyncConnection(url).open()
        self._marked: dict[Destination, int] = {}
        self._most = 0

    @property
    def names(self) -> frozenset[str] | None:
        return None

    def mark(self) -> None:
        self._marked, self._most = {queue: self._count(queue) for queue in self._queues}, 0

    def look(self) -> CanarySeen:
        grown = sum(max(0, self._count(queue) - self._marked.get(queue, 0)) for queue in self._queues)
        self._most = max(self._most, grown)  # who takes letters out meanwhile does not heal them
        return CanarySeen(self._most, None)

    def close(self) -> None:
        self._line.close()

    def _count(self, queue: Destination) -> int:
        """Letters of this replay, as far as that can be told."""
        try:
            if self._line.adapter.capabilities.browse == "copy":
                found = self._line.browse(queue, LOOKED_INTO)
                if len(found) < LOOKED_INTO:
                    return sum(one.headers.get("redeliver_replay_id") == self._plan_id for one in found)
            return self._line.depth(queue)
        except DestinationMissing:
            return 0  # nobody has died yet
