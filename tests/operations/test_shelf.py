# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Letters become rows of the store and back, exactly; those that come a second time are recognised; none is missing."""

from __future__ import annotations

import random
from typing import Any

import pytest
from sqlalchemy import func, select

from redeliver_mw.dead_letters import copy_of, pack
from redeliver_mw.message import Delivery, Destination
from redeliver_mw.operations import Selection, Store, page, show
from redeliver_mw.operations.audit import end_operation, last_entries
from redeliver_mw.operations.collect import AT_ONCE, plan_collect
from redeliver_mw.operations.filters.matching import matches
from redeliver_mw.operations.filters.parser import parse_filter
from redeliver_mw.operations.letters import Shelf, digest_of, subject_of
from redeliver_mw.operations.operation import (
    DIED,
    SILENT_US,
    OperationState,
    begin_operation,
    last_operations,
    now_us,
)
from redeliver_mw.operations.recognition import forget_doubts
from redeliver_mw.operations.tables import PARTS, batches, bodies, headers, letters, operations, own_headers
from tests.operations.taking import DLQ, RABBITMQ, ids, packed, put, rows, shelf
from tests.pipeline.letters import DIED_US, letter, written

# -- what is stored ---------------------------------------------------------------------------------


def test_a_letter_of_ours_is_a_row(store: Store) -> None:
    given = letter(b"\xffbody", {"tenant": "a", "redeliver_app": "shop"}, copy_id="c1", content_type="text/plain")
    put(store, given)
    [found] = page(store).letters
    assert (found.dl_id, found.broker, found.queue, found.dialect) == ("c1", "host:5672/", DLQ.name, "rabbitmq+pika")
    assert (found.source, found.problem, found.reason, found.failures) == ("queue:orders", "", "exhausted", 3)
    assert (found.error_type, found.fingerprint, found.app) == ("ValueError", "0123456789abcdef", "shop")
    assert (found.generation, found.message_key, found.content_type) == (1, "L", "text/plain")
    assert (found.died_us, found.state, found.body_bytes) == (DIED_US, "waiting", 5)
    [kept] = packed(store)
    assert found.digest == digest_of(kept.head, kept.body)


def test_a_letter_that_says_no_time_died_when_it_was_collected(store: Store) -> None:
    put(store, letter(b"x", message_id="m1"))
    [found] = page(store).letters
    assert found.died_us == found.collected_us == found.changed_us
    assert (found.source, found.error_type, found.app) == (None, None, None)
    assert found.problem == "no dead letter: no original destination"


def test_what_comes_out_of_the_store_is_packed_as_in_the_queue_and_has_the_same_copy(store: Store) -> None:
    given = [
        letter(b"\x00\xff" * 100, {"n": 2**40, "f": 1.5, "b": b"\x00\x01", "t": {"deep": [1, None]}}, copy_id="c1"),
        letter("zwölf".encode(), {"é": "ü", "nul": "a\x00b"}, copy_id="c2", redelivered=True),
        letter(b"", copy_id="c3", priority=7, correlation_id="x"),
    ]
    put(store, *given)
    assert packed(store) == [pack(one) for one in given]

    def copy(what: Any) -> Any:
        reader, can = given[0].reader, RABBITMQ.capabilities
        return copy_of(what, Destination("orders"), reader, can, replay_id="r", lineage="L", salt="s")

    assert list(map(copy, packed(store))) == [copy(pack(one)) for one in given]


def test_headers_can_be_filtered_as_texts_and_numbers(store: Store) -> None:
    put(store, letter(b"x", {"tenant": "a", "amount": 12.5, "count": 7, "yes": True, "huge": 2**62}, copy_id="c1"))
    found = {row.name: (row.text, row.number) for row in rows(store, select(headers))}
    assert (found["tenant"], found["amount"], found["count"]) == (("a", None), ("12.5", 12.5), ("7", 7.0))
    assert (found["yes"], found["huge"]) == (("True", None), (str(2**62), float(2**62)))


