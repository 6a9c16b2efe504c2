# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests notes on letters and groups, and redirects that never lead in a circle."""

from __future__ import annotations

import threading

import pytest

from redeliver_mw.errors import ConfigError, StoreError
from redeliver_mw.operations import Store, show
from redeliver_mw.operations.audit import last_entries
from redeliver_mw.operations.notes import MOST_CHARS, note_group, note_letter, notes_about, notes_on
from redeliver_mw.operations.redirects import add_redirect, all_redirects, redirect_table, redirected, remove_redirect
from tests.operations.taking import put
from tests.pipeline.letters import letter


def test_notes_are_kept_on_a_letter_and_on_its_groups(store: Store) -> None:
    put(store, letter(b"1", {"redeliver_app": "shop"}, copy_id="copy-1"), letter(b"2", copy_id="copy-2"))
    written = note_letter(store, "copy-1", "  seen by me\0 ", who="ada@shop")
    assert (written.target_value, written.text, written.who) == ("copy-1", "seen by me\\x00", "ada@shop")
    note_group(store, "error", "ValueError", "ticket 12")
    note_group(store, "app", None, "nobody's")
    note_group(store, "error", "KeyError", "another group")
    assert [one.text for one in notes_about(store, show(store, "copy-1").letter)] == [written.text, "ticket 12"]
    assert [one.text for one in notes_about(store, show(store, "copy-2").letter)] == ["ticket 12"]
    assert {key: len(found) for key, found in notes_on(store, "error", ["ValueError", "x"]).items()} == {
        "ValueError": 1
    }
    assert [one.text for one in notes_on(store, "app", [""])[""]] == ["nobody's"]
    assert [one.outcome for one in last_entries(store)] == ["success"] * 4


@pytest.mark.parametrize("text", ["", " \n", "x" * (MOST_CHARS + 1)])
def test_a_note_that_says_nothing_or_too_much_is_refused(text: str, file_store: Store) -> None:
    with pytest.raises(ConfigError):
        note_group(file_store, "error", "KeyError", text)
    assert [one.outcome for one in last_entries(file_store)] == ["denied"]


def test_a_note_on_a_letter_that_is_not_there_is_refused(file_store: Store) -> None:
    with pytest.raises(StoreError, match="no such letter"):
        note_letter(file_store, "nope", "x")


def test_redirects_are_followed_to_their_end_and_can_be_replaced_and_removed(store: Store) -> None:
    add_redirect(store, "orders", "orders.eu", who="ada@shop")
    add_redirect(store, "orders.eu", "topic:orders::eu")
    table = redirect_table(store)
    assert redirected("queue:orders", table) == redirected("queue:orders.eu", table) == "topic:orders::eu"
    assert redirected("queue:other", table) == "queue:other"
    add_redirect(store, "orders", "queue:bills")
    assert [(one.old, one.new) for one in all_redirects(store)] == [
        ("queue:orders", "queue:bills"),
        ("queue:orders.eu", "topic:orders::eu"),
    ]
    remove_redirect(store, "orders")
    assert redirected("queue:orders", redirect_table(store)) == "queue:orders"
    with pytest.raises(StoreError) as caught:
        remove_redirect(store, "orders")
    assert caught.value.code == "redirect-missing"
    assert last_entries(store)[-1].who == "ada@shop"


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("a", "a", "redirect-circle"),
        ("c", "a", "redirect-circle"),
        ("c", "queue:b", "redirect-circle"),
        ("topic:t", "a", "destination-kind"),
        ("a", "topic:t", "destination-kind"),
        ("", "a", "destination-name"),
    ],
)
def test_a_redirect_in_a_circle_or_to_no_queue_is_refused(old: str, new: str, code: str, store: Store) -> None:
    add_redirect(store, "a", "b")
    add_redirect(store, "b", "c")
    with pytest.raises(ConfigError) as caught:
        add_redirect(store, old, new)
    assert caught.value.code == code
    assert len(all_redirects(store)) == 2
    assert last_entries(store)[0].outcome == "denied"


def test_two_redirects_at_once_never_make_a_circle(url: str) -> None:
    for number in range(10):
        old, new = f"a{number}", f"b{number}"
        both = threading.Barrier(2)
        refused: list[str] = []

        def add(one: str, other: str, both: threading.Barrier = both, refused: list[str] = refused) -> None:
            with Store(url) as mine:
                both.wait(30)
                try:
                    add_redirect(mine, one, other)
                except ConfigError as error:
                    refused.append(error.code)

        threads = [threading.Thread(target=add, args=names) for names in ((old, new), (new, old))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert refused == ["redirect-circle"]
