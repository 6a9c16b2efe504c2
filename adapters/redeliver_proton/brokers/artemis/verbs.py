# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Lists the effects of AMQP 1.0's outcomes on Artemis. Pure; `test_verbs` tries each on a real broker."""

from __future__ import annotations

from redeliver_mw.adapter.capabilities import Trust, VerbRecord

TRIED = ("2.40.0", "2.44.0")  # of the series that `verbs` knows; 2.40 by hand, with the trials of `test_verbs`
UNTRIED = ("any other",)

ACCEPTED, RELEASED = "accepted", "released"
MODIFIED, FAILED = "modified", "modified (delivery-failed)"
HERE = "modified (undeliverable-here)"
ANNOTATED = "modified, with an `x-opt-delivery-time`"
REJECTED, REJECTED_BARE = "rejected", "rejected, dead-letter address missing or without a queue"
REJECTED_DEAD = "rejected, from the dead-letter queue"
DETACHED, LOST = "link detached, or connection closed", "connection lost"
DELAY, DELAY_TEXT = "`x-opt-delivery-time` on a message, an integer", "`x-opt-delivery-time` as text or timestamp"
COMMIT = "transaction of sends and an accept"

_NEVER = "never sent: a dead letter is a confirmed copy of ours"
_UNUSED = "not used"
_OURS = "our own count, in the ledger and on copies"
_VERBS = (
    VerbRecord(ACCEPTED, "gone", "sent, after the last copy is confirmed"),
    VerbRecord(RELEASED, "back", 'held here, or a scheduled copy; with `delay="nack"` sent after a hold', "a hot loop"),
    VerbRecord(MODIFIED, "back", _UNUSED, "a hot loop"),
    VerbRecord(FAILED, "back, counted", _UNUSED, "a hot loop, until `max-delivery-attempts` dead-letters it"),
    VerbRecord(HERE, "back, to others only", _UNUSED),
    VerbRecord(ANNOTATED, "back", _UNUSED, "the annotation is ignored"),
    VerbRecord(REJECTED, "dead-letter queue", _NEVER, "the reason is lost"),
    VerbRecord(REJECTED_BARE, "destroyed", _NEVER, "and nobody says so"),
    VerbRecord(REJECTED_DEAD, "dead-letter queue", _NEVER, "again and again, and where it came from is overwritten"),
    VerbRecord(DETACHED, "back", _OURS, "what was only prefetched, too"),
    VerbRecord(LOST, "back, counted by chance", _OURS, "in about one of three, with all that was only prefetched"),
    VerbRecord(
        DELAY, "after its delay", "copies for delays above 10 s, or when the window's half is full", "to a few ms"
    ),
    VerbRecord(DELAY_TEXT, "at once", "always written as an integer", "and nobody says so"),
    VerbRecord(
        COMMIT,
        "both or neither",
        "copies and their originals, also delayed ones, several together",
        "an abort adds one to the broker's count",
    ),
)
_UNTRIED = VerbRecord("every outcome", "not tried", "as there", "taken to be as on these", basis=Trust.UNKNOWN)


def verbs(version: str) -> tuple[VerbRecord, ...]:
    """Return the rows of one broker; one row that says so where none of its series was tried."""
    return _VERBS if version.startswith(("2.40.", "2.44.")) else (_UNTRIED,)
