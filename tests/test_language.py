# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Phrases that the project no longer uses do not come back, in code, messages, documentation or examples."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TOPS = ("redeliver_mw", "adapters", "examples", "tests")
TEXTS = (".py", ".md")

# What is not written any more, and what is written instead. A space stands for the end of a line, too.
NO_LONGER = {
    r"broker's again": "the broker has the message again",
    r"(?<![a-z])bur(?:y|ies|ied|ying)(?![a-z])": "dead-letter",  # also as a part of an identifier, like the next two
    r"(?<![a-z])stor(?:y|ies)(?![a-z])": "tracked delivery, or history",
    r"(?<![a-z])sick": "retrying, or failing",
    r"\b(?:keeper|seat|turnstile)s?\b": "listener or store, scope or slot, isolation",
    r"\ba rest (?:of|above|below|from|longer|shorter)\b": "delay",
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
    below = [path for top in ("docs", *TOPS) for path in (ROOT / top).rglob("*") if path.suffix in TEXTS]
    return [path for path in [*ROOT.glob("*.md"), *below] if path != Path(__file__)]


def uses(text: str) -> list[tuple[int, str, str]]:
    """Return the line, the words and what to write instead, of each phrase of the list in a text."""
    found = [
        (text.count("\n", 0, match.start()) + 1, " ".join(match[0].split()), instead)
        for phrase, instead in NO_LONGER.items()
        for match in re.finditer(phrase.replace(" ", r"\s+(?:# )?"), text, re.IGNORECASE)
    ]
    return sorted(found)


def test_phrases_that_are_no_longer_used_stand_nowhere() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {words!r}; write: {instead}"
        for path in files()
        for line, words, instead in uses(path.read_text("utf-8"))
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "text",
    [
        "the Broker's again",
        "the broker's\n    # again",
        "it buries",
        "dlx_buried",
        "a story",
        "the crew",
        "a rest of two seconds",
        "said once",
        "foretold",
        "Whoever\nasks",
        "IS_SICK",
        "the handler's word",
    ],
)
def test_a_phrase_is_found_where_it_stands(text: str) -> None:
    assert [line for line, _, _ in uses(f"# one line\n{text}\n")] == [2]


@pytest.mark.parametrize("text", ["history", "store", "storing", "burst", "the rest of the batch", "a rest", "classic"])
def test_other_words_are_not_found(text: str) -> None:
    assert uses(text) == []
