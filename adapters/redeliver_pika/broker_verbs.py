# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Lists what AMQP 0-9-1's verbs really do on RabbitMQ, by version and type of queue. `test_verbs` tries each."""

from __future__ import annotations

from redeliver_mw.adapter.capabilities import SettlementOutcome, Trust, VerbRecord

TRIED = ("3.10.8", "4.3.6")  # of the series that `verbs` knows
UNTRIED = {"before 3.10": "3.9", "3.11 to 3.13": "3.11", "4.0 to 4.2": "4.0", "4.4 and later": "4.4"}  # by example

ACK, NACK, REJECT = "`basic.ack`", "`basic.nack`, requeue", "`basic.reject`, requeue"
DISCARD = "`nack` or `reject`, no requeue, with a dead-letter exchange"
DISCARD_BARE = "`nack` or `reject`, no requeue, without one"
NACK_ALL = "`basic.nack`, requeue, `multiple`"
RETRY_NACK = "`basic.nack`, requeue, in a queue with `x-delayed-retry-type` `all` or `returned`"
RETRY_REJECT = "`basic.reject`, requeue, in a queue with `x-delayed-retry-type` `all` or `failed`"
LOST = "channel or connection lost"
LADDER, EXPIRATION = "queue with a TTL that dead-letters back", "`expiration` on a message in such a queue"
TIMEOUT, LIMIT = "unsettled beyond the consumer timeout", "delivery limit of a queue that is there"

_HELD = 'held here, or a copy on the ladder; with `delay="nack"` sent after a hold'
_NEVER = "never sent"
_COPY = "never sent: a dead letter is a confirmed copy of ours"
_OURS = "our own count, in the ledger and on copies"
_COUNTS = "towards the queue's limit"
_PREFETCHED = "what was only prefetched, too"
_ALIKE = (
    VerbRecord(ACK, "gone", "sent, cumulative where all before it is accepted too"),
    VerbRecord(DISCARD, "dead-letter queue", _COPY),
    VerbRecord(DISCARD_BARE, "destroyed", _COPY),
)
_STOP = "sent when a subscription ends, for what is unsettled"
_CLASSIC = (
    VerbRecord(NACK, "back, marked", _HELD, "a hot loop", "classic"),
    VerbRecord(NACK_ALL, "back, marked", _STOP, "each as by a nack of its own", "classic"),
    VerbRecord(REJECT, "back, marked", _NEVER, "a hot loop", "classic"),
    VerbRecord(LOST, "back, marked", _OURS, _PREFETCHED, "classic"),
    VerbRecord(
        LADDER, "after its delay", "not used", "but lost where the source is full or gone at that moment", "classic"
    ),
)
_RETRY = 'as above; with `delay="nack"` the hold is shorter by that delay, where it is known'
_MINIMUM = "of `x-delayed-retry-min`; times the count of what came back counted, up to `-max`"
_EXPIRATION = VerbRecord(EXPIRATION, "behind longer ones", "not used: a rung, a queue of its own, for each delay")
_LADDER = VerbRecord(
    LADDER, "after its delay", "the ladder of retry queues", "at-least-once: kept while the source is full", "quorum"
)


def verbs(version: str, number: tuple[int, ...]) -> tuple[VerbRecord, ...]:
    """Return the verbs of one broker; for a series that was not tried, one row that says so."""
    if number[:2] == (3, 10):
        return (*_ALIKE, *_CLASSIC, *_quorum_310(), *_timeout_310(), _limit("there is none unasked"))
    if number[:2] == (4, 3):
        return (*_ALIKE, *_CLASSIC, *_quorum_43(), *_timeout_43(), _limit("20 unasked"))
    return (_untried(number),)


def _quorum_310() -> tuple[VerbRecord, ...]:
    warned = f"{_HELD}, and warned of: a limit cannot be seen"
    return (
        VerbRecord(NACK, "back, counted", warned, f"a hot loop; counts {_COUNTS}", "quorum"),
        VerbRecord(NACK_ALL, "back, counted", _STOP, "each as by a nack of its own", "quorum"),
        VerbRecord(REJECT, "back, counted", _NEVER, f"a hot loop; counts {_COUNTS}", "quorum"),
        VerbRecord(LOST, "back, counted", _OURS, f"{_PREFETCHED}; counts {_COUNTS}", "quorum"),
        _LADDER,
        _EXPIRATION,
    )


def _quorum_43() -> tuple[VerbRecord, ...]:
    return (
        VerbRecord(NACK, "back, marked", _HELD, "a hot loop; no limit ends it", "quorum"),
        VerbRecord(NACK_ALL, "back, marked", _STOP, "each as by a nack of its own", "quorum"),
        VerbRecord(RETRY_NACK, "after its delay", _RETRY, _MINIMUM, "quorum"),
        VerbRecord(REJECT, "back, counted", _NEVER, f"a hot loop; counts {_COUNTS}", "quorum"),
        VerbRecord(RETRY_REJECT, "after its delay", _NEVER, f"the minimum times its count; counts {_COUNTS}", "quorum"),
        VerbRecord(LOST, "back, counted", _OURS, f"{_PREFETCHED}; counts {_COUNTS}", "quorum"),
        _LADDER,
        _EXPIRATION,
    )


def _timeout_310() -> tuple[VerbRecord, ...]:
    closed = "the channel is closed, and with it goes all else on it"
    return (_timeout("back, marked", closed, "classic"), _timeout("back, counted", closed, "quorum"))


def _timeout_43() -> tuple[VerbRecord, ...]:
    return (
        _timeout("nothing happens", "not within 130 s, with a timeout of 5", "classic"),
        _timeout("back, marked", "`basic.cancel`; channel and connection stay", "quorum"),
    )


def _timeout(outcome: SettlementOutcome, note: str, kind: str) -> VerbRecord:
    use = "`App(ack_timeout=)` says how long it is; no hold comes near it"
    return VerbRecord(TIMEOUT, outcome, use, note, kind, Trust.DECLARED)


def _limit(note: str) -> VerbRecord:
    hoped = "AMQP does not tell it: give such queues a generous one"
    return VerbRecord(
        LIMIT, "dead-letter queue", hoped, f"destroyed where there is none; {note}", "quorum", Trust.UNKNOWN
    )


def _untried(number: tuple[int, ...]) -> VerbRecord:
    if number < (3, 10):
        note, instead = "taken to be as on 3.10", "as there, without the ladder: delays above 10 s are refused"
    elif number < (4, 0):
        note, instead = "taken to be as on 3.10", "as there"
    elif number < (4, 3):
        note, instead = "taken to be as on 3.10, with a limit of 20 unasked", 'as there; `delay="nack"` is refused'
    else:
        note, instead = "taken to be as on 4.3", "as there"
    return VerbRecord("every verb", "not tried", instead, note, basis=Trust.UNKNOWN)
