# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""What a replay tells its publishers, and what they report. No pyarrow in here."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from ... import errors
from ...errors import RedeliverError
from ..errors import LakeError
from .ledger import FOLDER

REPORT: Final = "report STRING"


@dataclass(frozen=True, slots=True, kw_only=True)
class PublisherTask:
    """What the publishers of a run have to know: number n sends the letters of the buckets in `shares[n]`.

    Only letters whose rank is below `below` go (None: all), at `rate` a second for each publisher (None: as many as
    can be), `batch` of them at a time. `bodies` is the folder where they are, if not in the plan.
    """

    folder: str
    plan_id: str
    run: str
    url: str = field(repr=False)
    shares: Sequence[Sequence[int]]
    bodies: str = ""
    ordered: bool = False
    below: int | None = None
    rate: float | None = None
    batch: int = 500

    @property
    def stop_file(self) -> str:
        """Where it is, publishers begin no further batch."""
        return os.path.join(self.folder, FOLDER, f"_stop-{self.run}")


def stop(work: PublisherTask, why: str) -> None:
    """Let all publishers of the run end in good order. OSError."""
    with open(work.stop_file, "w", encoding="utf-8") as file:
        file.write(why)


def to_text(error: RedeliverError | None) -> str:
    """How a publisher ended: the error that ended it, or none. What it sent is in the ledger."""
    return json.dumps(None if error is None else [type(error).__name__, error.what, error.where, error.cure])


def read_report(text: str) -> RedeliverError | None:
    """What `to_text` wrote."""
    said = json.loads(text)
    return None if said is None else _error(*said)


def _error(name: str, what: str, where: str, cure: str) -> RedeliverError:
    kind: type[RedeliverError] = LakeError if name == "LakeError" else getattr(errors, name, RedeliverError)
    return kind(what, where=where, cure=cure)
