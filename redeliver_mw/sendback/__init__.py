# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Dead letters: read, and sent back to where they were consumed from. Knows no command line and no Spark.

A letter is consumed, its copy published, and only on the broker's confirm is the letter settled. Whatever ends
it on the way leaves the letter in its queue, or in both places, never in none.
"""

from __future__ import annotations

from .asking import Asking
from .letters import DeadLetterInfo, letter_of
from .packed import Edits, Packed, copy_of, pack, unpack
from .replay import SendBack, missing
from .report import Outcome, Report, ambiguous, no_such_letter
from .share import BATCH, Keeper, Share, Taken

__all__ = [
    "BATCH", "Asking", "DeadLetterInfo", "Edits", "Keeper", "Outcome", "Packed", "Report", "SendBack", "Share",
    "Taken", "ambiguous", "copy_of", "letter_of", "missing", "no_such_letter", "pack", "unpack",
]  # fmt: skip