def test_headers_of_ours_are_one_row_and_a_filter_means_the_same_letters_in_the_store_and_in_the_queue(
    store: Store,
) -> None:
    values: list[Any] = [
        "a",
        "é😀",
        '"\\',
        "a\x00b",
        "x" * 3000,
        "12",
        "-0.5",
        "1e3",
        7,
        1.5,
        2**62,
        True,
        b"12",
        b"\xff",
    ]
    given = [
        letter(b"x", {"redeliver_x": value, "theirs": value}, copy_id=f"c{n:02}") for n, value in enumerate(values)
    ]
    put(store, *given)
    assert len(rows(store, select(own_headers))) == len(given)
    assert rows(store, select(headers.c.name).where(headers.c.name.startswith("redeliver_", autoescape=True))) == []
    place = Shelf(RABBITMQ.broker, DLQ, RABBITMQ.capabilities)
    subjects = {f"c{n:02}": subject_of(one, place) for n, one in enumerate(given)}
    signs = ["= a", "!= a", "= 'é😀'", "= 12", "= '12'", "< 2", "<= -0.5", "> 1000000", "~ x", "~ '\\\\'", "in (7, a)"]
    for condition in [*signs, "is present"]:
        ours, theirs = parse_filter(f"header.redeliver_x {condition}"), parse_filter(f"header.theirs {condition}")
        found = {one.dl_id for one in page(store, Selection(where=str(ours))).letters}
        assert found == {one.dl_id for one in page(store, Selection(where=str(theirs))).letters}, condition
        assert found == {dl_id for dl_id, one in subjects.items() if matches(ours, one, now_us())}, condition
    shown = show(store, "c04").headers
    assert shown["redeliver_x"] == shown["theirs"] == "x" * 1000


def test_headers_that_no_index_takes_are_cut_and_exact_in_the_letter(store: Store) -> None:
    """The texts are four bytes a character and do not compress, which is the worst for PostgreSQL's index."""
    chance = random.Random(1)
    text = "".join(chr(chance.randint(0x10000, 0x1FFFF)) for _ in range(5000))
    names = {f"{'n' * 120}{number}": "x" for number in range(1500)}
    given = letter(b"x", {text[:50]: text, "nul": "a\x00b", **names}, copy_id="c1")
    put(store, given)
    assert packed(store) == [pack(given)]
    found = show(store, "c1").headers
    assert len(found) == 1000
    assert found[text[:50]] == text[:499] + "…"
    assert found["nul"] == "a\\x00b"


def test_a_batch_of_more_letters_than_one_statement_takes_is_stored_once_whenever_it_comes(store: Store) -> None:
    number = AT_ONCE + 5
    given = [letter(b"%d" % n, {"n": n}, copy_id=f"c{n:04}") for n in range(number)]
    put(store, *given)
    again = put(store, *given)
    assert (again.collected, again.again) == (0, number)
    assert packed(store) == [pack(one) for one in given]
    numbers = select(headers.c.number).where(headers.c.name == "n").order_by(headers.c.letter_id)
    assert [found.number for found in rows(store, numbers)] == [*range(number)]


@pytest.mark.parametrize("others", [{}, {"theirs": "é"}, {"theirs": "a\x00b"}, {"theirs": "x" * 5000}])
def test_each_text_is_cut_by_its_own_length_whatever_stands_beside_it(store: Store, others: dict[str, str]) -> None:
    texts = {
        "redeliver_short": "x",
        "redeliver_long": "x" * 1000,
        "redeliver_longer": "x" * 1001,
        "redeliver_wide": "é" * 600,
        "redeliver_wider": "😀" * 501,
        "redeliver_number": "1." + "0" * 1200,
    }
    put(store, letter(b"x", texts | others, copy_id="c1"))
    found = show(store, "c1").headers
    assert {name: found[name] for name in texts} == texts | {
        "redeliver_longer": "x" * 1000,
        "redeliver_wider": "😀" * 499 + "…",
        "redeliver_number": "1." + "0" * 998,
    }
    [one] = rows(store, select(own_headers.c.numbers))
    assert one.numbers["redeliver_number"] == 1


