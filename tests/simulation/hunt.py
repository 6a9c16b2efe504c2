# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Runs histories until one is bad: `python -m tests.simulation.hunt N`.

For a bad one the program prints number, seed and fault, and the exit status is 1; else it is 0.
"""

import sys

from .plan import plan_of
from .run import fault_of


def main(histories: int, *, limbo: bool) -> int:
    for seed in range(histories):
        if what := fault_of(plan_of(seed, limbos=limbo)):
            print(seed + 1, seed, " ".join(what.split()), sep="\t")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), limbo="--limbo" in sys.argv))
