# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Changes a policy file while an App runs: the file is taken for what arrives afterwards, or refused whole."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from redeliver_mw import App, Delivery
from redeliver_mw.journal import read_policy_changes, read_segments
from redeliver_mw.journal.records import AttemptRecord, PolicyRecord
from redeliver_mw.memory import MemoryAdapter
from redeliver_mw.policy import PolicyMap
from redeliver_mw.policy.formats import READERS
from redeliver_mw.policy.policy_file import PolicyFile
from redeliver_mw.runtime import policy_reload
from redeliver_mw.testing import Faults, ManualClock, MemoryBroker, TestApp, register_broker
from tests.policy.spelling import SPELLINGS, Rule, native

ONE = "1:1000; 2:move(queue:one.$)"  # dead at the second failure, a second after the first
TWO = "1:1000; 2:move(queue:two.$)"
WRONG = "1:soon; 2:move(queue:wrong.$)"
NOTICED = 2.0  # seconds: two looks, the second of which finds it unchanged
Log = pytest.LogCaptureFixture


class Shop:
    """Runs an App with one policy file, on a memory broker and a clock moved by hand. Each handler always fails."""

    def __init__(self, folder: Path, text: str, *sources: str, **options: Any) -> None:
        self.faults: Faults | None = options.pop("faults", None)
        self.file, self.journal = folder / "policy", folder / "journal"
        self.write(text)
        self.app = App("memory://", policy=self.file, journal=self.journal, **options)
        self.runs: list[str] = []
        for source in sources or ("orders",):
            self.app.handler(source)(self.fail)
        self.test = TestApp(self.app, faults=self.faults)

    def fail(self, delivery: Delivery) -> None:
        self.runs.append(delivery.text)
        raise ValueError("no")

    def write(self, text: str) -> None:
        self.file.write_text(text, "utf-8")

    def change(self, text: str) -> None:
        self.write(text)
        self.test.advance(NOTICED)

    def dead(self, queue: str) -> list[bytes]:
        return [message.body for message in self.test.broker.peek(queue)]

    def __enter__(self) -> Shop:
        self.test.start()
        self.test.advance(NOTICED)  # the first look, which finds nothing new, is over
        return self

    def __exit__(self, *_: object) -> None:
        self.test.stop()

    # what the journal says; once it is stopped

    @property
    def attempts(self) -> list[AttemptRecord]:
        return list(read_segments(self.journal))

    @property
    def changes(self) -> list[PolicyRecord]:
        return list(read_policy_changes(self.journal))


@pytest.fixture
def log(caplog: Log) -> Iterator[Log]:
    with caplog.at_level(logging.INFO, "redeliver_mw"):
        yield caplog


def said(log: Log, level: str) -> list[str]:
    lines = [line for line in log.records if line.name != "redeliver_mw.failures"]
    return [line.getMessage() for line in lines if line.levelname == level]


def errors(log: Log) -> list[str]:
    return said(log, "ERROR")


# -- what a new version holds for ------------------------------------------------------------------------


def test_a_message_that_is_held_follows_the_new_version_at_its_next_attempt(tmp_path: Path, log: Log) -> None:
    with Shop(tmp_path, ONE) as shop:
        shop.test.send("orders", "early")
        shop.test.advance(1.5)  # its second attempt, its last, is over before the change
        shop.write(TWO)
        shop.test.advance(1.5)
        shop.test.send("orders", "held")  # its delay is from 5 to 6, the change is taken at 5.5
        shop.test.advance(10)
        assert shop.dead("one.orders") == [b"early"]
        assert shop.dead("two.orders") == [b"held"]
    assert errors(log) == []


@pytest.mark.parametrize("endless", ["1:0; 2:1000", "1:60000"])
def test_a_mended_policy_ends_the_endless_retries_of_a_message_in_hand(endless: str, tmp_path: Path) -> None:
    with Shop(tmp_path, endless) as shop:
        shop.test.send("orders", "stuck")
        shop.test.advance(4)
        assert shop.dead("two.orders") == []
        shop.change("2:1000; 3:move(queue:two.$)")
        shop.test.advance(60)
        assert shop.dead("two.orders") == [b"stuck"]
    assert shop.attempts[-1].policy_version == shop.changes[0].new_versions[0]


