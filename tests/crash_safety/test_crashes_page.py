# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""The App of the page about crashes survives its bomb, and the dead letter has the headers that the page shows."""

from __future__ import annotations

import shlex
import time
from pathlib import Path

import pytest

from redeliver_mw import connect
from redeliver_mw.errors import DestinationMissing
from redeliver_mw.session import Session
from tests.brokers import Broker
from tests.cli.running import Running
from tests.pages import FENCE, files_of, own_name

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "crashes.md").read_text("utf-8")


@pytest.mark.broker
def test_the_page_about_crashes_shows_what_becomes_of_the_lamps_and_of_the_bomb(
    rabbitmq43: Broker, tmp_path: Path
) -> None:
    command, headers = (block["text"] for block in FENCE.finditer(PAGE) if block["info"] == "text")
    queue = own_name("orders")
    program = files_of(PAGE)["shop.py"]
    assert program.count('"orders"') == 1
    (tmp_path / "shop.py").write_text(program.replace('"orders"', f'"{queue}"'))
    words = shlex.split(command.removeprefix("$ redeliver"))

    with Running(tmp_path, *words, extra={"REDELIVER_URL": rabbitmq43.url}) as running:
        with connect(rabbitmq43.url) as session:
            wait_for(session, queue)
            wait_for(session, f"DLQ.{queue}")
            for number in range(10):
                session.publish(queue, b"bomb" if number == 5 else b"lamp", message_id=str(number))
            letter = session.receive(f"DLQ.{queue}", timeout=90)
            assert letter is not None, running.err
            session.settle(letter)
        running.signal()
        running.wait()
    assert letter.text == "bomb"
    for name, _, value in (line.partition(": ") for line in headers.splitlines()):
        assert letter.headers[name] == value
    assert running.out.count("handled lamp") >= 9
    assert running.err.count("killed by SIGKILL") == 3, running.err


def wait_for(session: Session, queue: str) -> None:
    """Wait until the App has made its queue, for a minute at most."""
    end = time.monotonic() + 60
    while True:
        try:
            session.depth(queue)
        except DestinationMissing:
            assert time.monotonic() < end
            time.sleep(0.1)
        else:
            return
