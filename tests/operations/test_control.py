# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests the wishes of operators and the reports of processes in the store: what is kept, refused, and audited."""

from __future__ import annotations

import logging
import os
import threading

import pytest

from redeliver_mw.errors import ConfigError
from redeliver_mw.operations import Store
from redeliver_mw.operations.audit import last_entries
from redeliver_mw.operations.control import (
    KEPT_US,
    SILENT_US,
    ControlWish,
    ProcessReport,
    ProcessState,
    SourceReport,
    app_status,
    control_breaker,
    control_source,
    known_apps,
    last_wishes,
    report_process,
)
from redeliver_mw.operations.operation import now_us

ORDERS = SourceReport("queue:orders", True, breaker="closed", waiting=3)
BILLS = SourceReport("queue:bills", False, "it was paused by the application")


def report(
    store: Store,
    process_id: str = "p1",
    app: str = "shop",
    *,
    sources: tuple[SourceReport, ...] = (ORDERS, BILLS),
    at_us: int | None = None,
    state: ProcessState = "running",
    host: str = "elsewhere",
    pid: int = 1,
) -> None:
    at = now_us() if at_us is None else at_us
    found = ProcessReport(process_id, app, host, pid, "mq:5672", at, at, state, sources)
    with store.writing() as connection:
        report_process(connection, found)


def wishes(store: Store) -> list[tuple[str, ...]]:
    return sorted((one.source, one.subject, one.wish, one.who) for one in last_wishes(store, "shop"))


def test_a_wish_holds_until_another_one_about_the_same_source_takes_its_place(store: Store) -> None:
    report(store)
    done = control_source(store, "shop", "pause", "orders", who="ada@host")
    assert (done.app, done.wish, list(done.sources), done.running) == ("shop", "pause", ["queue:orders"], 1)
    control_breaker(store, "shop", "open", "queue:orders", who="ada@host")
    assert wishes(store) == [
        ("queue:orders", "breaker", "open", "ada@host"),
        ("queue:orders", "consumption", "pause", "ada@host"),
    ]
    control_source(store, "shop", "resume", "orders", who="eve@host")
    assert ("queue:orders", "consumption", "resume", "eve@host") in wishes(store)
    assert len(wishes(store)) == 2
    assert isinstance(last_wishes(store, "shop")[0], ControlWish)
    assert last_wishes(store, "another") == []


def test_without_a_source_all_breakers_are_meant(store: Store) -> None:
    other = SourceReport("queue:mails", True, breaker="open")
    report(store)
    report(store, "p2", sources=(other,))
    assert control_breaker(store, "shop", "open").sources == ["queue:mails", "queue:orders"]
    assert control_breaker(store, "shop", "auto").running == 2


def test_an_unknown_app_or_source_is_refused_with_the_known_ones_and_audited(store: Store) -> None:
    with pytest.raises(ConfigError, match=r"Start the App with App\(operations=URL\)") as refused:
        control_source(store, "shop", "pause", "orders")
    assert refused.value.code == "control-app"
    report(store)
    report(store, "p3", "bakery")
    assert known_apps(store) == ["bakery", "shop"]
    with pytest.raises(ConfigError, match="Name one of bakery, shop, or start") as refused:
        app_status(store, "shopp")
    with pytest.raises(ConfigError, match=r"shop has no source queue:order\. Name one of queue:bills, queue:orders"):
        control_source(store, "shop", "pause", "order", who="ada@host")
    with pytest.raises(ConfigError, match="queue:bills of shop has no breaker") as refused:
        control_breaker(store, "shop", "open", "bills")
    assert (refused.value.code, refused.value.exit_code) == ("control-no-breaker", 2)
    with pytest.raises(ConfigError, match="names no destination"):
        control_source(store, "shop", "pause", "queue:")
    assert wishes(store) == []
    assert [one.outcome for one in last_entries(store)] == ["denied"] * 4
    denied = last_entries(store)[2]
    assert (denied.who, denied.what, denied.filter) == ("ada@host", "control-pause", "app=shop source=order")
    assert denied.why == "shop has no source queue:order"


def test_each_command_is_audited_with_who_and_what(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    report(store)
    with caplog.at_level(logging.INFO, "redeliver_mw.audit"):
        control_source(store, "shop", "pause", "orders", who="ada@host")
        control_breaker(store, "shop", "close", who="ada@host")
    [closed, paused] = last_entries(store)
    assert (paused.what, paused.outcome, paused.filter) == ("control-pause", "success", "app=shop source=orders")
    assert (closed.what, closed.filter) == ("control-breaker-close", "app=shop")
    assert [getattr(line, "event.action") for line in caplog.records] == ["control-pause", "control-breaker-close"]
    assert {getattr(line, "user.name") for line in caplog.records} == {"ada@host"}


def test_a_process_that_reports_no_more_is_silent_after_thirty_seconds(store: Store) -> None:
    at = now_us()
    report(store, at_us=at)
    assert [one.state for one in app_status(store, "shop", at_us=at + SILENT_US)] == ["running"]
    assert [one.state for one in app_status(store, "shop", at_us=at + SILENT_US + 1)] == ["silent"]
    report(store, state="stopped", at_us=at)
    assert [one.state for one in app_status(store, "shop", at_us=at + 2 * SILENT_US)] == ["stopped"]
    assert app_status(store, "shop")[0].sources == [ORDERS, BILLS]


def test_rows_of_processes_that_are_gone_are_deleted_when_another_one_starts(store: Store) -> None:
    at = now_us()
    report(store, "stopped", state="stopped")
    report(store, "long silent", at_us=at - KEPT_US - 1)
    report(store, "silent", at_us=at - SILENT_US - 1)
    report(store, "died", host="here", pid=2**22 + 1)  # above the largest number that Linux gives
    report(store, "lives", host="here", pid=os.getpid())
    report(store, "other", "bakery", state="stopped")
    report(store, "new", host="here", pid=os.getpid())
    assert {one.process_id for one in app_status(store, "shop")} == {"silent", "lives", "new"}
    assert known_apps(store) == ["bakery", "shop"]


def test_operators_who_ask_at_the_same_time_do_not_hinder_each_other(store: Store) -> None:
    report(store)
    failed: list[BaseException] = []

    def ask(n: int) -> None:
        try:
            control_source(store, "shop", "pause" if n % 2 else "resume", "orders", who=f"ada{n}@host")
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert failed == []
    assert len(wishes(store)) == 1
    assert len(last_entries(store)) == 8
