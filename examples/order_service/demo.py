# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Runs the order service under load: shows failures that recover and failures that do not, live, then the dead letters.

    python demo.py [--broker memory|rabbitmq|activemq|artemis] [--fast]

The broker is that of REDELIVER_URL if that is set; otherwise docker-compose.yml's if a Docker engine answers; otherwise
one that is installed here. The demo ends what it starts. Exit code 1 if a message is missing at the end, or the broker
is; 2 if REDELIVER_URL is of another kind; 130 after Ctrl-C.
"""

from __future__ import annotations

import argparse
import json
import logging
import secrets
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
for _folder in (REPOSITORY / "adapters", REPOSITORY, HERE):
    sys.path.insert(0, str(_folder))

import main as service
from board import Board, Screen, name_of
from rich.console import Console
from rich.table import Table
from rich.text import Text
from where import KINDS, the_broker

from redeliver_mw import Delivery, connect
from redeliver_mw.errors import RedeliverError

PREFIX = "redeliver-demo."  # never the queues of a real service
PATIENCE = 60.0  # seconds that the last message may take
ROUNDS = 10  # of twelve messages


def round_of(number: int) -> list[tuple[str, bytes]]:
    """Return twelve messages, in the order of sending; some rounds contain more failures than others."""
    busy = 1 + number % 2  # recovers at the second or third attempt
    card = "stolen" if number % 3 == 0 else "good"
    currency = "XAU" if number % 5 == 4 else "EUR"
    broken = b"<order/>" if number % 4 == 2 else _json(takes=0.04)
    return [
        ("orders", _json(takes=0.04)),
        ("orders", _json(busy=busy, takes=0.02)),
        ("orders", _json(takes=0.04)),
        ("orders", broken),
        ("payments", _json(currency="EUR", card=card)),
        ("payments", _json(currency="USD")),
        ("payments", _json(currency=currency)),
        ("payments", _json(currency="EUR", takes=0.05)),
        ("mails", _json(takes=0.05)),
        ("mails", _json(greylisted=1)),
        ("mails", _json(takes=0.03)),
        ("mails", _json(greylisted=number % 2)),
    ]


def _json(**fields: Any) -> bytes:
    return json.dumps({"id": secrets.token_hex(3)} | fields).encode()


def send_all(session: Any, board: Board, pace: float, screen: Screen) -> None:
    """Send a round every second (times `pace`). A message counts as sent when the broker has confirmed it."""
    for number in range(ROUNDS):
        next_round = time.monotonic() + pace
        for queue, body in round_of(number):
            name = f"{board.run}-{len(board.sent) + 1}"
            session.publish(f"{PREFIX}{queue}", body, message_id=name, correlation_id=name)
            board.sent.append(name)
        wait(session, board, screen, until=next_round)


def wait(session: Any, board: Board, screen: Screen, until: float) -> None:
    """Show what happens until the time `until`, or until every sent message has ended."""
    while time.monotonic() < until:
        take_dead_letters(session, board)
        screen.refresh()
        with board.changed:
            board.changed.wait(0.1)
        if board.ended == ROUNDS * 12:
            return


def take_dead_letters(session: Any, board: Board, timeout: float = 0.0) -> None:
    """Take every dead letter out of its queue."""
    for name in service.QUEUES:
        while letter := session.receive(f"dlq.{PREFIX}{name}", timeout=timeout):
            session.settle(letter)
            board.on_dead_letter(letter)


def _place(letter: Delivery) -> tuple[str, int]:
    return str(letter.headers["redeliver_original_destination"]), int(name_of(letter).rpartition("-")[2])


def show_dead_letters(letters: list[Delivery], console: Console) -> None:
    table = Table(title=f"Dead letters: {len(letters)}", title_justify="left")
    for name in ("original destination", "reason", "failures", "error"):
        table.add_column(name, justify="right" if name == "failures" else "left", overflow="fold")
    for letter in sorted(letters, key=_place):
        h = letter.headers
        error = f"{h['redeliver_error_type']}: {h['redeliver_error_message']}"
        table.add_row(
            *(
                Text(str(cell))
                for cell in (h["redeliver_original_destination"], h["redeliver_reason"], h["redeliver_failures"], error)
            )
        )
    console.print(table)


def sum_up(board: Board, console: Console) -> int:
    """Print the sent messages beside those that were found, id by id. Return 1 if the two differ, else 0."""
    sent, handled, dead = set(board.sent), board.handled, [name_of(letter) for letter in board.letters]
    lost, both = sent - handled - set(dead), handled & set(dead)
    twice = len(dead) - len(set(dead))
    console.print(
        f"{len(sent)} sent = {len(handled)} handled + {len(set(dead))} dead letters, {len(lost)} lost",
        highlight=False,
        style="bold red" if lost else "bold green",
    )
    if both or twice:
        console.print(f"and {len(both)} handled as well as dead, {twice} dead letters twice")
    return 1 if lost or both or twice or not handled <= sent else 0


def demo(url: str, pace: float, console: Console) -> int:
    """Run the whole demo against `url`, and return the exit code."""
    board = Board(secrets.token_hex(4), [f"{PREFIX}{name}" for name in service.QUEUES])
    logging.getLogger("redeliver_mw.failures").addHandler(logging.NullHandler())  # the board shows each attempt
    app = service.make_app(url, PREFIX, pace, wrap=board.noting)
    app.on_attempt(board.on_attempt)
    screen = Screen(board, console, ROUNDS * 12)
    with connect(url) as session:
        with app, screen:
            send_all(session, board, pace, screen)
            wait(session, board, screen, until=time.monotonic() + PATIENCE)
            health = app.health()
        take_dead_letters(session, board, timeout=0.5)
        left = sum(session.depth(f"{PREFIX}{name}") for name in service.QUEUES)
    show_dead_letters(board.letters, console)
    for source, state in health["sources"].items():
        if state["why_paused"]:
            console.print(f"{source} is paused: {state['why_paused']}")
    if left:
        console.print(f"{left} messages are still queued")
    return sum_up(board, console)


def main() -> int:
    parser = argparse.ArgumentParser(description="The order service, its failures, and its dead letters.")
    parser.add_argument("--broker", choices=KINDS, default="memory")
    parser.add_argument("--fast", action="store_true", help="half of every delay")
    asked = parser.parse_args()
    console = Console()
    if not console.is_terminal:
        console = Console(width=120, color_system=None)
    from tests.brokers import BrokerFailed, BrokerMissing

    try:
        with the_broker(asked.broker, console) as url:
            return demo(url, 0.5 if asked.fast else 1.0, console)
    except KeyboardInterrupt:
        print("interrupted; the broker has again what was under way", file=sys.stderr)
        return 130
    except (RedeliverError, BrokerMissing, BrokerFailed) as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code if isinstance(error, RedeliverError) else 1


if __name__ == "__main__":
    sys.exit(main())
