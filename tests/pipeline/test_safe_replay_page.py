# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""The commands of the page about a safe replay do, one after the other on RabbitMQ, what the page says."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from redeliver_mw import App, Delivery, RedeliveryPolicy, connect
from redeliver_mw.cli.main import run
from redeliver_mw.session import Session
from tests.brokers import Broker
from tests.pages import FENCE, own_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "safe-replay.md").read_text("utf-8")
LETTERS = 20


def commands() -> list[str]:
    """Return the page's commands, in their order."""
    blocks = (block["text"] for block in FENCE.finditer(PAGE) if block["info"] == "text")
    return [line.removeprefix("$ redeliver ") for text in blocks for line in text.splitlines()]


@contextmanager
def shop(url: str, queue: str, *, repaired: bool) -> Iterator[list[str]]:
    """Run an App that dead-letters each message at its first failure; yield the bodies that it has handled."""
    app = App(url, policy=RedeliveryPolicy(dead_after=1), declare="all", journal="journal", log_failures=False)
    handled: list[str] = []

    @app.handler(queue)
    def on_order(delivery: Delivery) -> None:
        if not repaired:
            raise TimeoutError("the warehouse does not answer")
        handled.append(delivery.text)

    with app:
        yield handled


@pytest.mark.timeout(1200)
def test_the_commands_of_the_page_send_every_letter_back(
    spark: SparkSession,
    rabbitmq43: Broker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    queue = own_name("orders")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BROKER", rabbitmq43.url)
    lines = [line.replace("DLQ.orders", f"DLQ.{queue}") for line in commands()]

    def said(line: str) -> str:
        code = run(shlex.split(line))
        out, err = capsys.readouterr()
        assert code == 0, f"{line}: {out}{err}"
        return out + err

    with connect(rabbitmq43.url) as session:
        with shop(rabbitmq43.url, queue, repaired=False):
            for number in range(LETTERS):
                session.publish(queue, b"lamp", message_id=str(number))
            until(session, f"DLQ.{queue}", LETTERS)

        listing, showing, one, again, rest, *pipeline = lines
        assert said(listing).count("TimeoutError") == LETTERS
        assert "redeliver_reason" in said(showing)
        assert "1 of 1 replayed" in said(one)
        until(session, queue, 1)
        assert said(again).count("TimeoutError") == LETTERS - 1
        assert f"{LETTERS - 1} of {LETTERS - 1} replayed" in said(rest)
        with shop(rabbitmq43.url, queue, repaired=False):
            until(session, f"DLQ.{queue}", LETTERS)

        draining, planning, dry, sending = pipeline
        assert f"{LETTERS} of {LETTERS} letters drained" in said(draining)
        assert f"{LETTERS} letters planned" in said(planning)
        assert "nothing was sent" in said(dry)
        assert session.depth(queue) == 0
        with shop(rabbitmq43.url, queue, repaired=True) as handled:
            told = said(sending)
        assert f"{LETTERS} of {LETTERS} replayed" in told
        assert "canary of 1: passed" in told
        assert len(handled) == LETTERS
        assert session.depth(f"DLQ.{queue}") == 0


def until(session: Session, queue: str, messages: int) -> None:
    """Wait until so many messages are ready in the queue, for a minute at most."""
    end = time.monotonic() + 60
    while session.depth(queue) != messages:
        assert time.monotonic() < end
        time.sleep(0.1)
