# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests what became of the messages of a replay: as an App writes it, as collected letters show it, and with time."""

from __future__ import annotations

import pytest
from sqlalchemy import update

from redeliver_mw.errors import StoreError
from redeliver_mw.operations import Selection, Store
from redeliver_mw.operations.became import (
    Became,
    BecameCounts,
    KnownEnd,
    became_of,
    ends_of,
    mark,
    mark_failed_again,
    mark_recovered,
    replayed_letters,
)
from redeliver_mw.operations.operation import LetterResult, now_us, plan_operation, record_results, take_operation
from redeliver_mw.operations.tables import operation_letters
from tests.operations.taking import put
from tests.pipeline.letters import letter

NUMBER = 6


@pytest.fixture
def replay(store: Store) -> str:
    """Return the id of a replay that has sent all but the last of its letters."""
    put(store, *(letter(b"%d" % n, {"redeliver_lineage": f"L{n}"}, copy_id=f"copy-{n}") for n in range(NUMBER)))
    planned = plan_operation(store, "replay", Selection(), options={"settles_within_s": 60})
    operation = take_operation(store, planned.operation_id)
    columns = operation_letters.c
    with store.writing() as connection:
        record_results(connection, operation, [LetterResult(n, "done") for n in range(1, NUMBER)])
        for n in range(1, NUMBER):
            connection.execute(update(operation_letters).where(columns.position == n).values(lineage=f"L{n - 1}"))
    return operation.operation_id


def test_a_message_is_in_flight_until_its_end_is_known(store: Store, replay: str) -> None:
    assert became_of(store, replay) == BecameCounts(in_flight=5)
    with store.writing() as connection:
        mark_recovered(connection, replay, "L0", 7)
        mark_recovered(connection, replay, "another", 7)
        mark_recovered(connection, "another", "L1", 7)
    assert became_of(store, replay) == BecameCounts(recovered=1, in_flight=4)
    assert became_of(store, replay).sent == 5
    first, second, *_, last = replayed_letters(store, replay)
    assert (first.dl_id, first.became, first.became_us) == ("copy-0", "recovered", 7)
    assert (second.became, second.became_us, second.outcome) == ("in flight", None, "done")
    assert (last.outcome, last.became) == (None, "")
    assert [one.position for one in replayed_letters(store, replay, only="recovered")] == [1]
    with store.reading() as connection:
        assert ends_of(connection, replay, [1, 2]) == BecameCounts(recovered=1, in_flight=1)


def test_in_flight_turns_into_unknown_after_the_time_that_the_operation_says(store: Store, replay: str) -> None:
    with store.writing() as connection:
        mark_recovered(connection, replay, "L0", 7)
    assert became_of(store, replay, at_us=now_us() + 59_000_000) == BecameCounts(recovered=1, in_flight=4)
    assert became_of(store, replay, at_us=now_us() + 61_000_000) == BecameCounts(recovered=1, unknown=4)


def test_a_letter_that_is_collected_with_the_replays_id_has_failed_again(store: Store, replay: str) -> None:
    back = {"redeliver_replay_id": replay, "redeliver_generation": "1"}
    put(
        store,
        letter(b"2", {**back, "redeliver_lineage": "L2"}, copy_id="again-2"),
        letter(b"3", {**back, "redeliver_lineage": "L3", "redeliver_replay_id": "another"}, copy_id="again-3"),
        letter(b"4", {"redeliver_lineage": "L4"}, copy_id="again-4"),
    )
    assert became_of(store, replay) == BecameCounts(failed_again=1, in_flight=4)
    assert [one.dl_id for one in replayed_letters(store, replay, only="failed again")] == ["copy-2"]


def test_what_has_failed_again_has_not_recovered_whatever_is_written_first(store: Store, replay: str) -> None:
    words: list[Became] = ["recovered", "failed again"]
    for order in (words, words[::-1]):
        with store.writing() as connection:
            for word in order:
                mark(connection, [KnownEnd(replay, "L1", word, 7)])
        assert became_of(store, replay).failed_again == 1
    with store.writing() as connection:
        mark(connection, [KnownEnd(replay, "L2", "failed again", 7), KnownEnd(replay, "L2", "recovered", 8)])
    assert became_of(store, replay).failed_again == 2


def test_rows_without_a_replay_ask_the_database_nothing(store: Store) -> None:
    with store.reading() as connection:
        connection.close()
        mark_failed_again(connection, [{"replay_id": None, "message_key": "L"}])


def test_an_unknown_operation_is_an_error(store: Store) -> None:
    with pytest.raises(StoreError, match="no such operation"):
        became_of(store, "20200101-000000-abcdef")
