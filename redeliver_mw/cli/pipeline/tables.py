# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Shows a back-test's answer as tables and sentences for people, and writes it as a policy file."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import ConfigError
from ...policy import PolicyMap, RedeliveryPolicy
from ...policy.formats import LANGUAGES, WRITERS
from ...policy.formats.diagnostics import nearest
from ...redaction import redact
from ..output import cut, plain, print_table
from ..timeline import seconds

if TYPE_CHECKING:
    from ...pipeline.backtest import BacktestRow
    from ...pipeline.backtest.assessment import Assessment
    from ...pipeline.backtest.queries import BacktestAnswer, PolicyChoice

_NAMES = (
    "candidate",
    "messages",
    "recover",
    "from",
    "to",
    "dead",
    "attempts",
    "wasted",
    "mean",
    "half by",
    "95 % by",
    "unseen",
    "front",
)
_PLACES = ("destination", "failure")
_NAMED = ("patchbay", "weblogic")  # languages that have no policy for destinations that are not named


def print_rows(rows: Sequence[BacktestRow]) -> None:
    """Print a table; destination and failure are columns if a row has them."""
    places = [any(_place(row)[number] is not None for row in rows) for number in range(2)]
    names = (_NAMES[0], *(name for name, there in zip(_PLACES, places, strict=True) if there), *_NAMES[1:])
    shift = sum(places)
    print_table(names, (_cells(row, places) for row in rows), right=range(1 + shift, len(names) - 1))


def sentences(choice: PolicyChoice) -> list[str]:
    """Return what to do at a destination, or at all of them, how certain the advice is, and its costs."""
    where = "all destinations" if choice.destination is None else plain(choice.destination)
    found, assessed = choice.recommendation, choice.assessment
    now, best = found.present, found.best
    if best is None:
        return [
            f"{where}: history cannot judge {_name(now)}, to which the others are held: much of what it does comes at "
            "times at which nothing was ever tried"
        ]
    trial = _experiment(where, assessed)
    own = [f"{where}: {listed([str(one)])}" for one in assessed.results]
    if assessed.withheld:
        whys = [f"{where}: not known, so nothing is advised: {listed([why])}" for why in assessed.reasons]
        return [*own, *whys, *trial]
    costs = f"{where}: {'; '.join(_changes(assessed))} (95 % intervals, if what comes is like what was)"
    weak = [f"{where}: note that {why}" for why in assessed.weak]
    weak += [f"{where}: note: {listed([one.text])}; that is more than chance" for one in assessed.figures if one.broken]
    if not found.is_change:
        return [
            *own,
            f"{where}: stay with {_name(now)}; none that history can judge is better by more than 1 %: "
            f"{found.objective.text}",
            *trial,
        ]
    if not choice.is_advice:
        doubt = f"{where}: stay with {_name(now)}; whether {_name(best)} is better is not known"
        return [*own, doubt, costs, *trial]
    sentence = (
        f"{where}: {assessed.confidence}: take {_name(best)} instead of {_name(now)}: {best.dead_letter_share:.2%} of "
        f"the messages that fail die, not {now.dead_letter_share:.2%}; {best.attempts_per_message:.3g} attempts each, "
        f"not {now.attempts_per_message:.3g}; recovered after {_time(best.ttr_mean_s)}, not {_time(now.ttr_mean_s)}"
    )
    return [*own, sentence, costs, *weak]


def _experiment(where: str, assessed: Assessment) -> list[str]:
    trial = assessed.experiment
    if trial is None:
        return []
    days = f", in {assessed.days:.3g} days," if assessed.days is not None else ""
    return [
        f"{where}: an experiment would tell more: messages still recovered shortly before they were given up. Try an "
        f"arm that goes on until {_time(trial.until_s)}; after some {trial.messages} messages that fail{days} the "
        f"difference should show; at most {trial.gain_most:.1%} more can recover:",
        *(f"    {line}" for line in trial.toml.splitlines()),
    ]


