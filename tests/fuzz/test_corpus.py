# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Checks that what the fuzzers start from is worth starting from."""

from __future__ import annotations

from pathlib import Path

import pytest

from redeliver_mw.errors import ConfigError
from redeliver_mw.policy import load_policies
from tests.fuzz.corpus import LANGUAGES, LONGEST, seeds, words, write


def is_read(text: str, language: str) -> bool:
    try:
        load_policies(text, language)
    except ConfigError:
        return False
    return True


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_fuzzer_starts_from_texts_that_are_right_and_texts_that_are_wrong(language: str) -> None:
    found = [is_read(text, language) for text in seeds(language)]
    assert found.count(True) >= 10
    assert found.count(False) >= 10


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_corpus_is_files_with_a_dictionary_of_their_words(language: str, tmp_path: Path) -> None:
    corpus, dictionary = write(language, tmp_path)
    sizes = [path.stat().st_size for path in corpus.iterdir()]
    assert len(sizes) == len(seeds(language))
    assert 0 < max(sizes) <= 4 * LONGEST
    assert dictionary.read_text(encoding="ascii").splitlines() == [f'"{word}"' for word in words(language)]