def test_what_waits_for_a_worker_when_the_file_changes_is_under_the_new_version(tmp_path: Path) -> None:
    shop = Shop(tmp_path, ONE)
    shop.app.handler("healthy")(lambda delivery: None)
    with shop:
        for source in ("orders", "healthy"):
            shop.app.pause(source)
            shop.test.send(source, "before")
        shop.change(TWO)
        for source in ("orders", "healthy"):
            shop.app.resume(source)
        shop.test.advance(10)
        assert shop.dead("two.orders") == [b"before"]
    assert sorted(a.outcome for a in shop.attempts) == ["accepted", "dead_lettered", "redelivered"]
    assert {a.policy_version for a in shop.attempts} == {shop.changes[0].new_versions[0]}


def test_a_copy_that_comes_back_after_the_change_is_decided_by_the_new_version_with_the_failures_it_had(
    tmp_path: Path,
) -> None:
    slow = "1:64000; 3:move(queue:one.$)"  # 64 s are waited out as a copy at the broker
    with Shop(tmp_path, slow) as shop:
        shop.test.send("orders", "copied")
        shop.change("1:64000; 2:move(queue:two.$)")
        shop.test.advance(70)
        (letter,) = shop.test.broker.peek("two.orders")
        assert letter.headers["redeliver_failures"] == "2"
    first, second = shop.attempts
    assert first.mechanism == "schedule"
    (change,) = shop.changes
    assert ([first.policy_version], [second.policy_version]) == (change.old_versions, change.new_versions)


def test_the_version_is_on_every_attempt_and_every_dead_letter(tmp_path: Path) -> None:
    with Shop(tmp_path, ONE) as shop:
        shop.test.send("orders", "1")
        shop.test.advance(10)
        shop.change(TWO)
        shop.test.send("orders", "2")
        shop.test.advance(10)
        (first,), (second,) = (shop.test.broker.peek(queue) for queue in ("one.orders", "two.orders"))
    (change,) = shop.changes
    assert (change.outcome, change.file, change.sources) == ("applied", str(shop.file), ["queue:orders"])
    (old,), (new,) = change.old_versions, change.new_versions or []
    assert old != new
    assert [first.headers["redeliver_policy_version"], second.headers["redeliver_policy_version"]] == [old, new]
    assert [first.headers["redeliver_policy"], second.headers["redeliver_policy"]] == [ONE, TWO]
    assert [(a.policy_version, a.policy) for a in shop.attempts] == [(old, ONE)] * 2 + [(new, TWO)] * 2


def test_a_message_that_is_handled_at_once_is_recorded_with_the_version_that_holds(tmp_path: Path) -> None:
    shop = Shop(tmp_path, ONE)
    shop.app.handler("healthy")(lambda delivery: None)
    with shop:
        shop.test.send("healthy", "1")
        shop.change(TWO)
        shop.test.send("healthy", "2")
    (change,) = shop.changes
    assert sorted(change.sources) == ["queue:healthy", "queue:orders"]
    assert [a.outcome for a in shop.attempts] == ["accepted", "accepted"]
    assert [a.policy for a in shop.attempts] == [ONE, TWO]


def test_it_is_logged_once_that_a_new_version_holds(tmp_path: Path, log: Log) -> None:
    with Shop(tmp_path, ONE) as shop:
        shop.change(TWO)
        shop.test.advance(60)
    (change,) = shop.changes
    (line,) = said(log, "INFO")
    assert line.startswith(str(shop.file))
    assert f"queue:orders {change.old_versions[0]} -> {(change.new_versions or [''])[0]}" in line


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_change_is_taken_in_every_language(spelling: str, tmp_path: Path) -> None:
    with Shop(tmp_path, SPELLINGS[spelling](Rule("orders", 1000, 3))) as shop:
        shop.change(SPELLINGS[spelling](Rule("orders", 2000, 2)))
        shop.test.send("orders", "failing")
        shop.test.advance(100)
    assert [a.delay_us for a in shop.attempts] == [2_000_000, None]


def test_delays_may_become_longer_than_those_of_the_start(tmp_path: Path, log: Log) -> None:
    with Shop(tmp_path, "1:100; 2:move(queue:one.$)") as shop:
        shop.change("1:600000; 2:move(queue:two.$)")
        shop.test.send("orders", "failing")
        shop.test.advance(599)
        assert shop.runs == ["failing"]
        shop.test.advance(2)
        assert shop.runs == ["failing", "failing"]
        assert shop.dead("two.orders") == [b"failing"]
    assert errors(log) == []


