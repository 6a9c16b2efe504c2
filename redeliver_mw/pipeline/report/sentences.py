# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Writes the sentences of the page, for a person on call. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from .facts import Facts
from .failures import FailureGroup, Others, Waste
from .healing import RecoveryCurve, RecoveryVerdict
from .letters import Flow, Poison
from .markup import Markup, foreign, join, stranger
from .storms import Storm, Storms
from .units import at_most, count, duration, moment, no_later, one_in, share

VERDICTS: Final[dict[RecoveryVerdict, str]] = {
    "heals": "recovers",
    "mixed": "some recover",
    "seldom": "seldom recovers",
    "never": "never recovers",
    "untried": "never tried again",
    "unsure": "too few to tell",
}
# The outcomes of messages dead-lettered at least once: for one of them, and for several.
ENDS: Final = {
    "healed": ("recovered when sent back", "recovered when sent back"),
    "open": ("on its way again", "are on their way again"),
    "poison": ("died again or crashed", "died again when sent back, or crashed their consumer"),
    "dead": ("dead", "are dead"),
}
NO_ERROR: Final = "no error was recorded"


def many(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun: `1 message`, `2,000 messages`."""
    return f"{count(number)} {noun if number == 1 else plural or noun + 's'}"


def were(number: int) -> str:
    return "was" if number == 1 else "were"


def period(facts: Facts) -> str:
    """Return the first and the last time, in UTC."""
    if facts.storms is None:
        return "no attempts"
    return f"{moment(facts.storms.first_s)} to {moment(facts.storms.end_s)} UTC"


def headline(facts: Facts) -> str:
    """Return the whole page in one sentence or two."""
    totals = facts.totals
    if not totals.messages:
        return "This lake holds no attempts yet."
    if not totals.failed:
        return f"Nothing failed. Every one of {many(totals.messages, 'message')} was handled at its first attempt."
    failed = totals.failed / totals.messages
    often = one_in(failed) or f"{share(failed)} of"
    first = f"{often} messages failed at least once".capitalize()
    if totals.failed == 1:
        first = "One message failed"
    return f"{first}. {_ends(facts)}"


def empty_cure() -> str:
    return "Fill it with `redeliver pipeline compact JOURNAL LAKE`, then `redeliver pipeline insights LAKE`."


def failure_name(failure: FailureGroup) -> str:
    """Return the failure's name, from another program's texts."""
    return failure.error.strip() or (failure.fingerprint and f"failure {failure.fingerprint}") or NO_ERROR


def failure_text(failure: FailureGroup) -> str:
    """Return the text on one failure: how many messages, their outcomes, and by when."""
    healing = failure.healing
    messages = many(healing.messages, "message")
    if not healing.messages:
        return "No message failed for the first time in this way within the period."
    match healing.verdict:
        case "untried":
            return f"{messages} failed like this, and none is known to have been tried again."
        case "never":
            return (
                f"None of {messages} recovered, though tried for up to {no_later(healing.watched_s)}. "
                f"With 95 % confidence fewer than {at_most(healing.hi)} ever do in that time."
            )
    if not healing.healed:
        return f"None of {messages} recovered. With so few, up to {at_most(healing.hi)} may."
    some = (
        f"{share(healing.healed / healing.messages)} of {messages} recovered ({_bounds(healing)}). {_by_when(healing)}"
    )
    return some + ("" if healing.verdict != "unsure" else " That is too few to rely on.")


def others_text(others: Others) -> str:
    return (
        f"{many(others.failures, 'other failure')} with {many(others.messages, 'message')}, of which "
        f"{count(others.healed)} recovered, and {many(others.waste.attempts, 'attempt')} at messages that died "
        f"({duration(others.waste.handler_s)} of handler time) {were(others.failures)} left out here."
    )


def storms_text(storms: Storms) -> Markup:
    found = len(storms.storms) + storms.others
    attempts = storms.first_attempts + storms.retries
    part = f"{share(storms.retries / attempts)} of {many(attempts, 'attempt')} {were(storms.retries)} repeated ones."
    if not found:
        return join([f"No storm. {part}"])
    return join([f"{many(found, 'storm')}. {part} ", *_worst(storms.storms[0])])


def flow_text(flow: Flow) -> str:
    if not flow.came and not flow.left:
        return "No dead letters."
    if not flow.left:
        return f"{many(flow.came, 'dead letter')} came, and none was sent back."
    return f"{many(flow.came, 'dead letter')} came, {count(flow.left)} {were(flow.left)} sent back."


def waste_text(waste: Waste) -> str:
    spent = (
        f"{many(waste.attempts, 'attempt')} and {duration(waste.handler_s)} of handler time went to messages that died"
    )
    if not waste.hopeless:
        return f"{spent} all the same."
    hopeless = f"{count(waste.hopeless)} of these attempts were hopeless: repeated where nothing recovers."
    return f"{spent} all the same. {hopeless}"


def end(verdict: str, several: bool = False) -> str:
    return ENDS[verdict][several] if verdict in ENDS else foreign(verdict, 40)


def poison_text(poison: Poison) -> str:
    parts = [f"{count(n)} {end(verdict, several=True)}" for verdict, n in poison.verdicts.items()]
    return f"{many(sum(poison.verdicts.values()), 'message')} died at least once. Of them {_listed(parts)}."


def _ends(facts: Facts) -> str:
    totals = facts.totals
    if totals.failed == 1:
        return "It recovered." if totals.healed else "It died." if totals.dead else "It has not come to an end yet."
    parts = [
        f"{share(number / totals.failed)} {word}"
        for number, word in (
            (totals.healed, "recovered by themselves"),
            (totals.dead, "died"),
            (totals.open, "have not come to an end yet"),
        )
        if number
    ]
    return f"Of those, {_listed(parts)}."


def _listed(parts: Sequence[str]) -> str:
    return ", ".join(parts[:-1]) + (" and " if len(parts) > 1 else "") + parts[-1]


def _bounds(healing: RecoveryCurve) -> str:
    return f"95 % confidence: {share(healing.lo)} to {share(healing.hi)}"


def _by_when(healing: RecoveryCurve) -> str:
    if healing.half_s is None or healing.most_s is None:
        return ""
    if healing.half_s == healing.most_s:
        return f"Those had recovered by {no_later(healing.most_s)}."
    return f"Half of those had recovered by {no_later(healing.half_s)}, 95 % by {no_later(healing.most_s)}."


def _worst(storm: Storm) -> list[str]:
    first = many(storm.attempts - storm.retries, "first attempt")
    return [
        "The worst hit ",
        stranger(storm.destination, 60),
        f" on {moment(storm.first_s)} UTC for "
        f"{duration(storm.end_s - storm.first_s)}: {many(storm.retries, 'retry', 'retries')} beside {first}.",
    ]
