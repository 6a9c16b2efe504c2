# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Checks that the reader of the native language answers any text with policies or with a PolicyError."""

from __future__ import annotations

import math
from contextlib import suppress

from hypothesis import given, settings
from hypothesis import strategies as st

from redeliver_mw.errors import PolicyError
from redeliver_mw.policy.formats import toml
from redeliver_mw.policy.formats.native import reader
from redeliver_mw.policy.formats.native import values as native_values
from redeliver_mw.policy.formats.native.writer import write

KEYS = [
    *(*reader.TOP, *reader.KEYS, *native_values.SOURCES, *native_values.MODIFIERS, *native_values.RECURRENCE),
    *("multiplier", "increment", "failures", "seconds", "any", "all", "not", "type", "message", "pattern", "flags"),
    *("kind", "action", "target", "log", "time_to_live", "a.>", "topic:b.*", "1", "3", "tool", "redeliver", "app"),
    *("share", "main"),
]
WORDS = [
    *("queue:DLQ.$", "never", "none", "keep", "discard", "redirect", "log", "artemis", "merge", "chain", "arrival"),
    *("TimeoutError", "shop.Error", "(", "ignorecase", "topic", ""),
]
numbers = st.integers() | st.integers(-2, 12) | st.floats(allow_nan=False, allow_infinity=False) | st.booleans()
values = st.recursive(
    numbers | st.sampled_from(WORDS) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=3), inner, max_size=4)
    ),
    max_leaves=8,
)
ARM = st.dictionaries(st.sampled_from(["share", *sorted(reader.FIELDS)]), values, max_size=4)
ARMS = st.dictionaries(
    st.sampled_from(["a", "b", "main"]), st.builds(lambda arm, share: arm | {"share": share}, ARM, st.floats(0, 0.6))
)
POLICY = st.builds(
    lambda fields, arms: fields | ({"arms": arms} if arms else {}),
    st.dictionaries(st.sampled_from(sorted(reader.KEYS)), values, max_size=4),
    ARMS,
)
DOCUMENT = st.fixed_dictionaries(
    {}, optional={"default": POLICY, "destinations": st.dictionaries(st.sampled_from(KEYS), POLICY, max_size=3)}
)


def answered(text: str) -> None:
    with suppress(PolicyError):
        found = reader.read(text, False)
        for name in ("a", "a.b", "b.c"):
            for failures in (1, 2, 100):
                span = found.resolve(name).backoff.span(failures)
                assert 0 <= span.low <= span.high < math.inf
        written = write(found)
        assert written.lost == ()
        assert reader.read(written.text, False).resolve("a.b") == found.resolve("a.b")


@given(st.text() | st.text("[]{}=.\"'\n# a1,\\"))
@settings(max_examples=150)
def test_any_text_is_answered(text: str) -> None:
    answered(text)


@given(st.dictionaries(st.sampled_from(KEYS), values, max_size=4) | DOCUMENT)
@settings(max_examples=150)
def test_any_document_with_words_of_the_language_is_answered(document: dict[str, object]) -> None:
    answered("".join(f"{line}\n" for line in toml.table((), document)))
