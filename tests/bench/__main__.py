# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Compares App and drop-in with loops by hand and with other frameworks, which alternate in one run.

    python -m tests.bench [--only brokers failing …] [--rounds 5] [--messages 10000] [--json FILE] [--markdown FILE]
    python -m tests.bench --small

Every side is a process of its own. Where not said otherwise, the prefetch is 500, messages are persistent and have
bodies of 256 B, the handler does nothing, and the journal is on. Markdown goes to stdout, or to a file; every figure
also goes to a file as JSON, which `tests.bench.diff` compares. Progress is printed to stderr. The exit code is 1 if a
broker is missing or a side failed, and 2 if the environment of the other frameworks is missing. What was measured
before a failure is written down. A goal that is missed is marked; nothing fails by it.

`--small`, for CI, measures only section brokers, in few rounds. These have as many messages as ever, since with fewer
an App would not get to its journal. The run fails, with exit code 1, where the median of a ratio is below 0.7 of what
it must be in three tries. A broker that cannot be had is left out, unless REDELIVER_CI is 1.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.bench.asked import VENV, Asked
from tests.bench.benches import BENCHES
from tests.bench.figures import Run
from tests.bench.page import page
from tests.bench.rounds import SideFailed
from tests.bench.sections import SECTIONS
from tests.bench.small import fast_enough
from tests.brokers import BrokerFailed, BrokerMissing


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=list(SECTIONS), help="sections")
    parser.add_argument("--brokers", nargs="+", choices=BENCHES, default=list(BENCHES), help="of section brokers")
    parser.add_argument("--rounds", type=int, default=5, help="at least 5 for a median worth the name")
    parser.add_argument("--messages", type=int, default=10_000)
    parser.add_argument("--growth", type=int, default=1_000_000, help="messages while memory is watched")
    parser.add_argument("--json", type=Path, help="a file for every figure of every round")
    parser.add_argument("--markdown", type=Path, help="a file instead of stdout")
    parser.add_argument("--frameworks", type=Path, default=VENV, help="the Python that has the other frameworks")
    parser.add_argument("--small", action="store_true", help="section brokers, few rounds: is it fast enough?")
    return parser.parse_args()


def measure(asked: Asked, told: argparse.Namespace) -> Run:
    """Measure every section, and write each down as soon as it is over.

    Raises SideFailed, BrokerMissing and BrokerFailed.
    """
    run = Run()
    for section in told.only:
        run.add(list(SECTIONS[section](asked)))
        run.about = asked.about()
        for file, text in ((told.json, run.as_json()), (told.markdown, page(run))):
            if file:
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text, encoding="utf-8")
    return run


def main() -> int:
    told = parsed()
    if "frameworks" in told.only and not told.small and not told.frameworks.exists():
        cure = "`make .bench/venv` makes it; or name other sections with --only"
        print(f"error: the other frameworks are not at {told.frameworks}: {cure}", file=sys.stderr)
        return 2
    asked = Asked(told.rounds, told.messages, told.growth, tuple(told.brokers), told.frameworks)
    try:
        if told.small:
            return 0 if fast_enough(asked) else 1
        run = measure(asked, told)
    except (SideFailed, BrokerMissing, BrokerFailed) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if not told.markdown:
        print(page(run))
    return 0


if __name__ == "__main__":
    sys.exit(main())
