# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Lists what STOMP's frames really do on ActiveMQ Classic. Pure; `test_verbs` tries each on a real broker."""

from __future__ import annotations

from redeliver_mw.adapter.capabilities import Trust, VerbRecord

TRIED = ("5.18.3", "6.3.1")  # of the series that `verbs` knows
UNTRIED = ("any other",)

ACK, ACK_CLIENT = "ACK, `ack:client-individual`", "ACK, `ack:client`"
AUTO = "`ack:auto`, connection lost"
NACK, NACK_TRANSIENT, NACK_DEAD = "NACK, persistent", "NACK, not persistent", "NACK of what came from the DLQ"
LOST, LATE_ACK = "connection lost", "UNSUBSCRIBE, then ACK"
FOREIGN_ACK = "ACK of an AMQP message with an id of its producer's"
DELAY, DELAY_OFF = "`AMQ_SCHEDULED_DELAY`, scheduler on", "`AMQ_SCHEDULED_DELAY`, scheduler off, as by default"
COMMIT, COMMIT_ERROR = "BEGIN, SEND, ACK, COMMIT", "the same, with an ERROR for the ACK"

_NEVER = "never sent: a retry is held here or a copy, a dead letter a confirmed copy of ours"
_INDIVIDUAL = "the subscription is made `client-individual`"
_VERBS = (
    VerbRecord(ACK, "gone", "sent, many in one write"),
    VerbRecord(ACK_CLIENT, "gone, and all before it", _INDIVIDUAL, "healthy or failing"),
    VerbRecord(AUTO, "destroyed", _INDIVIDUAL, "stomp.py's default: gone before the handler runs"),
    VerbRecord(NACK, "dead-letter queue", _NEVER, "at once; it does not say why"),
    VerbRecord(NACK_TRANSIENT, "destroyed", _NEVER, "answered by a RECEIPT; SEND is not persistent unless it says so"),
    VerbRecord(NACK_DEAD, "destroyed", _NEVER, "answered by a RECEIPT"),
    VerbRecord(
        LOST,
        "back, marked",
        "our own count, in the ledger and on copies",
        "what was only prefetched, too; a broker that was killed has forgotten the mark",
    ),
    VerbRecord(
        LATE_ACK, "back, marked", "no UNSUBSCRIBE while a delivery is open", "answered by a RECEIPT, and without effect"
    ),
    VerbRecord(
        FOREIGN_ACK,
        "back, marked",
        "left in its queue after one round, and logged",
        "the connection is closed without a word, again and again",
    ),
    VerbRecord(
        DELAY,
        "after its delay",
        "copies for delays from 1.5 s; what is shorter, and the last bit, is held here",
        "up to 0.6 s late",
        basis=Trust.PROBED,
    ),
    VerbRecord(
        DELAY_OFF,
        "at once",
        "held here for 10 s at most, longer policies refused at start",
        "and nobody says so",
        basis=Trust.PROBED,
    ),
    VerbRecord(COMMIT, "both or neither", "every copy that goes out at once; only the RECEIPT of the COMMIT counts"),
    VerbRecord(COMMIT_ERROR, "half of it", "any ERROR in it: ABORT", "the copy is sent, its original stays"),
)
_UNTRIED = VerbRecord("every frame", "not tried", "as there", "taken to be as on these", basis=Trust.UNKNOWN)


def verbs(version: str) -> tuple[VerbRecord, ...]:
    """Return the rows of one broker, or one row that says so where none of its series was tried or known."""
    return _VERBS if version.startswith(("5.18.", "6.3.")) else (_UNTRIED,)
