# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""The publishers of a run as a Spark job: who sends what, waited for, and how they ended. On the driver."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ...errors import RedeliverError
from ..errors import SparkError, told
from .work import REPORT, PublisherTask, read_report, stop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AGAIN: Final = "Run it again: it goes on where it was"


class PublisherJob:
    """The publishers as a Spark job, in a thread of its own."""

    def __init__(self, spark: SparkSession, work: PublisherTask) -> None:
        self._spark, self._work = spark, work
        self._sent: list[Any] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="redeliver-replay", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        from .publisher_task import run_publishers

        try:
            number = len(self._work.shares)
            numbers = self._spark.range(0, number, 1, number)
            self._sent = numbers.mapInArrow(partial(run_publishers, self._work), REPORT).collect()
        except BaseException as error:  # raised by `errors`, in the thread that waits for it
            self._error = error
            with suppress(OSError):
                stop(self._work, "the job was given up")  # what is left of it ends, too

    def over(self, timeout: float) -> bool:
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def end(self) -> None:
        """Whatever ended the driver's wait: the publishers end in good order."""
        if self._thread.is_alive():
            with suppress(OSError):
                stop(self._work, "the driver ends")
            self._thread.join()

    def errors(self) -> list[RedeliverError]:
        """Those that ended publishers. SparkError if one died."""
        if self._error is None:
            return [error for row in self._sent if (error := read_report(row["report"])) is not None]
        try:
            with told(self._work.folder):
                raise self._error
        except SparkError as error:
            raise SparkError(error.what, where=error.where, cure=f"{AGAIN}. {error.cure}") from self._error


def shares_of(letters: Mapping[int, int], publishers: int) -> list[list[int]]:
    """The buckets of each publisher: the largest first, each to who has least."""
    shares: list[list[int]] = [[] for _ in range(publishers)]
    sizes = [0] * publishers
    for bucket, number in sorted(letters.items(), key=lambda one: (-one[1], one[0])):
        least = sizes.index(min(sizes))
        shares[least].append(bucket)
        sizes[least] += number
    return shares
