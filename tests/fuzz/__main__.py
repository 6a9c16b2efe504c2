# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Runs each reader under atheris, one after another, and prints a table.

Usage: `python -m tests.fuzz [--seconds 60] [LANGUAGE …]`.

The command needs atheris, which `make fuzz` brings along. What is found stays in the folder, beside the corpus, which
grows from run to run. The exit status is 1 if anything was found: a reader that raises something else than
PolicyError, takes more than a second for 64 KiB, or more than 2 GiB of memory.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from tests.fuzz.corpus import LANGUAGES, ROOT, write

TIMEOUT = 30  # seconds for one input, after which libFuzzer gives up
MEMORY = 2048  # MiB
_FOUND = ("crash-*", "timeout-*", "oom-*", "slow-*")


class Run(NamedTuple):
    """Holds the results of one reader's run."""

    language: str
    inputs: int
    coverage: str
    slowest: float  # seconds
    found: list[Path]
    last: str  # the exception, if there was one


def run(language: str, seconds: int, folder: Path) -> Run:
    """Run one reader in a process of its own, and return its results."""
    own = folder / language
    corpus, dictionary = write(language, own)
    for old in (each for pattern in (*_FOUND, "slowest") for each in own.glob(pattern)):
        old.unlink()
    options = [f"-max_total_time={seconds}", f"-timeout={TIMEOUT}", f"-rss_limit_mb={MEMORY}", f"-dict={dictionary}"]
    options += [f"-artifact_prefix={own}/", "-print_final_stats=1", str(corpus)]
    command = [sys.executable, "-m", "tests.fuzz.reader", language, str(own), *options]
    done = subprocess.run(
        command, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, errors="replace"
    )
    (own / "log").write_text(done.stdout, encoding="utf-8", errors="replace")
    found = sorted(each for pattern in _FOUND for each in own.glob(pattern))
    if done.returncode and not found:
        raise SystemExit(f"the harness of {language} did not run:\n{done.stdout[-2000:]}")
    counts = re.findall(r"stat::number_of_executed_units:\s+(\d+)", done.stdout) or re.findall(r"#(\d+)\t", done.stdout)
    coverage = re.findall(r"cov: (\d+)", done.stdout)
    raised = re.findall(r"^(\w[\w.]*(?:Error|Exception|Interrupt)?: .*)$", done.stdout, re.MULTILINE)
    slowest = own / "slowest"
    return Run(
        language,
        int(counts[-1]) if counts else 0,
        coverage[-1] if coverage else "-",
        float(slowest.read_text()) if slowest.exists() else 0.0,
        found,
        next((line for line in raised if "Error" in line), "") if found else "",
    )


def table(runs: list[Run], seconds: int) -> str:
    """Return the runs as a table in Markdown."""
    lines = [
        "| reader | inputs | per second | branches | slowest | found |",
        "|---|---:|---:|---:|---:|---|",
    ]
    for each in runs:
        names = ", ".join(path.name[:20] for path in each.found) or "nothing"
        told = f": {each.last[:80]}" if each.last else ""
        lines.append(
            f"| {each.language} | {each.inputs} | {each.inputs / seconds:.0f} | {each.coverage} "
            f"| {each.slowest * 1000:.0f} ms | {names}{told} |"
        )
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("languages", nargs="*", metavar="LANGUAGE", help=f"of {', '.join(LANGUAGES)}; else all")
    parser.add_argument("--seconds", type=int, default=60, help="for each reader")
    parser.add_argument("--folder", type=Path, default=ROOT / ".fuzz", help="for corpora and what is found")
    asked = parser.parse_args()
    if strange := set(asked.languages) - set(LANGUAGES):
        parser.error(f"no reader for {', '.join(sorted(strange))}")
    runs = []
    for language in asked.languages or LANGUAGES:
        print(f"fuzzing the reader of {language} for {asked.seconds} s", flush=True)
        runs.append(run(language, asked.seconds, asked.folder))
    print(table(runs, asked.seconds))
    return 1 if any(each.found for each in runs) else 0


if __name__ == "__main__":
    sys.exit(main())
