# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Lists what AMQP 1.0's outcomes really do on RabbitMQ, by type of queue. Pure; `test_verbs_rabbitmq` tries each."""

from __future__ import annotations

from redeliver_mw.adapter.capabilities import Trust, VerbRecord

TRIED = ("4.3.6",)  # of the series that `verbs` knows
UNTRIED = {"4.0 to 4.2": "4.0", "4.4 and later": "4.4"}  # by example

ACCEPTED, RELEASED = "accepted", "released"
MODIFIED, FAILED = "modified", "modified (delivery-failed)"
HERE = "modified (undeliverable-here)"
LATER, LATER_TEXT = "modified, with an `x-opt-delivery-time`", "modified, with an `x-opt-delivery-time` as text"
LATER_TTL = "modified, with an `x-opt-delivery-time`, of a message with a `ttl`"
REJECTED, REJECTED_BARE = "rejected, with a dead-letter exchange", "rejected, without one"
DETACHED, LOST = "link detached", "session or connection closed, or lost"
DELAY = "`x-opt-delivery-time` on a message"
LIMIT = "delivery limit of a queue that is there"

_NEVER = "never sent: a dead letter is a confirmed copy of ours"
_UNUSED = "not used"
_OURS = "our own count, in the ledger, on copies and on what is given back"
_HELD = "held here up to 10 s"
_LOOP = "a hot loop; no limit ends it"
_COUNTS = "counts towards the queue's limit"
_ALIKE = (
    VerbRecord(ACCEPTED, "gone", "sent, after the last copy is confirmed"),
    VerbRecord(
        HERE, "dead-letter queue", _UNUSED, "destroyed where there is no dead-letter exchange; never goes to others"
    ),
    VerbRecord(REJECTED, "dead-letter queue", _NEVER, "the reason is lost"),
    VerbRecord(REJECTED_BARE, "destroyed", _NEVER, "and nobody says so"),
    VerbRecord(DELAY, "at once", "no copy is scheduled: a message is given back", "and nobody says so"),
)
_QUORUM = (
    VerbRecord(RELEASED, "back, marked", f"{_HELD}, or given back with a time", _LOOP, "quorum"),
    VerbRecord(MODIFIED, "back, marked", "sent at a stop, with our count on it", _LOOP, "quorum"),
    VerbRecord(FAILED, "back, counted", _UNUSED, f"a hot loop; {_COUNTS}", "quorum"),
    VerbRecord(
        LATER,
        "after its delay",
        "delays above 10 s, or when the window's half is full, our count on it",
        "to a few ms, uncounted, nothing waits behind it; a purge takes it along",
        "quorum",
    ),
    VerbRecord(LATER_TEXT, "at once", "always written as a ulong", "and nobody says so", "quorum"),
    VerbRecord(
        LATER_TTL,
        "destroyed",
        f"{_HELD}, again and again",
        "dead-lettered or dropped when its time to live ends",
        "quorum",
    ),
    VerbRecord(
        DETACHED, "back, marked", f"{_OURS}; our links are detached first", "what was only prefetched, too", "quorum"
    ),
    VerbRecord(LOST, "back, counted", _OURS, f"what was only prefetched, too; {_COUNTS}", "quorum"),
)
_CLASSIC = (
    VerbRecord(RELEASED, "back, marked", _HELD, "a hot loop", "classic"),
    VerbRecord(MODIFIED, "back, marked", _UNUSED, "a hot loop", "classic"),
    VerbRecord(FAILED, "back, counted", _UNUSED, "a hot loop", "classic"),
    VerbRecord(LATER, "at once", f"{_HELD}, longer policies refused at start", "and nobody says so", "classic"),
    VerbRecord(DETACHED, "back, counted", _OURS, "what was only prefetched, too", "classic"),
    VerbRecord(LOST, "back, counted", _OURS, "what was only prefetched, too", "classic"),
)
_LIMIT = VerbRecord(
    LIMIT,
    "dead-letter queue",
    "AMQP does not tell it: give such queues a generous one",
    "destroyed where there is none; 20 unasked, towards which counts what is cut off",
    "quorum",
    Trust.UNKNOWN,
)


def verbs(number: tuple[int, ...]) -> tuple[VerbRecord, ...]:
    """Return the verbs of one broker; for a series that was not tried, one row that says so."""
    if number[:2] == (4, 3):
        return (*_ALIKE, *_QUORUM, *_CLASSIC, _LIMIT)
    note, instead = "taken to be as on 4.3", "as there"
    if number < (4, 3):
        note, instead = f"{note}, without the delay", "as there on classic queues"
    return (VerbRecord("every outcome", "not tried", instead, note, basis=Trust.UNKNOWN),)
