# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""How long the longest outage of each destination was, from counts of failures over time.

Messages that fail in one outage recover together, so they tell no more than one message would. Whatever is said of
chance has to count outages, and therefore has to know how long they are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Final

import numpy as np

from .observations import ObservationRow

_TIMES: Final = 5.0  # so many times the usual number of failures make an outage
_LEAST: Final = 5.0  # failures in a bucket: fewer may be chance
_GAP: Final = 2  # buckets without many failures that do not end an outage


def longest_outages(rows: Iterable[ObservationRow], buckets: int) -> dict[str, float]:
    """Return the longest outage of each destination as a share of the time, from rows with `bucket` and `n`.

    An outage is a run of buckets with far more failures than the usual one has; 0 if there was none.
    """
    counts: dict[str, np.ndarray] = defaultdict(lambda: np.zeros(buckets))
    for row in rows:
        counts[row["destination"]][min(row["bucket"], buckets - 1)] += row["n"]
    return {destination: longest(found) / buckets for destination, found in counts.items()}


def longest(counts: np.ndarray) -> int:
    """Return how many buckets the longest outage spans; 0 if there was none."""
    many = np.flatnonzero(counts >= max(_TIMES * float(np.median(counts)), _LEAST))
    if not len(many):
        return 0
    breaks = np.flatnonzero(np.diff(many) > 1 + _GAP)
    starts = np.concatenate([[0], breaks + 1])
    ends = np.concatenate([breaks, [len(many) - 1]])
    return int((many[ends] - many[starts]).max()) + 1