def test_a_source_that_is_too_long_to_be_listed_is_a_problem_and_the_letter_is_exact(store: Store) -> None:
    given = letter(b"x", {"redeliver_original_destination": "q" * 3000}, copy_id="c1")
    put(store, given)
    [found] = page(store).letters
    assert (found.source, found.problem) == (None, "the name of its source is longer than 2000 bytes")
    assert packed(store) == [pack(given)]


@pytest.mark.parametrize("seconds", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "nonsense", ""])
def test_a_time_from_another_program_is_stored_or_left_out(store: Store, seconds: str) -> None:
    put(store, letter(b"x", {"redeliver_last_failed_at": seconds, "redeliver_failures": "9" * 19}, copy_id="c1"))
    assert ids(store) == ["c1"]


def test_a_letter_that_cannot_be_packed_stays_and_is_counted_with_the_reason(store: Store) -> None:
    from redeliver_mw.testing import make_delivery

    class Unpackable:
        def __getattr__(self, name: str) -> Any:
            return getattr(plain.reader, name)

    plain = make_delivery(b"x", message_id="m1")
    reader: Any = Unpackable()
    odd = Delivery(DLQ, 1, None, False, plain.native, reader)
    one = shelf(store)
    good = letter(b"y", copy_id="c1")
    assert written(one, 1, [odd, good]) == [good]
    assert (one.collected, dict(one.reasons)) == (
        1,
        {"messages of this adapter cannot be kept outside of their broker": 1},
    )
    assert ids(store) == ["c1"]


# -- recognised -------------------------------------------------------------------------------------


def test_a_copy_of_ours_is_stored_once_however_often_it_comes(store: Store) -> None:
    put(store, letter(b"x", copy_id="c1"))
    other = letter(b"y", copy_id="c2")
    again = put(store, letter(b"x", copy_id="c1", redelivered=True), other, other)
    assert (again.collected, again.again) == (1, 2)
    assert ids(store) == ["c1", "c2"]


def test_a_copy_id_with_another_body_is_another_letter(store: Store) -> None:
    put(store, letter(b"x", copy_id="c1"))
    put(store, letter(b"y", copy_id="c1"), letter(b"z", copy_id="c1"))
    assert ids(store) == ["c1", "c1~2", "c1~3"]
    assert show(store, "c1~2").packed.body == b"y"


def test_a_message_id_is_recognised_only_if_the_batch_may_have_come_back(store: Store) -> None:
    one, back = letter(b"x", message_id="m1"), letter(b"x", message_id="m1", redelivered=True)
    put(store, one)
    assert put(store, back).collected == 1  # the first is off its queue for certain
    put(store, letter(b"y", message_id="m2"), sure=False)
    assert put(store, letter(b"y", message_id="m2")).collected == 1  # the broker says that nobody had it before
    found = put(store, letter(b"y", message_id="m2", redelivered=True))
    assert (found.collected, found.again) == (0, 1)
    assert put(store, letter(b"y", message_id="m2", redelivered=True)).collected == 1  # the one in doubt had come back


def test_what_came_by_the_same_subscription_cannot_have_come_back(store: Store) -> None:
    one = shelf(store)
    written(one, 1, [letter(b"x", message_id="m1")])
    written(one, 1, [letter(b"x", message_id="m1", redelivered=True)])
    assert one.collected == 2
    one.lost()
    written(one, 2, [letter(b"y", message_id="m2")])
    written(one, 3, [letter(b"x", message_id="m1", redelivered=True)])
    assert (one.collected, one.again) == (3, 1)


def test_a_letter_of_another_queue_is_another_letter(store: Store) -> None:
    put(store, letter(b"x", message_id="m1"), sure=False)
    other = shelf(store, Destination("DLQ.other"))
    written(other, 1, [letter(b"x", message_id="m1", redelivered=True)])
    assert other.collected == 1


def bare(*contents: bytes, back: bool = False) -> list[Delivery]:
    return [letter(body, redelivered=back) for body in contents]