class Older:
    """Is an adapter from before `prolong`, with a ladder that only a start makes."""

    def __init__(self, adapter: MemoryAdapter) -> None:
        self._adapter = adapter

    def __getattr__(self, name: str) -> Any:
        if name == "prolong":
            raise AttributeError(name)
        return getattr(self._adapter, name)


def test_an_adapter_that_cannot_make_its_ladder_longer_has_longer_delays_refused_until_a_restart(
    tmp_path: Path, log: Log
) -> None:
    (file := tmp_path / "policy").write_text("1:8000; 2:move(queue:one.$)", "utf-8")
    app, clock = App("memory://", policy=file), ManualClock()
    app.handler("orders")(lambda delivery: None)
    broker = MemoryBroker("rabbitmq", clock=clock, makes_queues=True)
    app._start(Older(MemoryAdapter(broker)), clock, drive=clock.run_until_idle)
    for longest in (15_000, 16_000):  # the next rung is that of 16 s
        assert errors(log) == []
        file.write_text(f"1:{longest}; 2:move(queue:one.$)", "utf-8")
        clock.advance(2 * NOTICED)
    app.stop(0.0)
    (line,) = errors(log)
    assert "delays up to 16 s need helper queues that only a start makes" in line
    assert line.endswith("Restart the app, or keep the delays within 8 s [reload-needs-restart]")


def test_a_file_that_a_handler_names_is_watched_and_one_under_a_policy_of_the_url_is_not(tmp_path: Path) -> None:
    (file := tmp_path / "policy").write_text(ONE, "utf-8")
    for url, queue in (("memory://", "two.orders"), (f"memory://?JMSJCA.redeliveryhandling={ONE}", "one.orders")):
        file.write_text(ONE, "utf-8")
        app = App(url)

        @app.handler("orders", policy=file)
        def handler(delivery: Delivery) -> None:
            raise ValueError("no")

        with TestApp(app) as test:
            test.advance(NOTICED)
            file.write_text(TWO, "utf-8")
            test.advance(NOTICED)
            test.send("orders", "failing")
            test.advance(10)
            assert [m.body for m in test.dead_letters("orders")] == [b"failing"]
            assert [m.body for m in test.broker.peek(queue)] == [b"failing"]


# -- what is refused -------------------------------------------------------------------------------------


def test_a_wrong_version_is_refused_with_one_line_and_one_record_and_a_right_one_is_taken_later(
    tmp_path: Path, log: Log
) -> None:
    with Shop(tmp_path, ONE) as shop:
        shop.change(WRONG)
        shop.test.advance(60)
        shop.write(WRONG)  # again, and as wrong
        shop.test.advance(60)
        shop.test.send("orders", "1")
        shop.test.advance(10)
        assert shop.dead("one.orders") == [b"1"]
        shop.change(TWO)
        shop.test.send("orders", "2")
        shop.test.advance(10)
        assert shop.dead("two.orders") == [b"2"]
    (line,) = errors(log)
    assert f"{shop.file}: E102 in element 1 of 2" in line
    refused, applied = shop.changes
    assert (refused.outcome, applied.outcome) == ("refused", "applied")
    assert refused.new_versions is None
    assert refused.old_versions == applied.old_versions
    assert refused.error is not None
    assert "'1:soon'" in refused.error
    assert line.endswith(refused.error)


def test_a_version_is_refused_whole_when_one_of_its_policies_cannot_be_had_here(tmp_path: Path, log: Log) -> None:
    right = native(Rule("orders", 1000, 2), Rule("invoices", 1000, 2))
    wrong = native(Rule("orders", 1000, 5), Rule("invoices", 60_000, 2))  # 60 s cannot be held
    with Shop(tmp_path, right, "orders", "invoices", delay="hold") as shop:
        shop.change(wrong)
        shop.test.send("orders", "1")
        shop.test.advance(10)
        assert shop.runs == ["1", "1"]
    (line,) = errors(log)
    assert f"{shop.file}: queue:invoices" in line
    assert "60 s" in line
    (refused,) = shop.changes
    assert (refused.outcome, refused.sources) == ("refused", ["queue:orders", "queue:invoices"])


def test_all_that_cannot_be_had_is_reported_at_once(tmp_path: Path, log: Log) -> None:
    right = native(Rule("orders", 1000, 2), Rule("invoices", 1000, 2))
    wrong = native(Rule("orders", 60_000, 2), Rule("invoices", 70_000, 2))
    with Shop(tmp_path, right, "orders", "invoices", delay="hold") as shop:
        shop.change(wrong)
    (line,) = errors(log)
    assert "queue:orders" in line
    assert "queue:invoices" in line


