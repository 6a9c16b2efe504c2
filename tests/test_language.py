# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Phrases that the project no longer uses do not come back, in code, messages, documentation or examples."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parent.parent
TOPS = ("redeliver_mw", "adapters", "examples")

SICK = r"(?<![a-z])sick"  # also as a part of an identifier

# What is not written any more, and what is written instead.
NO_LONGER = {
    r"broker's again": "the broker has the message again",
    r"\bbur(?:y|ies)\b": "dead-letter",
    r"\bstor(?:y|ies)\b": "tracked delivery, or history",
    SICK: "retrying, or failing",
    r"\b(?:keeper|seat|turnstile)s?\b": "listener or store, scope or slot, isolation",
    r"\brests (?:of|above|from)\b": "delays",
    r"; rest \d": "delay",
    r"\b(?:boss|crew|usher|clerk)\b": "listener, pool, sequencer, worker",
    r"\bsaid once\b": "logged once",
    r"\bforetold\b": "predicted",
    r"\bwhoever asks\b": "the caller",
    r"\bwhat bites\b": "name the problem",
    r"\bthe handler's word\b": "the handler's settlement",
    r"\brule \d": "the name of the rule, as in docs/rules.md",
}


def files() -> list[Path]:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    return [*pages, *(path for top in TOPS for path in (ROOT / top).rglob("*.py"))]


def files_of_tests() -> list[Path]:
    here = Path(__file__).parent
    return [path for path in here.rglob("*") if path.suffix in (".py", ".md") and path != Path(__file__)]


def uses(paths: list[Path], phrases: Iterable[str]) -> list[str]:
    wrong = re.compile("|".join(phrases), re.IGNORECASE)
    return [
        f"{path.relative_to(ROOT)}:{number}: {match[0]}"
        for path in paths
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if (match := wrong.search(line))
    ]


def test_phrases_that_are_no_longer_used_stand_nowhere() -> None:
    assert uses(files(), NO_LONGER) == []


def test_no_test_calls_a_failing_message_sick() -> None:
    assert uses(files_of_tests(), [SICK]) == []


def test_each_phrase_is_found_where_it_stands() -> None:
    examples = [
        "the Broker's again",
        "it buries",
        "a story",
        "the crew",
        "said once",
        "foretold",
        "Whoever asks",
        "IS_SICK",
    ]
    assert all(any(re.search(phrase, text, re.IGNORECASE) for phrase in NO_LONGER) for text in examples)
