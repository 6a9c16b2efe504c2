# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Stacks that are nearly the same, found among thousands without comparing each with each.

A stack is the set of its shingles, three frames in a row; one of fewer than three frames is the set of these. Two are
near if they are of one error type and share at least four fifths of the shingles that either has (Jaccard's index).

Candidates come from MinHash: in each place of their signatures two stacks agree with a probability that is their
index, and they are compared if they agree in all places of one band. That misses 1 in 20 million of the pairs at the
threshold; those that are found are verified exactly. Nothing in it is random: the groups are the same everywhere.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .arrays import Bools, Ints

SHINGLE: Final = 3  # frames
NEAR: Final = (4, 5)  # four fifths
_BANDS: Final = 32
_PLACES: Final = 4  # of a signature, in each band
_SEED: Final = 2026

Shingle = tuple[str, ...]
Hashes = NDArray[np.uint64]


class Stack(NamedTuple):
    """A fingerprint, and what made it."""

    fingerprint: str
    error_type: str | None
    frames: Sequence[str]


def groups(stacks: Iterable[Stack]) -> dict[str, str]:
    """For each fingerprint the smallest one of its group: those that are near, or linked by such as are near.

    A fingerprint may come once. One without frames is near to no other.
    """
    found: dict[str, str] = {}
    of_type: dict[str | None, list[Stack]] = defaultdict(list)
    for stack in sorted(stacks, key=lambda stack: stack.fingerprint):
        found[stack.fingerprint] = stack.fingerprint
        if stack.frames:
            of_type[stack.error_type].append(stack)
    for alike in of_type.values():
        firsts = _Sets([shingles(stack.frames) for stack in alike]).linked()
        found |= {stack.fingerprint: alike[first].fingerprint for stack, first in zip(alike, firsts, strict=True)}
    return found


def shingles(frames: Sequence[str]) -> frozenset[Shingle]:
    """What a stack is compared by."""
    size = SHINGLE if len(frames) >= SHINGLE else 1
    return frozenset(tuple(frames[at : at + size]) for at in range(len(frames) - size + 1))


class _Sets:
    """Sets of shingles, none of them empty, as numbers: `rows` one set a line, filled up with -1."""

    def __init__(self, sets: Sequence[frozenset[Shingle]]) -> None:
        numbers = {one: number for number, one in enumerate(sorted(frozenset().union(*sets)))}
        self.hashes: Hashes = np.array([_hash(one) for one in numbers], dtype=np.uint64)
        self.sizes: Ints = np.array([len(one) for one in sets], dtype=np.int64)
        self.rows: Ints = np.full((len(sets), int(self.sizes.max())), -1, dtype=np.int64)
        for row, one in zip(self.rows, sets, strict=True):
            row[: len(one)] = sorted(numbers[shingle] for shingle in one)

    def linked(self) -> list[int]:
        """For each set the first one of those that it is linked with."""
        first = np.arange(len(self.sizes))
        for bucket in self._buckets():
            for at, one in enumerate(bucket[:-1]):
                others = bucket[at + 1 :]
                others = others[first[others] != first[one]]
                for other in others[self._are_near(one, others)]:
                    low, high = sorted((first[one], first[other]))
                    first[first == high] = low
        return [int(one) for one in first]

    def _are_near(self, one: np.int64, others: Ints) -> Bools:
        shared = np.isin(self.rows[others], self.rows[one, : self.sizes[one]]).sum(axis=1)
        either = self.sizes[one] + self.sizes[others] - shared
        part, whole = NEAR
        near: Bools = shared * whole >= either * part
        return near

    def _buckets(self) -> Iterator[Ints]:
        """Sets that agree in a band, band after band; those alone are left out."""
        flat = self.hashes[self.rows[self.rows >= 0]]
        starts = np.concatenate(([0], np.cumsum(self.sizes)[:-1]))
        rng = np.random.default_rng(_SEED)
        for _ in range(_BANDS):
            # Odd factors and wrapping around at 2**64: each place orders all hashes anew.
            factors = rng.integers(0, 1 << 63, size=_PLACES, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
            band = np.minimum.reduceat(flat[:, None] * factors, starts, axis=0)
            _, kind = np.unique(band, axis=0, return_inverse=True)
            order = np.argsort(kind, kind="stable")
            for bucket in np.split(order, np.flatnonzero(np.diff(kind[order])) + 1):
                if len(bucket) > 1:
                    yield bucket


def _hash(shingle: Shingle) -> int:
    text = "\n".join(shingle).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")
