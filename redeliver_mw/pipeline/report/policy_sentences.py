# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Writes the sentences on what to change: which policy, its gains and costs, and how certain they are. Pure."""

from __future__ import annotations

from .markup import foreign
from .policy_advice import Advice, AdviceCandidate, Tried, saved
from .sentences import many
from .units import count, duration, share

_SLOWER = 1.5  # this factor on the time until 95 % have recovered counts as a cost


def title(advice: Advice) -> str:
    """Return what to do, in a few words."""
    match advice.kind:
        case "change":
            return "change the policy"
        case "stay":
            return "keep the policy"
        case "guess":
            return "try another policy on a few"
        case "unknown":
            return "not known"
    return "no advice"


def advice_texts(advice: Advice) -> list[str]:
    """Return sentences on the predicted result, the cost, and the certainty."""
    best, today = advice.best, advice.today
    if best is None:
        return [_nothing(advice)]
    tests = [_test(one) for one in advice.tried]
    if advice.kind == "unknown":
        return [*_unknown(advice, best), *_experiment(advice), *tests]
    if advice.kind == "stay":
        tried = many(advice.candidates, "policy", "policies")
        return [
            f"Of {tried} none that history can judge does better than the one in use. {_ends(best)}",
            *_experiment(advice),
            *tests,
        ]
    first = _ends(best) if today is None else _changed(today, best)
    if advice.objective:
        first += f" Its aim: {advice.objective}."
    costs = [_cost(today, best)] if today else []
    return [first, *costs, *_times(today, best), *_bounds(advice), sure(advice), *_weak(advice), *tests]


def sure(advice: Advice) -> str:
    """Return how much of the advice is known; empty if there is no advice."""
    best = advice.best
    if best is None:
        return ""
    if advice.kind == "guess":
        return (
            f"This is a guess: for {share(best.unseen)} of the messages it tries when nothing was ever tried here, so "
            f"between {share(best.heals_lo)} and {share(best.heals_hi)} would recover. Give it to a small share of the "
            "messages first, as an arm of the policy; the next report will know."
        )
    if advice.kind == "unknown":
        return "Not known."
    if advice.kind == "stay":
        return ""
    if advice.confidence == "sure":
        return "Sure, if what comes is like what was: the 99 % interval of the difference lies on one side."
    return "Fairly sure, if what comes is like what was: the 90 % interval of the difference lies on one side."


def _unknown(advice: Advice, best: AdviceCandidate) -> list[str]:
    if advice.reasons:
        return [f"Nothing is advised: {reason}." for reason in advice.reasons]
    return [
        f"Whether policy {best.letter} is better than the one in use is not known: the difference may be chance.",
        *_bounds(advice),
    ]


def _experiment(advice: Advice) -> list[str]:
    trial = advice.experiment
    if trial is None:
        return []
    days = f", in about {count(max(trial.days, 1))} days," if trial.days is not None else ""
    return [
        "Messages still recovered shortly before they were given up, and nobody looked later. An experiment would "
        f"tell: an arm for a tenth of the messages that goes on for {duration(trial.until_s)}. After some "
        f"{count(trial.messages)} messages that fail{days} the difference should show; at most "
        f"{share(trial.gain_most)} of the messages can recover besides."
    ]


def _weak(advice: Advice) -> list[str]:
    return [f"What is taken for granted: {what}." for what in advice.weak]


def _bounds(advice: Advice) -> list[str]:
    """Return the bounds of gains and costs."""
    messages = advice.messages
    parts = []
    if (one := advice.change("dead_letter_share")) is not None:
        parts.append(f"dead letters by {_signed(one.lo * messages)} to {_signed(one.hi * messages)}")
    if (one := advice.change("attempts_per_message")) is not None:
        parts.append(f"attempts by {_signed(one.lo * messages)} to {_signed(one.hi * messages)}")
    if (one := advice.change("ttr_p50_s")) is not None:
        parts.append(f"the median wait by {_seconds(one.lo)} to {_seconds(one.hi)}")
    if not parts:
        return []
    return [f"The next time as long would change {', '.join(parts)} (95 % intervals)."]


