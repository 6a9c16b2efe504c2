# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Ids of records: of no other process, and of no other run of this one."""

from __future__ import annotations

import itertools
import os
import weakref


class RecordIds:
    """Ids that no other process or run gives out: `<12 hex digits of this run>-<counter>`.

    `next()` may be called from any thread: it takes no lock, the counter's step is atomic in CPython.
    A forked child counts under a run id of its own.
    """

    __slots__ = ("__weakref__", "_count", "_prefix")

    def __init__(self, run: str | None = None) -> None:
        self._start(run or os.urandom(6).hex())
        _alive.add(self)

    def _start(self, run: str) -> None:
        self._prefix = run + "-"
        self._count = itertools.count(1)

    def next(self) -> str:
        return self._prefix + str(next(self._count))


_alive: weakref.WeakSet[RecordIds] = weakref.WeakSet()


def _renew_after_fork() -> None:
    for ids in list(_alive):
        ids._start(os.urandom(6).hex())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_after_fork)