def test_dead_letters_that_would_come_back_under_the_same_policy_are_refused(tmp_path: Path, log: Log) -> None:
    to_itself = "1:1000; 2:move(queue:orders)"
    for text, why in ((to_itself, "where they come from"), (TWO, "consumed under the same policy")):
        log.clear()
        with Shop(tmp_path, ONE, "orders", "two.orders") as shop:
            shop.change(text)
            shop.test.send("orders", "1")
            shop.test.advance(10)
            assert shop.dead("one.orders") == [b"1"]
        (line,) = errors(log)
        assert why in line


def test_a_dead_letter_queue_that_is_not_to_be_had_is_refused_until_the_file_is_touched_again(
    tmp_path: Path, log: Log
) -> None:
    faults = Faults()
    with Shop(tmp_path, ONE, faults=faults) as shop:
        faults.missing("two.orders")
        shop.change(TWO)
        shop.test.advance(60)
        faults.clear()
        shop.test.advance(60)
        assert len(errors(log)) == 1
        assert "queue:two.orders cannot be used" in errors(log)[0]
        os.utime(shop.file)
        shop.test.advance(NOTICED)
        shop.test.send("orders", "1")
        shop.test.advance(10)
        assert shop.dead("two.orders") == [b"1"]
    assert [c.outcome for c in shop.changes] == ["refused", "applied"]


def test_while_the_broker_is_away_a_new_version_waits_for_it(tmp_path: Path, log: Log) -> None:
    with Shop(tmp_path, ONE) as shop:
        shop.test.broker.kill()
        shop.change(TWO)
        shop.test.advance(30)
        shop.test.broker.restart()
        shop.test.advance(NOTICED)
        shop.test.send("orders", "1")
        shop.test.advance(10)
        assert shop.dead("two.orders") == [b"1"]
    assert errors(log) == []
    assert [c.outcome for c in shop.changes] == ["applied"]


def test_of_two_versions_while_the_broker_is_away_the_later_holds(tmp_path: Path) -> None:
    with Shop(tmp_path, ONE) as shop:
        shop.test.broker.kill()
        shop.change(TWO)
        shop.change("1:1000; 2:move(queue:three.$)")
        shop.test.broker.restart()
        shop.test.advance(NOTICED)
        shop.test.send("orders", "1")
        shop.test.advance(10)
        assert shop.dead("three.orders") == [b"1"]
        assert shop.test.broker.queue(shop.app.dead_letter_targets("orders")[0]) is not None
    assert [c.outcome for c in shop.changes] == ["applied"]


def test_an_empty_file_is_refused_since_a_full_disk_leaves_one_behind(tmp_path: Path, log: Log) -> None:
    with Shop(tmp_path, ONE) as shop:
        shop.change("\n")
        shop.test.send("orders", "1")
        shop.test.advance(10)
        assert shop.dead("one.orders") == [b"1"]
    (line,) = errors(log)
    assert line.endswith(f"{shop.file}: it is empty. Write a policy, such as dead_after = 3 [policy-missing]")


