# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests the account itself: it sees what is lost, left, handled twice or dead-lettered twice."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.faults.load import Line
from tests.faults.sites import Letter
from tests.infrastructure.scene import Row, tally
from tests.infrastructure.table import verdicts


def row(consumer: str = "App") -> Row:
    return Row("a broker", "kill", consumer, "", back=1.0, again=0.5)


def runs(*bodies: str) -> list[Line]:
    return [Line(what, body, 1, 0.0) for body in bodies for what in ("begin", "done")]


def letter(body: str, copy: str = "1") -> Letter:
    return Letter(body, {"redeliver_copy_id": copy})


def account(
    confirmed: Sequence[str],
    written: Sequence[Line] = (),
    dead: Sequence[Letter] = (),
    left: Sequence[Letter] = (),
    *,
    bare: bool = False,
) -> Row:
    found = row("bare pika" if bare else "App")
    tally(found, confirmed, written, dead, left, bare=bare)
    return found


def test_a_message_that_is_handled_or_dead_is_accounted_for() -> None:
    found = account(["fine:1", "poison:2"], runs("fine:1"), [letter("poison:2")])
    assert (found.confirmed, found.lost, found.left, found.duplicates, found.dead_twice) == (2, 0, 0, 0, 0)
    assert verdicts([found]) == []


def test_a_confirmed_message_that_is_nowhere_is_lost() -> None:
    found = account(["fine:1", "fine:2", "poison:3"], [*runs("fine:1"), Line("begin", "fine:2", 1, 0.0)])
    assert found.lost == 2
    assert "lost: fine:2, poison:3 (tried: 1, 0)" in verdicts([found])[0]


def test_a_message_that_is_still_at_the_broker_is_left_and_not_lost() -> None:
    found = account(["fine:1"], left=[letter("fine:1")])
    assert (found.lost, found.left) == (0, 1)
    assert "left at the broker: fine:1" in verdicts([found])[0]


def test_a_message_that_the_broker_counts_and_gives_to_nobody_is_left_and_not_lost() -> None:
    found = row()
    tally(found, ["fine:1", "fine:2"], [], [], [], bare=False, held=1)
    assert (found.lost, found.left) == (1, 1)


def test_what_is_handled_or_dead_lettered_twice_is_counted_and_only_a_second_letter_is_wrong() -> None:
    same = account(["fine:1", "poison:2"], runs("fine:1", "fine:1"), [letter("poison:2"), letter("poison:2")])
    assert (same.duplicates, same.dead_twice) == (1, 1)
    assert verdicts([same]) == []
    other = account(["poison:2"], dead=[letter("poison:2", "1"), letter("poison:2", "2")])
    assert "two different dead letters: poison:2" in verdicts([other])[0]


@pytest.mark.parametrize(
    ("broker", "fault", "wrong"),
    [
        ("RabbitMQ 3.10, three nodes", "partition", 0),
        ("RabbitMQ 3.10, three nodes, autoheal, mirrored", "kill", 0),
        ("RabbitMQ 3.10, three nodes", "kill", 1),
        ("RabbitMQ 3.10, three nodes, pause_minority", "partition", 1),
        ("RabbitMQ 4.3, three nodes", "partition", 1),
    ],
)
def test_two_different_dead_letters_are_wrong_unless_the_broker_delivers_unmarked_on_the_same_channel(
    broker: str, fault: str, wrong: int
) -> None:
    found = Row(broker, fault, "App", "quorum", back=1.0, again=0.5)
    tally(found, ["poison:2"], [], [letter("poison:2", "1"), letter("poison:2", "2")], [], bare=False)
    assert len(verdicts([found])) == wrong


def test_a_healthy_message_among_the_dead_is_wrong() -> None:
    assert "dead, and could be handled: fine:1" in verdicts([account(["fine:1"], dead=[letter("fine:1")])])[0]


def test_what_the_bare_consumer_loses_too_is_the_brokers_doing_and_no_fault_of_ours() -> None:
    ours, bare = account(["fine:1"]), account(["fine:1"], bare=True)
    assert verdicts([ours, bare]) == []
    assert verdicts([ours, account(["fine:1"], runs("fine:1"), bare=True)]) != []


def test_what_the_broker_drops_from_a_queue_that_nobody_consumes_is_no_fault_of_ours_either() -> None:
    ours, bare = account(["poison:1"]), account(["fine:1"], runs("fine:1"), bare=True)
    bare.dropped = 50
    assert verdicts([ours, bare]) == []


def test_consuming_again_too_late_or_never_is_wrong() -> None:
    late, never = row(), row()
    late.again, never.again = 30.1, None
    assert [text.rpartition(": ")[2] for text in verdicts([late, never])] == [
        "consuming again after 30.1 s",
        "consuming never again",
    ]
