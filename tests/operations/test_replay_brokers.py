# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Sends dead letters back from the store to real brokers: each once, where it came from, whatever goes wrong."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert

from redeliver_mw import App, Delivery, RedeliveryPolicy
from redeliver_mw.dead_letters.edits.letter import Letter
from redeliver_mw.errors import BrokerError, ConfigError, DestinationMissing, StoreError
from redeliver_mw.operations import Operation, Selection, Store, collect, counts, pause_operation, show
from redeliver_mw.operations.audit import last_entries
from redeliver_mw.operations.became import BecameCounts, became_of, replayed_letters
from redeliver_mw.operations.operation import cancel_operation
from redeliver_mw.operations.replay import StoreReplayed, StoreReplayRun, run_replay
from redeliver_mw.operations.replay_plan import (
    LetterEdit,
    StoreReplayOptions,
    plan_replay,
    preview_of,
    release_cancelled,
)
from redeliver_mw.operations.tables import redirects
from tests.brokers import Broker
from tests.faults.letters import declare
from tests.faults.load import channel_on, until
from tests.operations.filling import arrived, fill

pytestmark = pytest.mark.broker

THREE = ["rabbitmq43", "artemis244", "activemq63"]


@pytest.fixture(params=THREE)
def each(request: pytest.FixtureRequest) -> Broker:
    """Return a broker of each kind in turn."""
    found: Broker = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def source(request: pytest.FixtureRequest) -> str:
    """Return the name of a queue that no other test has."""
    return f"orders.{abs(hash(request.node.nodeid)):x}"


def planned(store: Store, selection: Selection | None = None, **options: Any) -> Operation:
    return plan_replay(store, selection or Selection(), options=StoreReplayOptions(**options))


def run(store: Store, operation: Operation, broker: Broker, **more: Any) -> StoreReplayed:
    return run_replay(store, operation.operation_id, broker.url, **more)


def bodies(broker: Broker, queue: str) -> list[bytes]:
    return [one.body for one in arrived(broker, queue)]


# -- the main path ----------------------------------------------------------------------------------


def test_letters_go_back_to_their_source_once_and_in_order(each: Broker, source: str, file_store: Store) -> None:
    given = [b"\x00\xff%04d" % n for n in range(120)]
    fill(each, file_store, source, given)
    operation = planned(file_store)
    preview = preview_of(file_store, operation.operation_id)
    assert (operation.total, preview.letters, preview.going) == (120, 120, 120)
    assert [(one.source, one.target) for one in preview.routes] == [(f"queue:{source}", source)]
    seen: list[tuple[int, int]] = []
    done = run(file_store, operation, each, progress=lambda *how_far: seen.append(how_far), who="ann@host")
    assert done.whole, done
    assert (done.sent, done.left, done.in_doubt, done.stopped) == (120, 0, 0, "")
    assert seen[-1] == (120, 120)
    assert done.became == BecameCounts(in_flight=120)
    assert counts(file_store) == {"replayed": 120}
    found = arrived(each, source)
    assert [one.body for one in found] == given
    assert {one.headers["redeliver_replay_id"] for one in found} == {operation.operation_id}
    assert {one.headers["redeliver_generation"] for one in found} == {"1"}
    assert found[7].headers["redeliver_lineage"] == f"dlq.{source}-7"
    entry, collected = last_entries(file_store)
    assert (entry.who, entry.what, entry.outcome, entry.count) == ("ann@host", "replay", "success", 120)
    assert (collected.what, collected.outcome, collected.count) == ("collect", "success", 120)