def test_letters_without_an_id_are_recognised_if_their_whole_batch_comes_back(store: Store) -> None:
    put(store, *bare(b"a", b"b", b"c"), sure=False)
    before = ids(store)
    first = put(store, *bare(b"a", b"b", back=True), sure=False)
    assert (first.collected, len(ids(store))) == (2, 5)  # it is not known yet
    second = put(store, *bare(b"c", back=True), *bare(b"d"))
    assert (second.collected + second.again, second.again) == (2, 3)
    assert [one.body for one in packed(store)] == [b"a", b"b", b"c", b"d"]
    assert set(before) < set(ids(store))
    assert rows(store, select(func.count()).select_from(bodies)) == [(4,)]


def test_a_second_copy_is_removed_with_all_its_parts(store: Store) -> None:
    def batch(back: bool) -> list[Delivery]:
        return [letter(body, {"redeliver_x": 1, "tenant": "a"}, redelivered=back) for body in (b"a", b"b")]

    put(store, *batch(False), sure=False)
    parts = {table.name: {row.letter_id for row in rows(store, select(table.c.letter_id))} for table in PARTS}
    [numbers] = {frozenset(found) for found in parts.values()}
    assert len(numbers) == 2
    again = put(store, *batch(True))
    assert (again.collected, again.again) == (0, 2)
    for table in PARTS:
        assert {row.letter_id for row in rows(store, select(table.c.letter_id))} == numbers, table.name


def test_letters_without_an_id_are_other_letters_if_only_some_come(store: Store) -> None:
    put(store, *bare(b"a", b"b", b"c"), sure=False)
    put(store, *bare(b"a", b"b", back=True))
    put(store, *bare(b"a", b"b", back=True))
    assert sorted(one.body for one in packed(store)) == sorted([b"a", b"b"] * 3 + [b"c"])


def test_equal_letters_are_never_recognised(store: Store) -> None:
    put(store, *bare(b"a", b"a"), sure=False)
    put(store, *bare(b"a", b"a", back=True))
    assert [one.body for one in packed(store)] == [b"a"] * 4
    assert len(set(ids(store))) == 4


def test_a_second_copy_that_somebody_has_worked_on_stays(store: Store) -> None:
    put(store, *bare(b"a", b"b"), sure=False)
    put(store, *bare(b"a", back=True))
    with store.writing() as connection:
        connection.execute(letters.update().where(letters.c.again_of.is_not(None)).values(state="replayed"))
    put(store, *bare(b"b", back=True))
    assert len(packed(store)) == 4


def test_a_letter_that_came_back_is_in_doubt_again(store: Store) -> None:
    """Two processes die one after the other, each after it had stored its batch."""
    put(store, *bare(b"a", b"b"), letter(b"m", message_id="m1"), sure=False)
    for _ in range(2):
        put(store, *bare(b"a", b"b", back=True), letter(b"m", message_id="m1", redelivered=True), sure=False)
    assert sorted(one.body for one in packed(store)) == [b"a", b"b", b"m"]


@pytest.mark.parametrize("seed", range(30))
def test_whatever_dies_no_letter_is_missing_and_only_batches_of_the_dead_are_there_twice(
    file_store: Store, seed: int
) -> None:
    """The queue, and the moments when its consumers die, are made by chance."""
    chance = random.Random(seed)
    kinds = ["copy", "id", "bare"]
    queue = [(kinds[chance.randrange(3)], n, False) for n in range(60)]
    deaths = in_batches = 0

    def delivery(kind: str, number: int, back: bool) -> Delivery:
        body = b"%d" % number
        if kind == "copy":
            return letter(body, copy_id=f"c{number}", redelivered=back)
        return letter(body, message_id=f"m{number}" if kind == "id" else None, redelivered=back)

    while queue:
        consumer = shelf(file_store)
        for _ in range(chance.randint(1, 3)):
            batch, rest = queue[: (size := chance.randint(1, 12))], queue[size:]
            if not batch:
                break
            fate = chance.choice(["lives", "lives", "dies settled", "dies stored", "dies before"])
            if fate != "dies before":
                written(consumer, 1, [delivery(*one) for one in batch])
            if fate in ("dies before", "dies stored"):
                deaths, in_batches = deaths + 1, in_batches + len(batch)
                batch = [(kind, number, True) for kind, number, _ in batch]
                queue = [*batch, *rest] if chance.random() < 0.8 else [*rest, *batch]
                break
            queue = rest
            if fate == "dies settled":
                break
            consumer.sure(1)
    found = packed(file_store)
    assert {one.body for one in found} == {b"%d" % number for number in range(60)}
    assert len(found) - 60 <= in_batches
    assert len(set(ids(file_store))) == len(found)
    numbered = [row.base_id for row in rows(file_store, select(letters).where(letters.c.known_by != ""))]
    assert len(numbered) == len(set(numbered))


