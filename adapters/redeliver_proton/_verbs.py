# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""What AMQP 1.0's outcomes really do on Artemis. Pure; `test_verbs` tries each on a real broker."""

from __future__ import annotations

from redeliver_mw.capabilities import Trust, Verb

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
    Verb(ACCEPTED, "gone", "sent, after the last copy is confirmed"),
    Verb(RELEASED, "back", 'held here, or a scheduled copy; with `delay="nack"` sent after a hold', "a hot loop"),
    Verb(MODIFIED, "back", _UNUSED, "a hot loop"),
    Verb(FAILED, "back, counted", _UNUSED, "a hot loop, until `max-delivery-attempts` buries it"),
    Verb(HERE, "back, to others only", _UNUSED),
    Verb(ANNOTATED, "back", _UNUSED, "the annotation is ignored"),
    Verb(REJECTED, "dead-letter queue", _NEVER, "the reason is lost"),
    Verb(REJECTED_BARE, "destroyed", _NEVER, "and nobody says so"),
    Verb(REJECTED_DEAD, "dead-letter queue", _NEVER, "again and again, and where it came from is overwritten"),
    Verb(DETACHED, "back", _OURS, "what was only prefetched, too"),
    Verb(LOST, "back, counted by chance", _OURS, "in about one of three, with all that was only prefetched"),
    Verb(DELAY, "after its delay", "copies for rests above 10 s, or when the window's half is full", "to a few ms"),
    Verb(DELAY_TEXT, "at once", "always written as an integer", "and nobody says so"),
    Verb(
        COMMIT, "both or neither", "copies and their originals, also delayed ones, several together",
        "an abort adds one to the broker's count",
    ),
)  # fmt: skip
_UNTRIED = Verb("every outcome", "not tried", "as there", "taken to be as on these", basis=Trust.UNKNOWN)


def verbs(version: str) -> tuple[Verb, ...]:
    """Of one broker; one row that says so where none of its series was tried."""
    return _VERBS if version.startswith(("2.40.", "2.44.")) else (_UNTRIED,)