def _changes(assessed: Assessment) -> list[str]:
    names = {
        "dead_letter_share": ("dead letters", 100.0, " points"),
        "attempts_per_message": ("attempts for each message", 1.0, ""),
        "ttr_p50_s": ("half recovered by", 1.0, " s"),
        "ttr_p95_s": ("95 % recovered by", 1.0, " s"),
    }
    named = ((one, *names[one.column]) for one in assessed.changes if one.column in names)
    return [f"{name} {one.lo * scale:+.3g} to {one.hi * scale:+.3g}{unit}" for one, name, scale, unit in named]


def listed(names: Iterable[str]) -> str:
    """Return names from other programs, joined for a sentence."""
    return plain(redact(", ".join(names)))


def check_file(write: str | None, to: str) -> None:
    """Raise ConfigError if --write or --to is invalid."""
    if to not in WRITERS:
        near = nearest(to, LANGUAGES)
        cure = f"Did you mean {near!r}?" if near else f"Use one of: {', '.join(WRITERS)}"
        raise ConfigError(
            f"there is no policy language {to!r:.80}", where="--to", cure=cure, code="policy-language-unknown"
        )
    if write is not None and (Path(write).is_dir() or not Path(write).absolute().parent.is_dir()):
        raise ConfigError(
            "no file can be there", where=write, cure="Name a file in a folder that is there", code="path-not-usable"
        )


def written_to(answer: BacktestAnswer, file: Path, to: str, lossy: bool) -> bool:
    """Write the best policy to a file, and print that.

    Returns False if the language cannot express all of the policy; then nothing is written.
    """
    policies = answer.policies()
    if policies is None:
        withheld = any(choice.is_withheld for choice in answer.choices)
        why = "no advice is given" if withheld else "nothing is known to be better than what is in use"
        print(f"{file} is not written: {why}", file=sys.stderr)
        return not withheld
    [first, *others] = answer.choices
    if to in _NAMED and first.destination is not None and not others:
        policies = PolicyMap({f"queue:{first.destination}": policies.resolve(first.destination)})
    elif isinstance(policies, RedeliveryPolicy):
        policies = PolicyMap(None, policies)
    written = WRITERS[to](policies)
    for what in written.lost:
        print(f"lost in {to}: {redact(what)}", file=sys.stderr)
    if written.lost and not lossy:
        print("Nothing is written. Use --lossy to write the nearest", file=sys.stderr)
        return False
    try:
        file.write_text(written.text.rstrip("\n") + "\n", encoding="utf-8")
    except OSError as error:
        what = f"cannot be written: {error.strerror or type(error).__name__}"
        raise ConfigError(
            what, where=str(file), cure="Name a file in a folder of yours", code="path-not-usable"
        ) from None
    print(f"{file}: {to}", file=sys.stderr)
    return True


def _cells(row: BacktestRow, places: Sequence[bool]) -> tuple[str, ...]:
    shown = [plain(part or "") for part, there in zip(_place(row), places, strict=True) if there]
    return (
        _name(row),
        *shown,
        str(row.messages),
        _share(row.p_recover),
        _share(row.p_recover_lo),
        _share(row.p_recover_hi),
        _share(row.dead_letter_share),
        f"{row.attempts_per_message:.3f}",
        f"{row.wasted_attempts:.0f}",
        *map(_time, (row.ttr_mean_s, row.ttr_p50_s, row.ttr_p95_s)),
        _share(row.extrapolated_share) if row.extrapolated else "",
        "yes" if row.pareto else "",
    )


def _place(row: BacktestRow) -> tuple[str | None, str | None]:
    return row.destination, row.error_fingerprint


def _name(row: BacktestRow) -> str:
    return cut(plain(redact(row.candidate)))


def _share(value: float) -> str:
    return f"{value:.2%}"


def _time(value: float | None) -> str:
    """Return a time with three digits; empty for a time that is not known."""
    return "?" if value is None else seconds(float(f"{value:.3g}"))
