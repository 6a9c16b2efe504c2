# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""What a user gets wrong, through `redeliver run`: one message, the place, the cure, the right exit code."""

from __future__ import annotations

import re
import socket
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.brokers import Broker
from tests.cli.running import redeliver

# As where pika was never installed.
WITHOUT_PIKA = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "pika":
            raise ModuleNotFoundError("No module named 'pika'", name="pika")
sys.meta_path.insert(0, Absent())
"""


def refused(folder: Path, source: str, code: int, *parts: str) -> str:
    """Run `source` as shop:app; it must end with `code` and one message that has all `parts` in it."""
    (folder / "shop.py").write_text(f"from redeliver_mw import *\n{source}")
    done = redeliver(folder, "run", "shop:app")
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1, done.stderr
    assert "Traceback" not in done.stderr
    assert "secret" not in done.stderr
    for part in parts:
        assert part in done.stderr
    return done.stderr


def app(url: str, handler: str = "'orders'", options: str = "") -> str:
    return f"app = App({url!r}, {options})\n@app.handler({handler})\ndef on_order(delivery): ...\n"


@pytest.fixture
def nobody() -> Iterator[int]:
    """A port where nobody listens, and nobody can begin to."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


def test_an_unknown_scheme(tmp_path: Path) -> None:
    said = refused(tmp_path, app("kafka://me:secret@h/"), 2, "kafka://me@h/: scheme 'kafka' is unknown", "Known are")
    assert "rabbitmq+pika" in said


def test_a_broker_that_is_not_built_yet(tmp_path: Path) -> None:
    refused(
        tmp_path, app("rabbitmq+proton://h"), 2, "rabbitmq+proton://h: rabbitmq+proton is not built yet", "Built are"
    )


def test_no_url_at_all(tmp_path: Path) -> None:
    source = "app = App()\n"
    refused(tmp_path, source, 2, "shop.py:2: no broker URL was given", "REDELIVER_URL")


def test_text_that_is_no_url(tmp_path: Path) -> None:
    refused(tmp_path, app("localhost:5672"), 2, "shop.py:2: ", "is no broker URL", "Write one like rabbitmq://")


def test_an_unknown_option_of_the_url(tmp_path: Path) -> None:
    refused(tmp_path, app("rabbitmq://h/?hartbeat=3"), 2, "rabbitmq://h/: ", "'hartbeat' is unknown", "heartbeat")


def test_an_unknown_option_of_the_app(tmp_path: Path) -> None:
    refused(tmp_path, app("memory://", options="prefech=3"), 2, "shop.py:2: ", "prefech")


