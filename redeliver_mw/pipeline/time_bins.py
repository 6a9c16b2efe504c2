# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Divides times into bins whose width is at most 1/128 of their lower edge, from 1 microsecond to some centuries.

A bin is found by shifting integers, so Spark, DuckDB and Python agree on every bin: up to 255 each microsecond has a
bin of its own; above that, each doubling has 128. `as_sql` computes the same for a column, in either of the two
engines.

    >>> bin_of(255), bin_of(256), bin_of(257), bin_of(258)
    (255, 256, 256, 257)
    >>> lower_edge(257)
    258
"""

from __future__ import annotations

from typing import Final

_BITS: Final = 7
_SUBS: Final = 1 << _BITS  # bins in a doubling


def bin_of(us: int) -> int:
    """Return the bin of a time in microseconds; times below 0 are in bin 0."""
    us = max(0, us)
    shift = max(0, us.bit_length() - 1 - _BITS)
    return shift * _SUBS + (us >> shift)


def lower_edge(number: int) -> int:
    """Return the first microsecond of a bin, which follows the last one of the bin before."""
    shift = max(0, number // _SUBS - 1)
    return (number - shift * _SUBS) << shift


def as_sql(column: str) -> str:
    """Return `bin_of` of a BIGINT column as SQL, an INT; null for null.

    `column` must be a name, because it occurs several times.

    A logarithm in floating point is one off next to high powers of two. This does no harm: the last bin of a doubling
    has the same number with the shift of the next one, and the first with that of the one before.
    """
    shift = f"greatest(CAST(floor(log2(greatest({column}, 1))) AS INT) - {_BITS}, 0)"
    return f"CAST(({shift}) * {_SUBS} + (CASE WHEN {column} < 0 THEN 0 ELSE {column} END >> ({shift})) AS INT)"
