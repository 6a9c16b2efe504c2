# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Runs rounds: `python -m tests.hostile [--broker NAME …] [--seconds 60 | --rounds N] [--seed N] [--too-large]`.

The program prints the seed of each round in which something was found, and at the end a line for each broker. With
`--seed` and neither `--seconds` nor `--rounds` that one round is made again. The exit status is 1 if anything was
found.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from random import SystemRandom

from tests.hostile import rounds
from tests.hostile.brokers import BROKERS, carrier_for
from tests.hostile.carrier import Limits

LARGEST = 16 << 20  # bytes: the most that RabbitMQ 4 takes


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.hostile", description=__doc__)
    parser.add_argument("--broker", action="append", choices=sorted(BROKERS), help="default: all, one after another")
    parser.add_argument("--seconds", type=float, help="for each broker")
    parser.add_argument("--rounds", type=int, help="for each broker")
    parser.add_argument("--seed", type=int, help="of the first round; each next one has the next number")
    parser.add_argument("--messages", type=int, default=rounds.MESSAGES, help="in each round")
    parser.add_argument("--too-large", action="store_true", help="also messages whose headers cannot be copied")
    asked = parser.parse_args()
    seed = SystemRandom().randrange(1 << 32) if asked.seed is None else asked.seed
    most = asked.rounds or (1 if asked.seed is not None and asked.seconds is None else None)
    seconds = asked.seconds if asked.seconds is not None else None if most else 60.0
    found = 0
    for name in asked.broker or sorted(BROKERS):
        found += _on(name, seed, most, seconds, asked.messages, asked.too_large)
    return 1 if found else 0


def _on(name: str, seed: int, most: int | None, seconds: float | None, messages: int, too_large: bool) -> int:
    began, made, sent, faults, lines = time.monotonic(), 0, 0, 0, 0
    refused: Counter[str] = Counter()
    print(f"{name}: first seed {seed}", flush=True)
    with carrier_for(name) as carrier:
        while (most is None or made < most) and (seconds is None or time.monotonic() - began < seconds):
            try:
                one = rounds.run(carrier, seed + made, limits_of(seed + made, too_large), messages)
            except Exception as error:  # of the broker or of this harness; whatever it is, the seed is worth a look
                one = rounds.Round(seed + made, "?", faults=[f"the round ended by {type(error).__name__}: {error}"])
            made, sent, lines = made + 1, sent + one.messages, lines + one.lines
            refused += one.refused
            if one.faults:
                faults += 1
                print(
                    f"{name}: --seed {one.seed} ({one.face}):",
                    *(one.faults[:8] if most != 1 else one.faults),
                    sep="\n    ",
                    flush=True,
                )
    took = time.monotonic() - began
    told = ", ".join(f"{number} {about}" for about, number in refused.most_common()) or "none"
    print(
        f"{name}: {made} rounds from seed {seed}, {sent} hostile messages, {lines} lines of journal, {took:.0f} s; "
        f"refused by the broker: {told}; rounds with findings: {faults}",
        flush=True,
    )
    return faults


def limits_of(seed: int, too_large: bool) -> Limits:
    """Return the limits of a round: one round in forty has bodies as large as a broker takes."""
    return Limits(LARGEST if seed % 40 == 0 else 1 << 17, too_large)


if __name__ == "__main__":
    sys.exit(main())
