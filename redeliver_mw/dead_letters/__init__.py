# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Reads dead letters and sends them back to their sources. Has no dependency on the command line or on Spark.

A letter is consumed, its copy is published, and the letter is settled only after the broker's confirm. An interruption
at any point leaves the letter in its queue, or in both places, but never in none.
"""

from __future__ import annotations

from .broker_client import BrokerClient
from .details import LetterDetails, details_of, stored_text
from .drain import BATCH, LetterStore, QueueDrain, ReadLetters, TakenLetter
from .letter import DeadLetterInfo, letter_of
from .packed import Edits, Packed, copy_of, pack, unpack
from .replay import Replay, missing
from .report import LetterOutcome, ReplayReport, ambiguous, no_such_letter

__all__ = [
    "BATCH",
    "BrokerClient",
    "DeadLetterInfo",
    "Edits",
    "LetterDetails",
    "LetterOutcome",
    "LetterStore",
    "Packed",
    "QueueDrain",
    "ReadLetters",
    "Replay",
    "ReplayReport",
    "TakenLetter",
    "ambiguous",
    "copy_of",
    "details_of",
    "letter_of",
    "missing",
    "no_such_letter",
    "pack",
    "stored_text",
    "unpack",
]
