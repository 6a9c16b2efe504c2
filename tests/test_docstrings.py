# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""A docstring begins with a sentence: that of a function with "Return …", that of a class with "Buffers …"."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TOPS = ("redeliver_mw", "adapters", "examples", "tests")

# What begins with one of these is the name of a thing, or a part of a sentence. A verb begins with none of them.
_WORDS = """
    a all an another any as at because before behind between both by each either every everything false few for from
    he her his how i if in inside into it its like many more most much my neither no nobody none nor not nothing
    of on one only or other our same several she some such that the their them there these they this those three to
    true two under until upon we what whatever when where whether which while who whoever whose why with within without
    you your
"""
NO_VERBS = frozenset(_WORDS.split())


def fragments(text: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the first line of each docstring of a function or a class that begins without a verb.

    The docstring of a test may be any sentence: it says what the test is about.
    """
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        written = (ast.get_docstring(node) or "").strip()
        if written and not node.name.startswith("test_") and written.split()[0].strip(",.:;").lower() in NO_VERBS:
            yield node.body[0].lineno, written.splitlines()[0]


@pytest.mark.parametrize("top", TOPS)
def test_each_docstring_begins_with_a_sentence(top: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {first}"
        for path in sorted((ROOT / top).rglob("*.py"))
        for line, first in fragments(path.read_text("utf-8"))
    ]
    assert not found, "\n".join(found)


def test_a_fragment_is_found_and_a_sentence_is_not() -> None:
    text = '''
def port() -> int:
    """The port of the broker."""

class Inbox:
    """What a listener was given."""

class Broker:
    """Is one that runs.

    The port is free.
    """

def test_one() -> None:
    """The count survives."""

def stop() -> None:
    """Stop it."""
'''
    assert list(fragments(text)) == [(3, "The port of the broker."), (6, "What a listener was given.")]
