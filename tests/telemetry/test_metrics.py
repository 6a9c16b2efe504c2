# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests the metrics: their names and labels, that they equal what was done, and that their labels are bounded."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import update

from redeliver_mw import App, Delivery, RedeliveryPolicy, Reject, RetryAfter
from redeliver_mw.errors import ConfigError, MissingExtra, RedeliverError
from redeliver_mw.flow.breaker import Breaker
from redeliver_mw.journal.records import AttemptRecord
from redeliver_mw.message import Destination
from redeliver_mw.operations import Store
from redeliver_mw.operations.tables import letters
from redeliver_mw.telemetry import families, served
from redeliver_mw.telemetry.bounded_label import LABEL_BYTES, BoundedLabel, label
from redeliver_mw.telemetry.prometheus import PrometheusMetrics, metrics_app
from redeliver_mw.telemetry.samples import HistogramValue, ProcessSamples, from_json, to_json
from redeliver_mw.telemetry.tallies import SOURCES, Histogram, Tallies
from redeliver_mw.testing import TestApp
from tests.brokers._process import free_ports
from tests.dropin.memory_driver import Consumer, Message
from tests.operations.taking import put
from tests.pipeline.letters import letter

# Dashboards and alerts of other people use these: a name or a label is never changed.
GOLDEN = {
    "redeliver_attempts_total": ("counter", "source", "outcome", "error_type"),
    "redeliver_first_attempts_total": ("counter", "source"),
    "redeliver_dead_letters_total": ("counter", "source", "reason"),
    "redeliver_new_fingerprints_total": ("counter", "source"),
    "redeliver_delays_total": ("counter", "source", "mechanism"),
    "redeliver_handler_duration_seconds": ("histogram", "source"),
    "redeliver_copy_confirm_duration_seconds": ("histogram", "source"),
    "redeliver_settle_duration_seconds": ("histogram", "source"),
    "redeliver_last_settle_timestamp_seconds": ("gauge", "source"),
    "redeliver_waiting_messages": ("gauge", "source"),
    "redeliver_held_messages": ("gauge", "source"),
    "redeliver_hold_budget_used_ratio": ("gauge", "source"),
    "redeliver_parked_messages": ("gauge",),
    "redeliver_parked_due_timestamp_seconds": ("gauge",),
    "redeliver_dead_letter_queue_messages": ("gauge", "queue"),
    "redeliver_dead_letter_oldest_timestamp_seconds": ("gauge", "queue"),
    "redeliver_stored_dead_letters": ("gauge", "source"),
    "redeliver_stored_dead_letter_oldest_timestamp_seconds": ("gauge", "source"),
    "redeliver_breaker_state": ("gauge", "source", "state"),
    "redeliver_connection_up": ("gauge", "connection"),
    "redeliver_policy_info": ("gauge", "source", "version"),
}
SOURCE = "queue:orders"
POLICY = RedeliveryPolicy(dead_after=3, backoff=4.0)