def test_a_fault_in_a_reader_refuses_the_version_and_the_next_is_read(
    tmp_path: Path, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    def faulty(text: str, strict: bool) -> PolicyMap:
        raise RecursionError("too deep")

    with Shop(tmp_path, ONE) as shop:
        monkeypatch.setitem(READERS, "native", faulty)
        shop.change("dead_after = 3")
        monkeypatch.undo()
        shop.change(TWO)
    assert [c.outcome for c in shop.changes] == ["refused", "applied"]
    (line,) = errors(log)
    assert "RecursionError" in line


def test_what_cannot_be_read_is_refused_and_taken_once_it_can(tmp_path: Path, log: Log) -> None:
    with Shop(tmp_path, ONE) as shop:
        shop.file.unlink()
        shop.file.mkdir()
        shop.test.advance(60)
        (line,) = errors(log)
        assert f"{shop.file}: it is a directory, and no file" in line
        shop.file.rmdir()
        shop.change(TWO)
    refused, applied = shop.changes
    assert (refused.outcome, refused.content, applied.outcome) == ("refused", None, "applied")


def test_a_file_whose_permissions_are_put_right_is_read_again(tmp_path: Path) -> None:
    (path := tmp_path / "policy").write_text(ONE, "utf-8")
    file = PolicyFile(path)
    assert [file.look() for _ in range(3)] == ["same", "changed", "changed"]
    file.noted(file.read())
    assert file.look() == "same"
    path.chmod(0o400)
    assert [file.look() for _ in range(3)] == ["same", "changed", "changed"]
    file.noted(file.read())
    assert file.look() == "same"


def test_a_secret_in_a_refused_file_is_neither_logged_nor_recorded(tmp_path: Path, log: Log) -> None:
    with Shop(tmp_path, ONE) as shop:
        shop.change("tcp://shop:hunter2@broker:61616?JMSJCA.redeliveryhandling=1:tcp://shop:hunter2@broker")
    assert len(errors(log)) == 1
    assert "hunter2" not in log.text
    assert "hunter2" not in repr(shop.changes)


# -- what is a change, and when it is read ---------------------------------------------------------------


def test_what_is_half_written_is_not_read_before_it_looks_the_same_twice(tmp_path: Path, log: Log) -> None:
    with Shop(tmp_path, ONE) as shop:
        for half in (WRONG[:6], WRONG, ""):
            shop.write(half)
            shop.test.advance(1.0)
        shop.change(TWO)
        shop.test.send("orders", "1")
        shop.test.advance(10)
        assert shop.dead("two.orders") == [b"1"]
    assert errors(log) == []


def test_a_file_that_is_replaced_by_a_rename_is_noticed_even_with_the_size_and_time_of_the_old_one(
    tmp_path: Path,
) -> None:
    with Shop(tmp_path, ONE) as shop:
        beside, old = tmp_path / "beside", shop.file.stat()
        beside.write_text(TWO, "utf-8")
        os.utime(beside, ns=(old.st_atime_ns, old.st_mtime_ns))
        assert beside.stat().st_size == old.st_size
        beside.rename(shop.file)
        shop.test.advance(NOTICED)
        shop.test.send("orders", "1")
        shop.test.advance(10)
        assert shop.dead("two.orders") == [b"1"]


def test_a_link_that_leads_elsewhere_is_noticed_as_kubernetes_swaps_its_volumes(tmp_path: Path) -> None:
    for name, text in (("v1", ONE), ("v2", TWO)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "policy").write_text(text, "utf-8")
    (tmp_path / "..data").symlink_to("v1")
    mounted = tmp_path / "mounted"
    mounted.symlink_to("..data/policy")
    app = App("memory://", policy=mounted)

    @app.handler("orders")
    def handler(delivery: Delivery) -> None:
        raise ValueError("no")

    with TestApp(app) as test:
        test.advance(NOTICED)
        (tmp_path / "..tmp").symlink_to("v2")
        (tmp_path / "..tmp").rename(tmp_path / "..data")
        test.advance(NOTICED)
        test.send("orders", "1")
        test.advance(10)
        assert [m.body for m in test.broker.peek("two.orders")] == [b"1"]


def test_what_is_written_between_the_apps_making_and_its_start_is_noticed(tmp_path: Path) -> None:
    shop = Shop(tmp_path, ONE)
    stamp = shop.file.stat()
    shop.write(TWO)
    os.utime(shop.file, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))  # as it is when a clock's step is longer
    with shop:
        shop.test.send("orders", "1")
        shop.test.advance(10)
        assert shop.dead("two.orders") == [b"1"]


def test_a_file_that_vanishes_is_logged_once_and_its_policy_stays_until_the_file_is_back(
    tmp_path: Path, log: Log
) -> None:
    with Shop(tmp_path, ONE) as shop:
        shop.file.unlink()
        shop.test.advance(60)
        shop.test.send("orders", "1")
        shop.test.advance(10)
        assert shop.dead("one.orders") == [b"1"]
        (line,) = said(log, "WARNING")
        assert line.startswith(f"{shop.file}: the policy file is not there any more")
        shop.change(TWO)
        shop.test.send("orders", "2")
        shop.test.advance(10)
        assert shop.dead("two.orders") == [b"2"]
        shop.file.unlink()
        shop.test.advance(60)
        assert len(said(log, "WARNING")) == 2
    assert errors(log) == []


def test_the_same_again_is_no_change(tmp_path: Path, log: Log) -> None:
    with Shop(tmp_path, ONE) as shop:
        log.clear()
        shop.change(ONE)  # the same bytes
        shop.change(f"{ONE}\n")  # other bytes, the same policy
        shop.change(ONE.replace("1:1000", "1:01000"))
        os.utime(shop.file)
        shop.test.advance(60)
        assert [line.getMessage() for line in log.records] == []
    assert shop.changes == []


