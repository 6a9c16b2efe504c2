# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Collects what a fuzzer starts from: every text of the tests and of the manual's pages, and the words in them."""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

from redeliver_mw.policy import load_policies
from redeliver_mw.policy.formats import LANGUAGES, WRITERS
from redeliver_mw.policy.loading import detect
from tests.policy.spelling import SPELLINGS, Rule

ROOT = Path(__file__).parents[2]
LONGEST = 16_000  # characters of a seed
_FENCE = re.compile(r"^```\w*\n(.*?)^```", re.DOTALL | re.MULTILINE)
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{2,40}")
_RULES = (Rule("orders", 1000, 3), Rule("orders.eu", 2000, 1))


def seeds(language: str) -> list[str]:
    """Return texts for one reader, each once: those meant for it, right and wrong, and some of the others'."""
    spelled = [spell(rule) for spell in SPELLINGS.values() for rule in _RULES]
    own = [text for text in spelled if detect(text) == language]
    own += [WRITERS[language](load_policies(text)).text for text in spelled]
    for path in sorted((ROOT / "tests" / "policy").glob(f"test_{language}*.py")):
        own += _strings(path)
    for name in ("test_conversion.py", "test_xml_places.py"):
        own += _strings(ROOT / "tests" / "policy" / name)
    page = ROOT / "docs" / ("policies.md" if language == "native" else f"from-{language}.md")
    own += _FENCE.findall(page.read_text(encoding="utf-8"))
    return [text for text in dict.fromkeys(own) if text and len(text) <= LONGEST]


def words(language: str) -> list[str]:
    """Return the words of the seeds, as a dictionary for libFuzzer."""
    return sorted({word for text in seeds(language) for word in _WORD.findall(text)})


def write(language: str, folder: Path) -> tuple[Path, Path]:
    """Write the corpus and the dictionary into a folder, and return their paths.

    What an earlier run found stays in the corpus.
    """
    corpus, dictionary = folder / "corpus", folder / "words"
    corpus.mkdir(parents=True, exist_ok=True)
    for text in seeds(language):
        data = text.encode("utf-8", "surrogateescape")
        (corpus / hashlib.sha1(data).hexdigest()).write_bytes(data)
    dictionary.write_text("".join(f'"{word}"\n' for word in words(language)), encoding="ascii")
    return corpus, dictionary


def _strings(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


__all__ = ["LANGUAGES", "seeds", "words", "write"]