def shown(metrics: PrometheusMetrics) -> dict[str, dict[tuple[str, ...], float]]:
    """Return every line of the text, by name and label values. The labels are in the order of their names."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(metrics.text()[0].decode()):
        for sample in family.samples:
            values = tuple(value for _, value in sorted(sample.labels.items()))
            assert values not in found.setdefault(sample.name, {}), f"{sample.name}{values} is there twice"
            found[sample.name][values] = sample.value
    return found


def measured(handle: Any, **options: Any) -> tuple[TestApp, PrometheusMetrics, list[AttemptRecord]]:
    """Return a started App with metrics, its metrics, and the records that its journal would have."""
    metrics, records = PrometheusMetrics(), list[AttemptRecord]()
    faults = options.pop("faults", None)
    app = App("memory://", metrics=metrics, **({"policy": POLICY} | options))
    app.handler("orders")(handle)
    app.on_attempt(records.append)
    return TestApp(app, faults=faults).start(), metrics, records


def by_text(delivery: Delivery) -> None:
    match delivery.text:
        case "fine":
            return
        case "wrong":
            raise Reject("no such product")
        case "away":
            raise RetryAfter(2.0)
        case "late" if delivery.failures:
            return
        case _:
            raise ValueError("no stock")


# -- names ----------------------------------------------------------------------------------------------


def test_names_kinds_and_labels_stay() -> None:
    assert {family.name: (family.kind, *family.labels) for family in families.FAMILIES} == GOLDEN


def test_every_metric_of_the_table_is_shown_with_its_labels(tmp_path: Path) -> None:
    policy = RedeliveryPolicy(dead_after=3, backoff=60.0)
    limbo, store = f"sqlite:///{tmp_path}/limbo.db", f"sqlite:///{tmp_path}/store.db"
    with Store(store) as filled:
        put(filled, letter(b"one", copy_id="one"))
    test, metrics, _ = measured(by_text, breaker=Breaker(), limbo=limbo, operations=store, delay="park", policy=policy)
    with test:
        for text in ("fine", "wrong", "broken"):
            test.send("orders", text)
        test.advance(6.0)
        found = {family.name: family for family in metrics.registry.collect() if family.samples}
        text = metrics.text()[0].decode()
        for family in families.FAMILIES:
            seen = found[family.name.removesuffix("_total")]
            assert seen.type == family.kind
            assert all(set(sample.labels) - {"le"} == set(family.labels) for sample in seen.samples), family.name
            assert f"# TYPE {family.name} {family.kind}\n" in text


# -- values ---------------------------------------------------------------------------------------------


def test_the_values_equal_the_journal_s_counts() -> None:
    test, metrics, records = measured(by_text)
    with test:
        for text in ("fine", "wrong", "away", "late", "broken", "fine", "broken"):
            test.send("orders", text, message_id=None)
        test.advance(60.0)
        found = shown(metrics)
    attempts = Counter((one.error_type or "", one.outcome, SOURCE) for one in records)
    assert {k: v for k, v in found["redeliver_attempts_total"].items() if v} == attempts
    firsts = sum(one.first_attempt_us == one.ts_us - one.handler_us for one in records)
    assert found["redeliver_first_attempts_total"] == {(SOURCE,): firsts} == {(SOURCE,): 7}
    letters = Counter((one.reason, SOURCE) for one in records if one.outcome == "dead_lettered")
    assert {k: v for k, v in found["redeliver_dead_letters_total"].items() if v} == letters
    assert letters == {("rejected", SOURCE): 1, ("exhausted", SOURCE): 3}
    delays = Counter((one.mechanism, SOURCE) for one in records if one.mechanism)
    assert {k: v for k, v in found["redeliver_delays_total"].items() if v} == delays
    prints = {one.error_fingerprint for one in records if one.error_fingerprint}
    assert found["redeliver_new_fingerprints_total"] == {(SOURCE,): len(prints)}
    assert found["redeliver_handler_duration_seconds_count"] == {(SOURCE,): len(records)}
    assert found["redeliver_copy_confirm_duration_seconds_count"] == {(SOURCE,): 4}
    assert found["redeliver_settle_duration_seconds_count"] == {(SOURCE,): 5}  # all but those that were fine at once


def test_counters_are_there_before_anything_has_happened() -> None:
    """Prometheus sees no increase in a counter that begins with 1."""
    test, metrics, _ = measured(by_text)
    with test:
        found = shown(metrics)
    assert found["redeliver_dead_letters_total"]["exhausted", SOURCE] == 0
    assert found["redeliver_new_fingerprints_total"] == {(SOURCE,): 0}
    assert found["redeliver_first_attempts_total"] == {(SOURCE,): 0}
    assert found["redeliver_attempts_total"] == {("", "accepted", SOURCE): 0}


def test_durations_fall_into_their_buckets() -> None:
    histogram = Histogram()
    for seconds in (0.0, 0.005, 0.0051, 10.0, 10.1):
        histogram.observe(seconds)
    assert histogram.value() == HistogramValue((2, 1, *[0] * 11, 1, 1), pytest.approx(20.1101))
    tallies = Tallies()
    tallies._tally(Destination("orders"), 0.0).runs = histogram
    found = shown(PrometheusMetrics(samples=tallies.samples))
    buckets = {le: n for (le, _), n in found["redeliver_handler_duration_seconds_bucket"].items()}
    assert [buckets[le] for le in ("0.005", "0.01", "7.5", "10.0", "+Inf")] == [2, 3, 3, 4, 5]


def test_gauges_show_what_is_held_and_when_a_message_was_settled() -> None:
    test, metrics, _ = measured(by_text, prefetch=10)
    with test:
        begun = shown(metrics)["redeliver_last_settle_timestamp_seconds"][SOURCE,]
        test.send("orders", "late")
        found = shown(metrics)
        assert found["redeliver_held_messages"] == {(SOURCE,): 1}
        assert found["redeliver_hold_budget_used_ratio"] == {(SOURCE,): 0.2}
        assert found["redeliver_waiting_messages"] == {(SOURCE,): 0}
        test.advance(4.0)
        found = shown(metrics)
        assert found["redeliver_held_messages"] == {(SOURCE,): 0}
        assert found["redeliver_last_settle_timestamp_seconds"] == {(SOURCE,): pytest.approx(begun + 4.0)}
        test.app.pause("orders")
        test.send("orders", "fine")
        assert shown(metrics)["redeliver_waiting_messages"] == {(SOURCE,): 1}


def test_the_state_of_the_breaker_is_one_of_three() -> None:
    test, metrics, _ = measured(by_text, breaker=Breaker(min_calls=2, window=2, open_for=10.0))
    with test:
        state = "redeliver_breaker_state"
        assert shown(metrics)[state] == {(SOURCE, "closed"): 1, (SOURCE, "open"): 0, (SOURCE, "half-open"): 0}
        test.send("orders", "broken")
        test.send("orders", "broken")
        assert shown(metrics)[state] == {(SOURCE, "closed"): 0, (SOURCE, "open"): 1, (SOURCE, "half-open"): 0}


def test_a_connection_that_is_down_is_shown_and_so_is_its_return() -> None:
    test, metrics, _ = measured(by_text)
    with test:
        assert set(shown(metrics)["redeliver_connection_up"].values()) == {1}
        test.broker.kill()
        test.advance(5.0)
        found = shown(metrics)
        assert set(found["redeliver_connection_up"].values()) == {0}
        assert "redeliver_dead_letter_queue_messages" not in found  # what cannot be read has no value
        test.broker.restart()
        test.advance(60.0)
        found = shown(metrics)
        assert set(found["redeliver_connection_up"].values()) == {1}
        assert found["redeliver_dead_letter_queue_messages"]


@pytest.mark.parametrize("personality", ["rabbitmq", "activemq"])
def test_depth_and_age_of_dead_letter_queues(personality: str) -> None:
    metrics = PrometheusMetrics()
    app = App("memory://", metrics=metrics, policy=RedeliveryPolicy(dead_after=1))
    mended: list[bool] = []

    @app.handler("orders")
    def handle(delivery: Delivery) -> None:
        if not mended:
            raise ValueError("no stock")

    with TestApp(app, personality=personality) as test:
        (target,) = app.dead_letter_targets("orders")
        queue = (str(target),)
        test.advance(5.0)
        assert shown(metrics)["redeliver_dead_letter_queue_messages"] == {queue: 0}
        assert "redeliver_dead_letter_oldest_timestamp_seconds" not in shown(metrics)
        failed = test.clock.now().wall
        test.send("orders", "broken")
        test.advance(5.0)
        found = shown(metrics)
        assert found["redeliver_dead_letter_queue_messages"] == {queue: 1}
        oldest = found["redeliver_dead_letter_oldest_timestamp_seconds"][queue]
        assert failed - 0.1 <= oldest <= failed + 5.0
        test.advance(100.0)
        test.send("orders", "broken")
        test.advance(5.0)
        found = shown(metrics)
        assert found["redeliver_dead_letter_queue_messages"] == {queue: 2}
        assert found["redeliver_dead_letter_oldest_timestamp_seconds"] == {queue: oldest}
        mended.append(True)
        test.replay("orders")
        test.advance(5.0)
        assert "redeliver_dead_letter_oldest_timestamp_seconds" not in shown(metrics)


def test_parked_messages_and_when_the_first_is_due(tmp_path: Path) -> None:
    test, metrics, _ = measured(by_text, limbo=f"sqlite:///{tmp_path}/limbo.db", delay="park")
    with test:
        test.advance(5.0)
        found = shown(metrics)
        assert found["redeliver_parked_messages"] == {(): 0}
        assert "redeliver_parked_due_timestamp_seconds" not in found
        due = test.clock.now().wall + 4.0
        test.send("orders", "late")
        test.advance(0.5)
        engine: Any = test.app._engine
        engine._watch._look()  # the next look by itself comes after the message is due
        found = shown(metrics)
        assert found["redeliver_parked_messages"] == {(): 1}
        assert found["redeliver_parked_due_timestamp_seconds"] == {(): pytest.approx(due, abs=0.01)}
        test.advance(10.0)
        assert shown(metrics)["redeliver_parked_messages"] == {(): 0}


def test_letters_that_wait_in_the_store_and_the_age_of_the_oldest(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    dates = ("2026-01-02T03:04:05.000000Z", "2026-01-03T03:04:05.000000Z")
    with Store(url) as store:
        others = letter(b"bill", {"redeliver_original_destination": "bills"}, copy_id="bill")
        put(store, others, *(letter(b"x", {"redeliver_last_failed_at": at}, copy_id=at) for at in dates))
        test, metrics, _ = measured(by_text, operations=url)
        with test:
            found = shown(metrics)
            assert found["redeliver_stored_dead_letters"] == {(SOURCE,): 2}
            oldest = found["redeliver_stored_dead_letter_oldest_timestamp_seconds"]
            assert oldest == {(SOURCE,): datetime.fromisoformat(dates[0]).timestamp()}
            with store.writing() as connection:
                connection.execute(update(letters).where(letters.c.source == SOURCE).values(state="discarded"))
            test.advance(6.0)
            found = shown(metrics)
            assert found["redeliver_stored_dead_letters"] == {(SOURCE,): 0}
            assert "redeliver_stored_dead_letter_oldest_timestamp_seconds" not in found
            (tmp_path / "store.db").unlink()
            test.advance(6.0)
            assert "redeliver_stored_dead_letters" not in shown(metrics)  # what cannot be read has no value


# -- labels ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\nb\r\x00c\u2028d", "a b  c d"),
        ('say "no" \\ {x}', 'say "no" \\ {x}'),
        ("x" * 10_000, "x" * (LABEL_BYTES - 3) + "…"),
        ("\ud800", " "),
        ("", ""),
    ],
)
def test_a_label_value_is_one_short_line(text: str, expected: str) -> None:
    assert label(text) == expected
    assert len(label(text).encode()) <= LABEL_BYTES


def test_the_first_twenty_error_types_have_a_label_and_later_ones_are_other() -> None:
    def fails(delivery: Delivery) -> None:
        raise type(f"Error{delivery.text}\n{'x' * 10_000}", (ValueError,), {})

    test, metrics, records = measured(fails, policy=RedeliveryPolicy(dead_after=1))
    with test:
        for n in [*range(25), *range(25)]:
            test.send("orders", str(n))
        attempts = {k: v for k, v in shown(metrics)["redeliver_attempts_total"].items() if v}
    assert len(records) == 50
    assert len(attempts) == 21
    assert attempts["other", "dead_lettered", SOURCE] == 10
    assert sum(attempts.values()) == 50
    assert all("\n" not in labels[0] and len(labels[0].encode()) <= LABEL_BYTES for labels in attempts)


def test_no_message_id_and_no_fingerprint_is_shown() -> None:
    test, metrics, records = measured(by_text)
    with test:
        test.send("orders", "broken", message_id="the-id-of-it")
        test.advance(60.0)
        text = metrics.text()[0].decode()
    assert "the-id-of-it" not in text
    assert records[0].error_fingerprint
    assert records[0].error_fingerprint not in text


def test_sources_beyond_the_bound_share_one_label() -> None:
    tallies = Tallies()
    for n in range(2 * SOURCES):
        with tallies._tally(Destination(f"reply-{n}"), 0.0).lock:
            pass
    sources = set(tallies.samples()[families.FIRST_ATTEMPTS])
    assert len(sources) == SOURCES + 1
    assert ("other",) in sources


def test_sources_whose_labels_are_the_same_are_shown_once() -> None:
    metrics = PrometheusMetrics()
    for n in range(2):
        metrics.tallies._tally(Destination("x" * 10_000 + str(n)), 0.0)
    assert len(shown(metrics)["redeliver_first_attempts_total"]) == 1


def test_a_bounded_label_remembers_no_more_than_it_shows() -> None:
    bounded = BoundedLabel(3)
    assert [bounded.of(f"{n}") for n in (1, 2, 3, 4, 1, 4)] == ["1", "2", "3", "other", "1", "other"]
    for n in range(1000):
        bounded.of(f"1\n{n}")
    assert len(bounded._known) <= 30


# -- where they are shown -------------------------------------------------------------------------------


def fetch(port: int, path: str = "/metrics", accept: str = "") -> tuple[int, str, str]:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers={"Accept": accept} if accept else {})
    try:
        with urllib.request.urlopen(request, timeout=10) as response:
            return response.status, response.headers["Content-Type"], response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers["Content-Type"], error.read().decode()


def test_an_app_serves_its_metrics_from_its_start_to_its_stop() -> None:
    (port,) = free_ports(1)
    app = App("memory://", metrics=f"127.0.0.1:{port}", declare="all")
    app.handler("orders")(by_text)
    with app:
        status, content_type, text = fetch(port)
        assert (status, content_type.partition(";")[0]) == (200, "text/plain")
        assert 'redeliver_first_attempts_total{source="queue:orders"} 0.0' in text
        assert fetch(port, accept="application/openmetrics-text")[1].startswith("application/openmetrics-text")
        assert fetch(port, "/ready")[0] == 404
    with pytest.raises(urllib.error.URLError):
        fetch(port)


def test_a_taken_port_is_one_error_and_nothing_is_started() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        app = App("memory://", metrics=address, declare="all")
        app.handler("orders")(by_text)
        before = set(threading.enumerate())
        with pytest.raises(
            RedeliverError, match=rf"^metrics {address}: this port is taken\. .*\[port-taken\]$"
        ) as failed:
            app.start()
        assert failed.value.exit_code == 1
        assert not app.is_started
        assert not set(threading.enumerate()) - before
        with pytest.raises(RedeliverError, match="this port is taken"):
            Consumer(lambda message: None, metrics=address)


@pytest.mark.parametrize("given", ["9400", "127.0.0.1:0", ":9400"])
def test_an_address_that_cannot_be_meant_is_refused(given: str) -> None:
    with pytest.raises(ConfigError, match=r"^metrics: .*Write HOST:PORT"):
        App("memory://", metrics=given)


def test_metrics_that_are_none_are_refused() -> None:
    wrong: Any = True
    with pytest.raises(ConfigError, match=r"metrics=True is neither HOST:PORT nor a PrometheusMetrics"):
        App("memory://", metrics=wrong)


def test_a_registry_of_one_s_own_shows_other_metrics_too_and_takes_ours_once() -> None:
    from prometheus_client import Counter as OtherCounter

    registry = CollectorRegistry()
    OtherCounter("shop_orders", "Orders", registry=registry).inc()
    metrics = PrometheusMetrics(registry)
    text = metrics.text()[0].decode()
    assert "shop_orders_total 1.0" in text
    with pytest.raises(ConfigError, match="this registry has the metrics of redeliver-mw already"):
        PrometheusMetrics(registry)


def test_two_apps_may_share_their_metrics() -> None:
    metrics = PrometheusMetrics()
    apps = [App("memory://", metrics=metrics) for _ in range(2)]
    for app, source in zip(apps, ("orders", "bills"), strict=True):
        app.handler(source)(by_text)
    with TestApp(apps[0]) as first, TestApp(apps[1]) as second:
        first.send("orders", "fine")
        second.send("bills", "fine")
        assert shown(metrics)["redeliver_first_attempts_total"] == {("queue:bills",): 1, (SOURCE,): 1}
        assert set(shown(metrics)["redeliver_held_messages"]) == {("queue:bills",), (SOURCE,)}


def test_the_asgi_application_answers_get_and_head() -> None:
    metrics = PrometheusMetrics()
    metrics.tallies._tally(Destination("orders"), 0.0)

    def ask(method: str) -> tuple[int, bytes]:
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        async def receive() -> Any:
            return {"type": "http.request"}

        scope = {"type": "http", "method": method, "path": "/metrics", "headers": [(b"accept", b"text/plain")]}
        asyncio.run(metrics_app(metrics)(scope, receive, send))
        return sent[0]["status"], sent[1]["body"]

    assert ask("GET")[0] == 200
    assert b"redeliver_first_attempts_total" in ask("GET")[1]
    assert ask("HEAD") == (200, b"")
    assert ask("POST")[0] == 405


def test_the_asgi_application_is_mounted_in_starlette() -> None:
    from starlette.applications import Starlette
    from starlette.routing import Mount
    from starlette.testclient import TestClient

    metrics = PrometheusMetrics()
    metrics.tallies._tally(Destination("orders"), 0.0)
    client = TestClient(Starlette(routes=[Mount("/metrics", metrics_app(metrics))]))
    assert 'redeliver_first_attempts_total{source="queue:orders"} 0.0' in client.get("/metrics").text


def test_drop_in_wrappers_with_one_address_share_one_server() -> None:
    (port,) = free_ports(1)
    address = f"127.0.0.1:{port}"

    def callback(message: Message) -> None:
        if message.text == "broken":
            raise ValueError("no stock")

    first, second = (Consumer(callback, metrics=address, policy=POLICY) for _ in range(2))
    first.put("fine", "broken")
    second.put("fine")
    text = fetch(port)[2]
    assert 'redeliver_first_attempts_total{source="queue:orders"} 3.0' in text
    assert 'redeliver_held_messages{source="queue:orders"} 1.0' in text
    assert 'redeliver_connection_up{connection="consume"} 1.0' in text
    assert len([known for known in served._served if known.port == port]) == 1


def test_a_drop_in_wrapper_refuses_a_taken_port_when_it_is_made() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(RedeliverError, match=r"this port is taken\. .*\[port-taken\]$"):
            Consumer(lambda message: None, metrics=address, policy=POLICY)


def test_without_the_extra_the_error_names_it() -> None:
    code = (
        "import sys; sys.modules['prometheus_client'] = None\n"
        "from redeliver_mw import App\n"
        "App('memory://')\n"
        "try:\n    App('memory://', metrics='127.0.0.1:9400')\n"
        "except Exception as error:\n    print(type(error).__name__, error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == (
        f"{MissingExtra.__name__} metrics: prometheus-client is not installed. "
        'Run: pip install "redeliver-mw[prometheus]" [extra-not-installed]\n'
    )


# -- several processes ----------------------------------------------------------------------------------


def counted(handled: int, held: int, error_type: str = "") -> Any:
    return {
        families.ATTEMPTS: {(SOURCE, "accepted", error_type): float(handled)},
        families.HANDLER_DURATION: {(SOURCE,): HistogramValue((handled,) + (0,) * 14, 0.5)},
        families.HELD: {(SOURCE,): float(held)},
        families.CONNECTION_UP: {("consume",): 1.0},
    }


def test_samples_survive_json() -> None:
    given = counted(3, 1)
    assert from_json(to_json(given)) == given


def test_what_a_process_had_counted_before_it_died_stays_in_the_sum() -> None:
    """A sum that becomes smaller is a restart to Prometheus, which would count everything again."""
    processes = ProcessSamples()
    processes.reported(0, counted(10, 2))
    processes.reported(1, counted(5, 1))
    assert processes.merged()[families.ATTEMPTS] == {(SOURCE, "accepted", ""): 15}
    assert processes.merged()[families.HELD] == {(SOURCE,): 3}
    processes.ended(1)
    assert processes.merged()[families.ATTEMPTS] == {(SOURCE, "accepted", ""): 15}
    assert processes.merged()[families.HELD] == {(SOURCE,): 2}
    processes.reported(1, counted(1, 0))
    found = processes.merged()
    assert found[families.ATTEMPTS] == {(SOURCE, "accepted", ""): 16}
    assert found[families.HANDLER_DURATION] == {(SOURCE,): HistogramValue((16,) + (0,) * 14, 1.5)}
    assert found[families.CONNECTION_UP] == {("consume",): 1.0}


def test_the_error_types_of_all_processes_together_are_bounded() -> None:
    processes = ProcessSamples()
    for n in range(30):
        processes.reported(n, counted(1, 0, f"Error{n}"))
    attempts = processes.merged()[families.ATTEMPTS]
    assert len(attempts) == families.ERROR_TYPES + 1
    assert attempts[SOURCE, "accepted", "other"] == 10


def test_runs_in_a_drop_in_wrapper_are_each_measured_once() -> None:
    metrics, left = PrometheusMetrics(), [1]

    def callback(message: Message) -> None:
        if message.text == "late" and left[0]:
            left[0] -= 1
            raise ValueError("no stock")

    consumer = Consumer(callback, metrics=metrics, policy=POLICY)
    consumer.put("fine", "late")
    consumer.clock.advance(4.0)
    found = shown(metrics)
    assert found["redeliver_handler_duration_seconds_count"] == {(SOURCE,): 3}
    assert sum(found["redeliver_attempts_total"].values()) == 3
    assert found["redeliver_first_attempts_total"] == {(SOURCE,): 2}
