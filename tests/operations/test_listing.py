# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Compares the pages, groups, counts and single letters of a store with what the letters say."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import text

from redeliver_mw.errors import ConfigError, StoreError
from redeliver_mw.message import Delivery, Destination
from redeliver_mw.operations import Store, StoredLetter, counts, groups, page, show
from redeliver_mw.operations.calendar import day_text, day_us
from redeliver_mw.operations.selection import GroupKey, Selection
from redeliver_mw.operations.sorting import SORT_KEYS, Sort, SortKey
from redeliver_mw.operations.tables import letters
from tests.operations.taking import put, rows, shelf
from tests.pipeline.letters import letter, written

BEGAN = datetime(2026, 11, 1, tzinfo=UTC)
ERRORS = ["ConnectionError", "ValueError", "KeyError"]
NUMBER = 137


def died(number: int) -> datetime:
    """Return when a letter was dead-lettered: three letters have the same time, so that a page ends among equals."""
    return BEGAN + timedelta(hours=number // 3)


def numbered(number: int) -> Delivery:
    own = {
        "redeliver_last_failed_at": died(number).isoformat(),
        "redeliver_error_type": ERRORS[number % 3],
        "redeliver_error_fingerprint": f"{number % 5:016x}",
        "redeliver_original_destination": f"orders.{number % 2}",
        "redeliver_app": "shop" if number % 4 else "",
        "tenant": f"t{number % 7}",
    }
    return letter(b"%d" % number, own, copy_id=f"copy-{number:04d}")


@pytest.fixture
def filled(store: Store) -> Store:
    """Return a store with letters in another order than that in which they were dead-lettered."""
    order = list(range(NUMBER))
    random.Random(1).shuffle(order)
    put(store, *map(numbered, order))
    return store


def all_pages(store: Store, limit: int, **wanted: Any) -> list[list[str]]:
    found, cursor = [], None
    while True:
        one = page(store, Selection(**wanted), limit=limit, cursor=cursor)
        found.append([letter.dl_id for letter in one.letters])
        cursor = one.next_cursor
        if cursor is None:
            return found


@pytest.mark.parametrize("limit", [1, 10, 50, NUMBER, 1000])
def test_the_pages_together_are_all_letters_once_the_newest_first(filled: Store, limit: int) -> None:
    pages = all_pages(filled, limit)
    assert [len(one) for one in pages[:-1]] == [limit] * (len(pages) - 1)
    together = [name for one in pages for name in one]
    assert sorted(together) == [f"copy-{number:04d}" for number in range(NUMBER)]
    times = [died(int(name[-4:])) for name in together]
    assert times == sorted(times, reverse=True)


@pytest.mark.parametrize("limit", [1, 7, 1000])
@pytest.mark.parametrize("by", SORT_KEYS)
@pytest.mark.parametrize("sign", ["", "-"])
def test_pages_in_each_order_are_all_letters_once_and_sorted(filled: Store, by: SortKey, sign: str, limit: int) -> None:
    put(filled, *(letter(b"x" * n, {"a": "b"}, message_id=f"m{n}") for n in range(5)))  # of no source
    whole: list[StoredLetter] = []
    cursor = None
    while limit > 1 or len(whole) < 20:
        one = page(filled, sort=Sort.parse(sign + by), limit=limit, cursor=cursor)
        whole += one.letters
        cursor = one.next_cursor
        if cursor is None:
            break
    assert limit == 1 or len({one.letter_id for one in whole}) == len(whole) == NUMBER + 5
    names = {"died": "died_us", "collected": "collected_us", "bytes": "body_bytes"}
    values = [((getattr(one, names.get(by, by)) or (0 if by != "source" else "")), one.letter_id) for one in whole]
    assert values == sorted(values, reverse=sign == "-")


def test_a_cursor_of_one_order_is_refused_in_another(filled: Store) -> None:
    cursor = page(filled, sort=Sort.parse("source"), limit=3).next_cursor
    for other in ("-died", "-source", "bytes"):
        with pytest.raises(ConfigError, match="sorted by 'source'") as caught:
            page(filled, sort=Sort.parse(other), cursor=cursor)
        assert caught.value.code == "store-cursor"


@pytest.mark.parametrize(
    ("text", "means"), [("died", "died"), ("-bytes", "-bytes"), ("source:asc", "source"), ("died:desc", "-died")]
)
def test_an_order_is_read(text: str, means: str) -> None:
    assert str(Sort.parse(text)) == means


@pytest.mark.parametrize("text", ["", "-", "size", "--died", "died:up", "-died:asc", "died:", "Died", "died desc"])
def test_a_text_that_is_no_order_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="cannot be sorted by"):
        Sort.parse(text)


def test_letters_that_come_while_somebody_turns_pages_move_no_letter(filled: Store) -> None:
    first = page(filled, limit=10)
    put(filled, letter(b"new", {"redeliver_last_failed_at": "2026-12-01T00:00:00Z"}, copy_id="new"))
    rest = page(filled, limit=1000, cursor=first.next_cursor)
    assert len({one.dl_id for one in [*first.letters, *rest.letters]}) == NUMBER


def test_a_page_is_of_one_state_one_queue_and_one_condition(filled: Store) -> None:
    written(shelf(filled, Destination("other")), 1, [letter(b"x", copy_id="c1")])
    assert all_pages(filled, 100, queue="other") == [["c1"]]
    with filled.writing() as connection:
        connection.execute(letters.update().where(letters.c.dl_id == "c1").values(state="archived"))
    assert all_pages(filled, 100, queue="other") == [[]]
    assert all_pages(filled, 100, state="archived") == [["c1"]]
    assert counts(filled) == {"waiting": NUMBER, "archived": 1}
    of_tenant = Selection(where='header.tenant = "t3"')
    found = {one.dl_id for one in page(filled, of_tenant, limit=1000).letters}
    assert found == {f"copy-{number:04d}" for number in range(NUMBER) if number % 7 == 3}