def test_only_sources_whose_policy_changed_have_a_new_version(tmp_path: Path) -> None:
    with Shop(tmp_path, native(Rule("orders", 1000, 2), Rule("invoices", 1000, 2)), "orders", "invoices") as shop:
        shop.change(native(Rule("orders", 1000, 2), Rule("invoices", 1000, 3), Rule("elsewhere", 1000, 4)))
        shop.change(native(Rule("orders", 1000, 2), Rule("invoices", 1000, 3), Rule("elsewhere", 1000, 5)))
    assert [c.sources for c in shop.changes] == [["queue:invoices"]]


def test_a_file_that_several_handlers_name_is_read_once_and_changes_for_all(tmp_path: Path) -> None:
    (file := tmp_path / "policy").write_text(ONE, "utf-8")
    app = App("memory://", policy=file, journal=tmp_path / "journal")
    app.handler("orders")(lambda delivery: None)
    app.handler("invoices", policy=file)(lambda delivery: None)
    app.handler("other", policy=TWO)(lambda delivery: None)
    with TestApp(app) as test:
        test.advance(NOTICED)
        file.write_text(TWO, "utf-8")
        test.advance(NOTICED)
    (change,) = read_policy_changes(tmp_path / "journal")
    assert sorted(change.sources) == ["queue:invoices", "queue:orders"]


def test_without_a_policy_file_nothing_is_looked_at(tmp_path: Path) -> None:
    app = App("memory://", policy=ONE)
    app.handler("orders")(lambda delivery: None)
    with TestApp(app) as test:
        assert test.clock._agenda.next_instant() is None


# -- with threads ----------------------------------------------------------------------------------------


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy_reload, "LOOK_EVERY", 0.02)


def on_threads(name: str, file: Path, journal: Path) -> tuple[App, MemoryBroker]:
    broker = MemoryBroker("rabbitmq", makes_queues=True)
    register_broker(name, broker)
    app = App(f"memory://{name}", policy=file, journal=journal)

    @app.handler("orders")
    def handler(delivery: Delivery) -> None:
        raise ValueError("no")

    return app, broker


@pytest.mark.usefixtures("quick")
def test_an_app_with_threads_takes_a_new_version(tmp_path: Path, log: Log) -> None:
    (file := tmp_path / "policy").write_text("1:move(queue:one.$)", "utf-8")
    app, broker = on_threads("renewed", file, tmp_path / "journal")
    dead, applied = threading.Semaphore(0), threading.Event()
    app.on_attempt(lambda record: dead.release())

    class Hears(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "the new version holds" in record.getMessage():
                applied.set()

    logging.getLogger("redeliver_mw").addHandler(hears := Hears())
    try:
        with app:
            broker.send("orders", b"1")
            assert dead.acquire(timeout=10)
            file.write_text("1:move(queue:two.$)", "utf-8")
            assert applied.wait(10)
            broker.send("orders", b"2")
            assert dead.acquire(timeout=10)
    finally:
        logging.getLogger("redeliver_mw").removeHandler(hears)
    assert [m.body for m in broker.peek("one.orders")] == [b"1"]
    assert [m.body for m in broker.peek("two.orders")] == [b"2"]
    assert len(list(read_policy_changes(tmp_path / "journal"))) == 1


@pytest.mark.usefixtures("quick")
def test_a_stop_while_a_file_is_being_read_waits_for_nothing_and_nothing_comes_of_it(
    tmp_path: Path, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    (file := tmp_path / "policy").write_text("1:move(queue:one.$)", "utf-8")
    app, broker = on_threads("stopped", file, tmp_path / "journal")

    begun, go_on, read = threading.Event(), threading.Event(), READERS["jmsjca"]

    def slow(text: str, strict: bool) -> PolicyMap:
        begun.set()
        assert go_on.wait(20)
        return read(text, strict)

    def readers() -> list[threading.Thread]:
        return [thread for thread in threading.enumerate() if thread.name == "redeliver-policy-file"]

    with app:
        monkeypatch.setitem(READERS, "jmsjca", slow)
        file.write_text("1:move(queue:two.$)", "utf-8")
        assert begun.wait(10)
        (reader,) = readers()
        broker.send("orders", b"1")  # and nothing else waits for it
        report = app.stop(5.0)
        assert report.clean
        assert report.seconds < 4.0
    go_on.set()
    reader.join(10)
    assert not reader.is_alive()
    assert list(read_policy_changes(tmp_path / "journal")) == []
    assert errors(log) == []