@pytest.mark.parametrize("each", ["rabbitmq43", "artemis244"], indirect=True)
def test_letters_without_an_answer_are_sent_again_as_the_same_copies(
    each: Broker, source: str, file_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = [b"%d" % n for n in range(60)]
    fill(each, file_store, source, given)
    operation = planned(file_store, batch=40)

    def dies(*_: object) -> None:
        raise MemoryError("as if it was killed")

    with monkeypatch.context() as patched:
        patched.setattr(StoreReplayRun, "_record", dies)
        with pytest.raises(MemoryError):
            run(file_store, operation, each)
    assert counts(file_store) == {"replaying": 40, "waiting": 20}
    assert planned(file_store).total == 20  # those in doubt belong to their replay
    preview = preview_of(file_store, operation.operation_id)
    assert (preview.letters, preview.going, preview.in_doubt) == (60, 60, 40)
    done = run(file_store, operation, each)
    assert done.whole
    assert (done.sent, done.again) == (60, 40)
    found = arrived(each, source)
    times = Counter(one.body for one in found)
    assert set(times) == set(given)
    # Artemis drops the second of two equal copies; RabbitMQ has both, with the same id.
    assert sorted(times.values()) == ([1] * 60 if each.kind == "artemis" else [1] * 20 + [2] * 40)
    assert len({one.headers["redeliver_copy_id"] for one in found}) == 60


# -- what goes wrong --------------------------------------------------------------------------------


def test_letters_that_are_refused_wait_again_and_the_outcome_has_the_brokers_words(
    rabbitmq43: Broker, source: str, file_store: Store
) -> None:
    fill(rabbitmq43, file_store, source, [b"%d" % n for n in range(10)])
    with channel_on(rabbitmq43) as channel:
        channel.queue_delete(source)
        channel.queue_declare(
            source,
            durable=True,
            arguments={"x-max-length": 4, "x-overflow": "reject-publish", "x-queue-type": "classic"},
        )
    operation = planned(file_store)
    done = run(file_store, operation, rabbitmq43)
    assert not done.whole
    assert (done.operation.state, done.sent, done.refused) == ("done", 4, 6)
    assert counts(file_store) == {"replayed": 4, "waiting": 6}
    refused = [one for one in replayed_letters(file_store, operation.operation_id) if one.outcome == "failed"]
    assert len(refused) == 6
    assert all(one.why for one in refused)
    assert len(bodies(rabbitmq43, source)) == 4
    assert run(file_store, planned(file_store), rabbitmq43).whole is False  # 4 fit, 2 do not
    assert counts(file_store) == {"replayed": 8, "waiting": 2}


def test_a_missing_target_pauses_the_replay_before_anything_is_sent(
    rabbitmq43: Broker, source: str, file_store: Store
) -> None:
    fill(rabbitmq43, file_store, source, [b"a", b"b"])
    with channel_on(rabbitmq43) as channel:
        channel.queue_delete(source)
    operation = planned(file_store)
    done = run(file_store, operation, rabbitmq43)
    assert isinstance(done.error, DestinationMissing)
    assert (done.operation.state, done.sent, done.left) == ("paused", 0, 2)
    assert source in done.operation.why
    assert counts(file_store) == {"waiting": 2}
    declare(rabbitmq43, source)
    assert run(file_store, operation, rabbitmq43).whole
    assert bodies(rabbitmq43, source) == [b"a", b"b"]


def test_a_run_that_is_stopped_ends_after_the_batch_in_hand_and_the_next_one_goes_on(
    rabbitmq43: Broker, source: str, file_store: Store
) -> None:
    given = [b"%d" % n for n in range(100)]
    fill(rabbitmq43, file_store, source, given)
    operation, stop = planned(file_store, batch=30), threading.Event()
    first = run(file_store, operation, rabbitmq43, stop=stop, progress=lambda *_: stop.set())
    assert (first.sent, first.left, first.interrupted, first.operation.state) == (30, 70, True, "paused")
    assert counts(file_store) == {"replayed": 30, "waiting": 70}
    paused: list[int] = []

    def pause(done: int, total: int) -> None:
        if not paused:
            paused.append(done)
            pause_operation(file_store, operation.operation_id)

    second = run(file_store, operation, rabbitmq43, progress=pause)
    assert (second.sent, second.operation.state, second.interrupted) == (30, "paused", False)
    assert "paused by another program" in second.stopped
    assert run(file_store, operation, rabbitmq43).whole
    assert bodies(rabbitmq43, source) == given
    with pytest.raises(StoreError, match="is done"):
        run(file_store, operation, rabbitmq43)


def test_a_cancelled_replay_gives_back_what_it_has_not_sent(rabbitmq43: Broker, source: str, file_store: Store) -> None:
    fill(rabbitmq43, file_store, source, [b"%d" % n for n in range(50)])
    operation = planned(file_store, batch=20)
    done = run(
        file_store, operation, rabbitmq43, progress=lambda *_: cancel_operation(file_store, operation.operation_id)
    )
    assert (done.operation.state, done.sent) == ("cancelled", 20)
    assert counts(file_store) == {"replayed": 20, "waiting": 30}


def test_letters_in_doubt_of_a_cancelled_replay_can_be_replayed_by_another_which_says_so(
    rabbitmq43: Broker, source: str, file_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(rabbitmq43, file_store, source, [b"a", b"b"])
    operation = planned(file_store)
    with monkeypatch.context() as patched:
        patched.setattr(StoreReplayRun, "_record", lambda *_: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            run(file_store, operation, rabbitmq43)
    cancel_operation(file_store, operation.operation_id)
    with file_store.writing() as connection:
        release_cancelled(connection)
    assert counts(file_store) == {"replaying": 2}  # the process of the replay lives: it may be sending just now
    monkeypatch.setattr("redeliver_mw.operations.replay_plan.has_died", lambda _: True)
    again = planned(file_store)
    assert (again.total, preview_of(file_store, again.operation_id).doubtful_elsewhere) == (2, 2)
    assert {one.outcome for one in replayed_letters(file_store, operation.operation_id)} == {"in doubt"}
    assert run(file_store, again, rabbitmq43).whole


def test_of_two_replays_of_the_same_letters_each_letter_is_sent_by_one(
    rabbitmq43: Broker, source: str, url: str
) -> None:
    given = [b"%d" % n for n in range(400)]
    with Store(url) as store:
        fill(rabbitmq43, store, source, given)
        operations = [planned(store, batch=25) for _ in range(2)]
    ended: list[StoreReplayed] = []

    def work(operation: Operation) -> None:
        with Store(url) as store:
            ended.append(run(store, operation, rabbitmq43))

    threads = [threading.Thread(target=work, args=(one,)) for one in operations]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(one.sent for one in ended) == 400
    assert sum(one.skipped for one in ended) == 400
    assert sorted(bodies(rabbitmq43, source)) == sorted(given)


def test_letters_of_another_broker_are_refused_unless_it_has_moved(
    rabbitmq43: Broker, artemis244: Broker, source: str, file_store: Store
) -> None:
    fill(rabbitmq43, file_store, source, [b"a"])
    operation = planned(file_store)
    with pytest.raises(ConfigError, match=r"collected through rabbitmq\+pika") as caught:
        run(file_store, operation, artemis244)
    assert caught.value.code == "replay-other-broker"
    assert last_entries(file_store)[0].outcome == "denied"
    elsewhere = rabbitmq43.url.replace("127.0.0.1", "localhost")
    with pytest.raises(ConfigError, match="--other-broker"):
        run_replay(file_store, operation.operation_id, elsewhere)
    options = StoreReplayOptions(other_broker=True)
    assert run_replay(file_store, operation.operation_id, elsewhere, options=options).whole
    assert bodies(rabbitmq43, source) == [b"a"]


# -- where letters go, and how they are changed -----------------------------------------------------


def test_redirects_and_a_named_target_decide_where_letters_go(
    rabbitmq43: Broker, source: str, file_store: Store
) -> None:
    moved, other = f"{source}.moved", f"{source}.other"
    declare(rabbitmq43, moved, other)
    fill(rabbitmq43, file_store, source, [b"a", b"b"])
    operation = plan_replay(file_store, Selection(), most=1)
    with file_store.writing() as connection:
        connection.execute(insert(redirects).values(old=source, new=f"queue:{moved}", who="ann", at_us=1))
    [route] = preview_of(file_store, operation.operation_id).routes
    assert (route.source, route.target, route.redirected) == (f"queue:{source}", moved, True)
    assert run(file_store, operation, rabbitmq43).whole
    assert run(file_store, plan_replay(file_store, Selection(), to=other), rabbitmq43).whole
    [first], [second] = arrived(rabbitmq43, moved), arrived(rabbitmq43, other)
    assert (first.body, second.body, bodies(rabbitmq43, source)) == (b"a", b"b", [])
    assert first.headers["redeliver_lineage"] == f"dlq.{source}-0"
    assert second.headers["redeliver_lineage"] == f"dlq.{source}-1"


def test_a_transform_changes_leaves_out_and_may_fail(rabbitmq43: Broker, source: str, file_store: Store) -> None:
    def repair(letter: Letter) -> Letter | None:
        number = letter.json()["n"]
        if number == 1:
            return None
        if number == 2:
            raise KeyError("password=hunter2")
        return letter.changed(json={"n": number, "fixed": True}, headers={"x-fixed": "1", "tenant": None})

    fill(rabbitmq43, file_store, source, [b'{"n": %d}' % n for n in range(4)], tenant="acme")
    operation = planned(file_store, transform="repairs:repair")
    with pytest.raises(ConfigError, match="repairs:repair"):
        run(file_store, operation, rabbitmq43)
    done = run(file_store, operation, rabbitmq43, transform=repair)
    assert (done.sent, done.skipped, done.refused) == (2, 1, 1)
    assert counts(file_store) == {"replayed": 2, "waiting": 2}
    whys = {one.position: one.why for one in replayed_letters(file_store, operation.operation_id)}
    assert whys[2] == "the transform left it out"
    assert whys[3].startswith("the transform: KeyError")
    assert "hunter2" not in whys[3]
    found = arrived(rabbitmq43, source)
    assert [one.body for one in found] == [b'{"n":0,"fixed":true}', b'{"n":3,"fixed":true}']
    assert [one.headers["x-fixed"] for one in found] == ["1", "1"]
    assert not any("tenant" in one.headers for one in found)
    assert [one.headers["redeliver_lineage"] for one in found] == [f"dlq.{source}-0", f"dlq.{source}-3"]


def test_an_edited_letter_is_sent_once_and_the_original_never(
    rabbitmq43: Broker, source: str, file_store: Store
) -> None:
    fill(rabbitmq43, file_store, source, [b"wrong", b"another"], tenant="acme")
    one = show(file_store, f"dlq.{source}-copy-0").letter
    edit = LetterEdit(one.dl_id, one.digest, b"right", {"tenant": None, "x-by": "ann"})
    operation = plan_replay(file_store, Selection(ids=[one.dl_id]), edit=edit)
    rival = plan_replay(file_store, Selection(ids=[one.dl_id]))
    assert operation.total == 1
    assert run(file_store, operation, rabbitmq43).whole
    lost = run(file_store, rival, rabbitmq43)
    assert (lost.sent, lost.skipped) == (0, 1)
    [found] = arrived(rabbitmq43, source)
    assert found.body == b"right"
    assert found.headers["x-by"] == "ann"
    assert "tenant" not in found.headers
    assert found.headers["redeliver_lineage"] == f"dlq.{source}-0"
    assert counts(file_store) == {"replayed": 1, "waiting": 1}
    kept = preview_of(file_store, operation.operation_id).operation.options
    assert "edit" not in kept  # the text is the letter's owner's, and has been sent
    for stale in (replace(edit, dl_id=f"dlq.{source}-copy-1"), edit):
        with pytest.raises(StoreError) as caught:
            plan_replay(file_store, Selection(ids=[stale.dl_id]), edit=stale)
        assert caught.value.code == "letter-changed"


def test_an_edit_of_a_letter_that_another_replay_has_claimed_is_refused(
    rabbitmq43: Broker, source: str, file_store: Store
) -> None:
    fill(rabbitmq43, file_store, source, [b"wrong"])
    one = show(file_store, f"dlq.{source}-copy-0").letter
    selection = Selection(ids=[one.dl_id])
    edited = plan_replay(file_store, selection, edit=LetterEdit(one.dl_id, one.digest, b"right"))
    assert run(file_store, plan_replay(file_store, selection), rabbitmq43).whole
    with pytest.raises(StoreError, match="nothing was sent"):
        run(file_store, edited, rabbitmq43)
    assert bodies(rabbitmq43, source) == [b"wrong"]
    assert last_entries(file_store)[0].outcome == "denied"


# -- what became of them ----------------------------------------------------------------------------


def test_a_canary_that_fails_again_stops_the_replay_and_after_the_repair_all_recover(
    rabbitmq43: Broker, source: str, tmp_path: Path
) -> None:
    url, dlq = f"sqlite:///{tmp_path}/store.db", f"dlq.{source}"
    broken, handled = threading.Event(), list[bytes]()
    broken.set()
    app = App(rabbitmq43.url, policy=RedeliveryPolicy(1, 0, f"queue:{dlq}"), app_name="shop", operations=url)

    @app.handler(source)
    def on_order(delivery: Delivery) -> None:
        if broken.is_set():
            raise ConnectionError("the warehouse does not answer")
        handled.append(delivery.body)

    with Store(url) as store:
        fill(rabbitmq43, store, source, [b"%d" % n for n in range(50)])
        operation = planned(store, canary=5, wait=20)
        with app:
            first = run(store, operation, rabbitmq43)
            assert first.canary is not None
            assert (first.canary.sent, first.canary.verdict) == (5, "failed")
            assert (first.operation.state, first.left) == ("paused", 45)
            assert "5 of 5" in first.stopped or "died again" in first.stopped
            collect(rabbitmq43.url, [dlq], store)
            assert became_of(store, operation.operation_id).failed_again == 5
            broken.clear()
            second = run(store, operation, rabbitmq43)
            assert second.whole, second
            assert second.canary is not None
            assert (second.canary.recovered, second.canary.verdict) == (5, "passed")
            until(lambda: became_of(store, operation.operation_id).recovered == 45, 30, "the App writes too little")
            third = run(store, planned(store, canary="1%"), rabbitmq43)  # those that had failed again
            assert third.whole
            until(lambda: len(handled) == 50, 30, "not all are handled")


def test_a_replay_stops_while_it_runs_when_too_many_fail_again(
    rabbitmq43: Broker, source: str, file_store: Store
) -> None:
    fill(rabbitmq43, file_store, source, [b"%d" % n for n in range(600)])
    operation, dlq = planned(file_store, batch=150, stop_at="20%"), f"dlq.{source}"

    def bring_back(done: int, total: int) -> None:  # as a consumer without any attempt left does
        with channel_on(rabbitmq43) as channel:
            channel.confirm_delivery()
            for _ in range(40):
                method, properties, body = channel.basic_get(source)
                properties.headers |= {"redeliver_reason": "exhausted", "redeliver_copy_id": f"back-{done}-{body!r}"}
                channel.basic_publish("", dlq, body, properties)
                channel.basic_ack(method.delivery_tag)
        assert collect(rabbitmq43.url, [dlq], file_store).whole

    done = run(file_store, operation, rabbitmq43, progress=bring_back)
    assert (done.operation.state, done.sent) == ("paused", 150)
    assert done.stopped == "40 of 150 letters died again, more than 20%"
    assert done.became == BecameCounts(failed_again=40, in_flight=110)


def test_a_rate_is_kept_and_no_letter_is_lost_when_the_run_is_stopped_in_between(
    rabbitmq43: Broker, source: str, file_store: Store
) -> None:
    fill(rabbitmq43, file_store, source, [b"%d" % n for n in range(40)])
    operation, stop = planned(file_store, rate=1), threading.Event()
    first = run(file_store, operation, rabbitmq43, stop=stop, progress=lambda *_: stop.set())
    assert (first.sent, first.operation.state) == (1, "paused")
    second = run(file_store, operation, rabbitmq43, options=StoreReplayOptions(rate=40))
    assert second.whole
    assert second.seconds > 0.9
    assert len(bodies(rabbitmq43, source)) == 40


@pytest.mark.long
def test_a_broker_that_goes_away_pauses_the_replay_and_the_next_run_sends_the_rest(
    each: Broker, source: str, file_store: Store
) -> None:
    given = [b"%d" % n for n in range(1_000)]
    fill(each, file_store, source, given)
    operation = planned(file_store, batch=100)
    killed: list[int] = []

    def kill(done: int, total: int) -> None:
        if not killed:
            killed.append(done)
            each.kill()

    first = run(file_store, operation, each, progress=kill)
    assert isinstance(first.error, BrokerError)
    assert first.operation.state == "paused"
    assert counts(file_store).get("replayed") == 100
    each.start()
    second = run(file_store, operation, each)
    assert second.whole
    times = Counter(bodies(each, source))
    assert set(times) == set(given)
    assert sum(times.values()) - 1_000 <= second.again
