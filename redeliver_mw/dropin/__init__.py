# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""What every drop-in wrapper needs, whatever its driver: for the authors of wrappers.

A wrapper brings five things of its driver's and gets the rest from here:

- a `Ground`, the user's connection and its loop: `later`, `hop`;
- a `Seat`, where deliveries are settled: `is_open`, `write`, and the capture of the callback's own words;
- a `Post`, on which copies go out: `store`, and `move` where the broker has transactions;
- a `Caller`, which calls the user's callback: `invoke`;
- `redelivering(...)`, whose options are `Options`, checked by `Terms`.
"""

from .caller import Caller
from .companion import Companion
from .own_limbo import OwnLimbo
from .post import Alive, Ground, Post
from .seat import Seat
from .terms import Options, Terms
from .turn import Keeper, Turn
from .words import ACK, Acked, Requeued

__all__ = [
    "ACK",
    "Acked",
    "Alive",
    "Caller",
    "Companion",
    "Ground",
    "Keeper",
    "Options",
    "OwnLimbo",
    "Post",
    "Requeued",
    "Seat",
    "Terms",
    "Turn",
]
