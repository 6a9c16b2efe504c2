# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Finds stacks that are nearly the same, among thousands, without comparing each with each.

A stack is the set of its shingles, three frames in a row; a stack of fewer than three frames is the set of these. Two
stacks are near if they have one error type and share at least four fifths of the shingles that either has (Jaccard's
index).

Candidates come from MinHash: in each place of their signatures two stacks agree with a probability equal to their
index, and two stacks are compared if they agree in all places of one band. This misses 1 in 20 million of the pairs at
the threshold; candidates are verified exactly. Nothing is random: the groups are the same everywhere.
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
_PLACES: Final = 4  # places of a signature, in each band
_SEED: Final = 2026

Shingle = tuple[str, ...]
Hashes = NDArray[np.uint64]


class Stack(NamedTuple):
    """Holds a fingerprint, and the error type and frames that it was made from."""

    fingerprint: str
    error_type: str | None
    frames: Sequence[str]


def groups(stacks: Iterable[Stack]) -> dict[str, str]:
    """Return for each fingerprint the smallest one of its group: all that are near, or linked by others that are near.

    A fingerprint may occur once. A stack without frames is near to no other.
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
    """Return the set by which a stack is compared."""
    size = SHINGLE if len(frames) >= SHINGLE else 1
    return frozenset(tuple(frames[at : at + size]) for at in range(len(frames) - size + 1))


class _Sets:
    """Holds sets of shingles, none of them empty, as numbers: `rows` has one set per row, padded with -1."""

    def __init__(self, sets: Sequence[frozenset[Shingle]]) -> None:
        numbers = {one: number for number, one in enumerate(sorted(frozenset().union(*sets)))}
        self.hashes: Hashes = np.array([_hash(one) for one in numbers], dtype=np.uint64)
        self.sizes: Ints = np.array([len(one) for one in sets], dtype=np.int64)
        self.rows: Ints = np.full((len(sets), int(self.sizes.max())), -1, dtype=np.int64)
        for row, one in zip(self.rows, sets, strict=True):
            row[: len(one)] = sorted(numbers[shingle] for shingle in one)

    def linked(self) -> list[int]:
        """Return for each set the first of the sets that it is linked with."""
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
        """Yield sets that agree in a band, band after band; sets without a partner are left out."""
        flat = self.hashes[self.rows[self.rows >= 0]]
        starts = np.concatenate(([0], np.cumsum(self.sizes)[:-1]))
        rng = np.random.default_rng(_SEED)
        for _ in range(_BANDS):
            # Odd factors and wrapping around at 2**64: each place orders all hashes differently.
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