def test_doubts_about_an_empty_queue_are_forgotten_unless_another_operation_runs(store: Store) -> None:
    own, running, over = (put(store, letter(b"%d" % n, message_id=f"m{n}"), sure=False) for n in range(3))
    put(store, letter(b"x", copy_id="c1"), sure=False)  # a copy is never in doubt
    end_operation(store, over._operation, "failed")

    def doubts() -> set[str]:
        return {row.operation_id for row in rows(store, select(batches))}

    assert doubts() == {own._operation, running._operation, over._operation}
    for broker, queue in (("other", DLQ.short), ("host:5672/", "other")):
        with store.writing() as connection:
            forget_doubts(connection, broker, [queue], own._operation)
    assert len(doubts()) == 3
    with store.writing() as connection:
        forget_doubts(connection, "host:5672/", [DLQ.short], own._operation)
    assert doubts() == {running._operation}


@pytest.mark.parametrize("state", ["paused", "cancelled"])
def test_doubts_of_an_operation_that_was_just_ended_by_somebody_else_stay_until_it_is_silent(
    store: Store, state: OperationState
) -> None:
    """The last batch of the operation may still be in hand."""
    own, ended = (put(store, letter(b"%d" % n, message_id=f"m{n}"), sure=False) for n in range(2))
    end_operation(store, ended._operation, state)
    with store.writing() as connection:
        forget_doubts(connection, "host:5672/", [DLQ.short], own._operation)
    assert {row.operation_id for row in rows(store, select(batches))} == {ended._operation}
    with store.writing() as connection:
        connection.execute(operations.update().values(seen_us=now_us() - SILENT_US - 1))
        forget_doubts(connection, "host:5672/", [DLQ.short], own._operation)
    assert rows(store, select(batches)) == []


def test_what_is_sure_is_not_in_doubt(store: Store) -> None:
    one = put(store, letter(b"x", message_id="m1"), sure=False)
    assert len(rows(store, select(batches))) == 1
    one.sure(1)
    one.finish()
    assert rows(store, select(batches)) == []


# -- operations -------------------------------------------------------------------------------------


def test_an_operation_is_counted_with_what_it_does(store: Store) -> None:
    put(store, letter(b"x", copy_id="c1"), letter(b"y", copy_id="c2"))
    [found] = last_operations(store)
    assert (found.kind, found.state, found.done, found.filter) == ("collect", "running", 2, DLQ.name)
    assert "@" in found.who
    end_operation(store, found.operation_id, "done", failed=3)
    [found] = last_operations(store)
    assert (found.state, found.failed) == ("done", 3)
    assert found.ended_us is not None
    assert found.ended_us >= found.began_us


def test_an_operation_whose_process_is_gone_has_failed_once_the_next_is_planned(store: Store) -> None:
    died = begin_operation(store, "collect", filter_=DLQ.name, options={}, total=0, who="ada")
    with store.writing() as connection:
        connection.execute(operations.update().values(pid=2**22 + 1))  # larger than any
    running = begin_operation(store, "collect", filter_="", options={}, total=0)
    for _ in range(2):
        plan_collect(store, [DLQ.name])
    found = {one.operation_id: (one.state, one.why) for one in last_operations(store)}
    assert (found[died], found[running]) == (("failed", DIED), ("running", ""))
    [entry] = last_entries(store)
    assert (entry.who, entry.what, entry.outcome, entry.operation_id, entry.why) == (
        *("ada", "collect", "failure"),
        *(died, DIED),
    )
