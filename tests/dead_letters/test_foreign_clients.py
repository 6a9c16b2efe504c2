# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Checks that clients whose dead letters are kept as files still make the same. This needs `make .frameworks/venv`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from redeliver_mw.adapter.registry import adapter_for
from redeliver_mw.dead_letters import DeadLetterInfo, Replay, letter_of
from redeliver_mw.message import Delivery, Destination
from redeliver_mw.session import connect
from tests.brokers import Broker
from tests.brokers.skips import not_to_be_had
from tests.dead_letters.foreign.files import letter
from tests.dead_letters.foreign.record import CLIENTS, SOURCE, dead_letter, python, run, taken
from tests.dead_letters.test_packed import capabilities


def interpreter() -> Path:
    found = python()
    if found is None:
        not_to_be_had("the frameworks are not here. Run `make .frameworks/venv`")
    return found


@pytest.mark.parametrize("name", CLIENTS)
def test_a_client_still_makes_the_letter_that_is_kept(rabbitmq43: Broker, name: str) -> None:
    with dead_letter(rabbitmq43.url, name, interpreter()) as client:
        made, kept = taken(rabbitmq43.url, client), letter(name).delivery
    assert shape(made.headers) == shape(kept.headers)
    assert shape(body(made)) == shape(body(kept))
    assert made.properties.content_type == kept.properties.content_type
    assert told(letter_of(made, capabilities("pika"))) == told(letter_of(kept, capabilities("pika")))


@pytest.mark.parametrize("name", [name for name, client in CLIENTS.items() if client.handles])
def test_a_client_handles_the_letter_that_was_sent_back(rabbitmq43: Broker, name: str) -> None:
    with dead_letter(rabbitmq43.url, name, interpreter()) as client:
        report = Replay(adapter_for(rabbitmq43.url), Destination(client.dead)).run()
        assert [outcome.fate for outcome in report.outcomes] == ["replayed"]
        assert client.handles in run(interpreter(), client, rabbitmq43.url, "handle")
        with connect(rabbitmq43.url) as session:
            assert (session.depth(SOURCE), session.depth(client.dead)) == (0, 0)


def body(delivery: Delivery) -> Any:
    return json.loads(delivery.body)


def shape(value: Any) -> Any:
    """Return the value with the types of its parts in place of the parts."""
    if isinstance(value, dict):
        return {name: shape(inner) for name, inner in value.items()}
    return [shape(inner) for inner in value] if isinstance(value, list) else type(value).__name__


def told(found: DeadLetterInfo) -> tuple[Any, ...]:
    """Return what is read of a letter, as far as it is the same at each run."""
    return (
        found.framework,
        found.task,
        found.failures,
        found.source,
        found.evidence,
        found.reason,
        found.error_type,
        found.error_message,
        found.fingerprint,
    )