@pytest.mark.parametrize(
    "cursor",
    [
        "x",
        "W10",
        "ü",
        "{}",
        "W251bGwsIDFd",
        "WzFlOTk5LDFd",
        "A" * 5000,
        "WzEsMSwieCJd",
        "WyJhIiwxXQ",
        "WzEsMSwic291cmNlIl0",
        "WzEsMSwiZGllZCIsMV0",
    ],
)
def test_a_text_that_is_no_cursor_is_refused(store: Store, cursor: str) -> None:
    with pytest.raises(ConfigError) as caught:
        page(store, cursor=cursor)
    assert caught.value.code == "store-cursor"


def test_a_cursor_far_beyond_all_letters_ends_the_list(filled: Store) -> None:
    assert page(filled, cursor="Wy05MDAwMDAwMDAwMDAwMDAwMDAwLDFd").letters == []


@pytest.mark.parametrize(
    ("by", "key"),
    [
        ("fingerprint", lambda number: f"{number % 5:016x}"),
        ("source", lambda number: f"queue:orders.{number % 2}"),
        ("error", lambda number: ERRORS[number % 3]),
        ("app", lambda number: "shop" if number % 4 else None),
        ("day", lambda number: died(number).strftime("%Y-%m-%d")),
    ],
)
def test_groups_count_what_has_a_key_in_common_the_largest_first(
    filled: Store, by: GroupKey, key: Callable[[int], str | None]
) -> None:
    found = groups(filled, by)
    assert {one.key: one.letters for one in found} == Counter(map(key, range(NUMBER)))
    assert [one.letters for one in found] == sorted((one.letters for one in found), reverse=True)
    for one in found:
        times = [died(number).timestamp() * 1e6 for number in range(NUMBER) if key(number) == one.key]
        assert (one.first_us, one.last_us) == (min(times), max(times))
    assert len(groups(filled, by, limit=1)) == 1


def test_days_are_those_of_the_calendar_and_go_on_beyond_it() -> None:
    chance = random.Random(1)
    for _ in range(2000):
        days = chance.randrange(-719_162, 2_932_897)
        day = datetime(1970, 1, 1) + timedelta(days)
        assert day_text(days * 86_400_000_000) == f"{day:%Y-%m-%d}".zfill(10)
        assert day_us(day_text(days * 86_400_000_000)) == days * 86_400_000_000
    assert day_text(2_932_897 * 86_400_000_000) == "10000-01-01"
    assert day_us("10000-01-01") == 2_932_897 * 86_400_000_000


@pytest.mark.parametrize("text", ["", "today", "2026-13-01", "2026-02-30", "2026-1-1", "20260101", "٢٠٢٦-01-01"])
def test_a_text_that_is_no_day_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is no day"):
        day_us(text)


def test_a_selection_means_what_all_of_its_conditions_hold_for(filled: Store) -> None:
    def chosen(**wanted: Any) -> set[int]:
        return {int(one.dl_id[-4:]) for one in page(filled, Selection(**wanted), limit=1000).letters}

    everything = set(range(NUMBER))
    assert chosen(state=None) == everything
    assert chosen(ids=["copy-0003", "copy-0005", "copy-9999"]) == {3, 5}
    assert chosen(group=("app", None)) == {n for n in everything if n % 4 == 0}
    assert chosen(group=("app", "shop")) == {n for n in everything if n % 4}
    assert chosen(group=("error", ERRORS[1])) == {n for n in everything if n % 3 == 1}
    day = died(7).strftime("%Y-%m-%d")
    assert chosen(group=("day", day)) == {n for n in everything if died(n).strftime("%Y-%m-%d") == day}
    late = int(died(20).timestamp() * 1e6)
    assert chosen(since_us=late, where='header.tenant = "t3"') == {
        n for n in everything if died(n) >= died(20) and n % 7 == 3
    }


def test_a_letter_is_found_by_the_beginning_of_its_id(filled: Store) -> None:
    found = show(filled, "copy-0042")
    assert (found.letter.dl_id, found.packed.body, found.headers["tenant"]) == ("copy-0042", b"42", "t0")
    assert show(filled, "copy-0136"[:9]).packed.body == b"136"
    with pytest.raises(ConfigError, match="'copy-00' begins the ids of 100 letters"):
        show(filled, "copy-00")
    for missing in ("copy-9", "COPY-0042", "%", "copy_0042", "~", "é"):
        with pytest.raises(StoreError) as caught:
            show(filled, missing)
        assert caught.value.code == "letter-not-found"


def test_a_list_and_a_filter_over_headers_read_an_index(file_store: Store) -> None:
    plan = rows(
        file_store,
        text(
            "EXPLAIN QUERY PLAN SELECT * FROM redeliver_store_letter WHERE state = 'waiting'"
            " AND (died_us, letter_id) < (5, 5) ORDER BY died_us DESC, letter_id DESC LIMIT 100"
        ),
    )
    [step] = plan  # nothing is sorted
    assert "USING INDEX redeliver_store_letter_state (state=? AND " in step[3]
    plan = rows(
        file_store,
        text("EXPLAIN QUERY PLAN SELECT letter_id FROM redeliver_store_header WHERE name = 'a' AND text = 'b'"),
    )
    assert "USING COVERING INDEX redeliver_store_header_text (name=? AND text=?)" in plan[0][3]