def _signed(number: float) -> str:
    return f"{'-' if round(number) < 0 else '+'}{count(abs(number))}"


def _seconds(number: float) -> str:
    return f"{'-' if number < 0 else '+'}{duration(abs(number))}"


def gain(advice: Advice) -> str:
    """Return the gain of the change and its costs, in a few words."""
    best, today = advice.best, advice.today
    if best is None or today is None:
        return ""
    letters, attempts = round(saved(advice)), round((today.attempts - best.attempts) * best.messages)
    parts = [(letters, "dead letter"), (attempts, "attempt")]
    gains = " and ".join(f"{many(number, noun)} fewer" for number, noun in parts if number > 0) or "quicker recovery"
    dear = [f"{many(-number, noun)} more" for number, noun in parts if number < 0]
    if best.most_s is not None and today.most_s is not None and best.most_s > _SLOWER * today.most_s:
        dear.append(f"slower recovery, 95 % within {duration(best.most_s)} instead of {duration(today.most_s)}")
    if best.half_s is not None and today.half_s is not None and best.half_s > _SLOWER * today.half_s:
        dear.append(f"a median wait of {duration(best.half_s)} instead of {duration(today.half_s)}")
    costs = " and ".join(dear)
    return ("perhaps " if advice.kind == "guess" else "") + gains + (f", at the cost of {costs}" if costs else "")


def _nothing(advice: Advice) -> str:
    """Return why there is no advice."""
    if advice.today is None:
        return "It is not known which policy is in use here, so none can be called better."
    if advice.today.extrapolated:
        return "What happened cannot judge the policy in use: it tries at times at which nothing was tried then."
    return f"From {many(advice.messages, 'message')} that failed here no advice can be drawn."


def _ends(one: AdviceCandidate) -> str:
    return f"{share(one.heals)} of those that fail recover, with {one.attempts:.1f} attempts each."


def _changed(today: AdviceCandidate, best: AdviceCandidate) -> str:
    if abs(today.dead - best.dead) < 1:
        return f"As many would recover as today, {share(best.heals)} of those that fail."
    letters = f"{count(best.dead)} dead letters instead of {count(today.dead)}"
    return f"{share(best.heals)} of those that fail would recover instead of {share(today.heals)}: {letters}."


def _cost(today: AdviceCandidate, best: AdviceCandidate) -> str:
    more = (best.attempts - today.attempts) * best.messages
    if abs(best.attempts - today.attempts) < 0.05:
        return f"It costs as many attempts as today, {best.attempts:.1f} for each."
    each = f"{best.attempts:.1f} attempts for each instead of {today.attempts:.1f}"
    return f"It {'costs' if more > 0 else 'saves'} {count(abs(more))} attempts: {each}."


def _times(today: AdviceCandidate | None, best: AdviceCandidate) -> list[str]:
    if best.most_s is None or best.half_s is None:
        return ["How long those that recover would take is not known."]
    half = most = ""
    if today is not None and today.most_s is not None and today.half_s is not None:
        half, most = f" (today {duration(today.half_s)})", f" (today {duration(today.most_s)})"
    return [
        f"Half of those that recover are back within {duration(best.half_s)}{half}, 95 % within "
        f"{duration(best.most_s)}{most}."
    ]


def _test(one: Tried) -> str:
    """Return how accurate the back-test was where it could be tested."""
    policy = foreign(one.policy_version, 40) or "without a version"
    messages = f"{share(one.predicted)} of {many(one.messages, 'message')} under policy {policy}"
    apart = "more than chance allows" if one.wrong else "no more than chance allows"
    return (
        f"Put to the test: other policies' histories predicted that {messages} would recover within "
        f"{duration(one.within_s)}; {share(one.observed)} did. That is {apart}."
    )