def test_a_missing_extra(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(WITHOUT_PIKA)
    refused(
        tmp_path, app("rabbitmq://me:secret@h/"), 2, "rabbitmq://me@h/: the driver 'pika' is not installed",
        "pip install 'redeliver-mw[pika]'",
    )  # fmt: skip


def test_an_absent_broker(tmp_path: Path, nobody: int) -> None:
    url = f"rabbitmq://me:secret@127.0.0.1:{nobody}/"
    refused(tmp_path, app(url), 1, f"rabbitmq://me@127.0.0.1:{nobody}/: no broker answers", "Start it, or check")


def test_a_host_list_without_one_that_answers(tmp_path: Path, nobody: int) -> None:
    url = f"rabbitmq://127.0.0.1:{nobody},127.0.0.1:{nobody}/"
    refused(tmp_path, app(url), 1, f"{url}: no broker answers")


@pytest.mark.broker
def test_a_wrong_password(tmp_path: Path, rabbitmq310: Broker) -> None:
    place = f"{rabbitmq310.host}:{rabbitmq310.port}"
    url = f"rabbitmq://{rabbitmq310.user}:secret@{place}/"
    refused(tmp_path, app(url), 1, f"{place}/: the broker refuses this user or password", "Check both")


@pytest.mark.broker
def test_a_missing_virtual_host(tmp_path: Path, rabbitmq310: Broker) -> None:
    url = f"{rabbitmq310.url.rstrip('/')}/nowhere"
    refused(tmp_path, app(url), 1, "virtual host 'nowhere'", "Check the URL's path")


@pytest.mark.broker
def test_a_missing_queue_that_is_not_created_on_rabbitmq(tmp_path: Path, rabbitmq310: Broker) -> None:
    queue = f"absent-{uuid.uuid4().hex[:8]}"
    place = f"{rabbitmq310.host}:{rabbitmq310.port}"
    refused(tmp_path, app(rabbitmq310.url, repr(queue)), 1, place, f"queue {queue!r} is not there", "declare='all'")


@pytest.mark.broker
def test_a_missing_dead_letter_target_on_rabbitmq(tmp_path: Path, rabbitmq310: Broker) -> None:
    queue = f"absent-{uuid.uuid4().hex[:8]}"
    source = app(rabbitmq310.url, repr(queue), "declare='none', policy='3:50; 5:move(queue:dead.$)'")
    refused(tmp_path, source, 1, f"dead-letter target queue:dead.{queue} cannot be used", "Declare it, or name")


def test_a_missing_queue_that_is_not_created(tmp_path: Path) -> None:
    source = app("memory://", options="declare='none', policy=RedeliveryPolicy(3, 1.0, dead_letter=None)")
    refused(tmp_path, source, 1, "memory:default/1: no queue orders", "Declare it")


def test_a_missing_dead_letter_target(tmp_path: Path) -> None:
    source = app("memory://", options="declare='none', policy='3:50; 5:move(queue:dead.$)'")
    refused(
        tmp_path, source, 1, "memory:default/1: the dead-letter target queue:dead.orders cannot be used",
        "Declare it, or name another",
    )  # fmt: skip


@pytest.mark.parametrize("target", ["queue:orders", "same:$", "queue:$"])
def test_a_dead_letter_target_that_is_the_source(tmp_path: Path, target: str) -> None:
    source = app("memory://", options=f"policy='3:50; 5:move({target})', declare='all'")
    refused(tmp_path, source, 2, "queue:orders: its dead letters would go to queue:orders", "another dead_letter")


def test_a_dead_letter_target_that_is_consumed_under_the_same_policy(tmp_path: Path) -> None:
    source = app("memory://", options="policy='3:50; 5:move(queue:dead.$)', declare='all'")
    source += "app.handler('dead.orders')(print)\n"
    refused(tmp_path, source, 2, "queue:dead.orders", "a policy of its own")


def test_a_wrong_policy_of_a_decorator_names_its_line(tmp_path: Path) -> None:
    source = "app = App('memory://')\n@redeliver('3:50; 5:move(queue)')\ndef on_order(delivery): ...\n"
    refused(tmp_path, source, 2, "shop.py:3: ", "E104 in element 2 of 2", "Write queue:NAME")


def test_a_wrong_policy_of_the_app_names_its_line(tmp_path: Path) -> None:
    refused(tmp_path, app("memory://", options="policy='3:fifty'"), 2, "shop.py:2: ", "E102 in element 1 of 1")


def test_a_wrong_policy_in_the_url(tmp_path: Path) -> None:
    url = "memory://?JMSJCA.redeliveryhandling=3:fifty"
    refused(tmp_path, app(url), 2, "shop.py:2: ", "E102")


def test_a_delay_that_this_broker_cannot_do(tmp_path: Path) -> None:
    source = app("memory://", options="declare='none', policy=RedeliveryPolicy(backoff=3600)")
    waits = "queue:orders on memory+rabbitmq: the policy waits up to 3600 s"
    said = refused(tmp_path, source, 2, waits, "Shorten the delays")
    assert re.search(r"held for \d+ s at most", said)


def test_giving_back_where_that_counts_is_refused(tmp_path: Path) -> None:
    source = app("memory://?personality=activemq", options="delay='nack', declare='all'")
    refused(tmp_path, source, 2, "queue:orders on memory+activemq: ", "Use delay='auto'")


def test_parking_without_a_limbo(tmp_path: Path) -> None:
    refused(tmp_path, app("memory://", options="delay='park'"), 2, "shop.py:2: delay='park' needs a limbo", "Use")


@pytest.mark.parametrize("option", ["limbo='sqlite:///x.db'", "crash_safe=True", "breaker=1", "broker_limit=3"])
def test_an_option_that_is_not_built_yet(tmp_path: Path, option: str) -> None:
    name = option.partition("=")[0]
    refused(tmp_path, app("memory://", options=option), 2, f"shop.py:2: {name} is not built yet", "Leave")


def test_an_app_without_a_handler(tmp_path: Path) -> None:
    refused(tmp_path, "app = App('memory://')\n", 2, "no handler is registered", "@app.handler")


def test_two_handlers_for_one_source(tmp_path: Path) -> None:
    source = app("memory://") + "app.handler('orders')(print)\n"
    refused(tmp_path, source, 2, "shop.py:5: queue:orders: two handlers for one source", "Register one")
