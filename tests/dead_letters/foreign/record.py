# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Makes real dead letters with real clients on a real RabbitMQ: `python -m tests.dead_letters.foreign.record URL`.

That command writes the files in `letters/` anew. The clients run in an environment of their own, which
`make .frameworks/venv` makes of `frameworks.txt`; REDELIVER_FRAMEWORKS names another one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pika

from redeliver_mw.message import Delivery
from redeliver_mw.session import connect
from tests.bench.rabbitmq import parameters
from tests.dead_letters.foreign.files import save
from tests.faults.load import until

REPOSITORY = Path(__file__).parents[3]
SOURCE = "shop.orders"
_VERSIONS = (
    "import importlib.metadata as m, json, sys; print(json.dumps({name: m.version(name) for name in sys.argv[1:]}))"
)


@dataclass(frozen=True)
class Client:
    """Describes one program in `clients/`, and what is around it."""

    program: str
    packages: tuple[str, ...]
    dead: str = "shop.dead"  # the queue of its dead letters
    arguments: tuple[str, ...] = ()
    declares: bool = False  # the dead-letter queue itself
    rejects: bool = True  # the message itself
    handles: str = ""  # what it prints when it handles the message


CLIENTS = {
    "celery": Client("celery", ("celery", "kombu"), arguments=("2",), handles="handled 7 EUR"),
    "celery-protocol-1": Client("celery", ("celery", "kombu"), arguments=("1",), handles="handled 7 EUR"),
    "kombu": Client("kombu", ("kombu",)),
    "dramatiq": Client("dramatiq", ("dramatiq", "pika"), dead=f"{SOURCE}.XQ", declares=True, handles="handled 7 EUR"),
    "taskiq": Client("taskiq", ("taskiq", "taskiq-aio-pika"), declares=True, rejects=False, handles="handled 7 EUR"),
    "faststream": Client("faststream", ("faststream", "aio-pika"), handles="handled {'order': 7}"),
    "aio-pika": Client("aio_pika", ("aio-pika",)),
}


def python() -> Path | None:
    """Return the Python of the frameworks' environment, or None if there is none."""
    found = Path(os.environ.get("REDELIVER_FRAMEWORKS") or REPOSITORY / ".frameworks" / "venv") / "bin" / "python"
    return found if found.exists() else None


@contextmanager
def dead_letter(url: str, name: str, interpreter: Path) -> Iterator[Client]:
    """Yield a client that has made one dead letter on the RabbitMQ at this URL.

    The queues of the client are deleted after the block.
    """
    client = CLIENTS[name]
    queues = (SOURCE, client.dead, f"{SOURCE}.DQ")
    connection = pika.BlockingConnection(parameters(url))
    channel = connection.channel()
    try:
        for queue in queues:
            channel.queue_delete(queue)
        if not client.declares:
            channel.queue_declare(client.dead, durable=True)
        run(interpreter, client, url, "fail")
        if not client.rejects:
            _reject(channel)
        with connect(url) as session:
            until(lambda: session.depth(client.dead) > 0, 20, f"nothing comes to {client.dead}")
        yield client
    finally:
        for queue in queues:
            channel.queue_delete(queue)
        channel.exchange_delete(SOURCE)
        connection.close()


def taken(url: str, client: Client) -> Delivery:
    """Return the dead letter, off its queue."""
    with connect(url) as session:
        delivery = session.receive(client.dead, timeout=10)
        assert delivery is not None
        session.settle(delivery)
        return delivery


def run(interpreter: Path, client: Client, url: str, mode: str) -> str:
    """Let a client `fail` to handle a new message, or `handle` the one that is there; return what it printed."""
    program = REPOSITORY / "tests/dead_letters/foreign/clients" / f"{client.program}.py"
    amqp = "amqp" + url[url.index("://") :]
    with TemporaryDirectory(prefix="shop-") as folder:  # the paths in a traceback are not those of the repository
        copy = Path(folder) / "shop_tasks.py"
        copy.write_bytes(program.read_bytes())
        command = [str(interpreter), "-I", str(copy), amqp, SOURCE, client.dead, mode, *client.arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _reject(channel: pika.adapters.blocking_connection.BlockingChannel) -> None:
    method = next(found for found, _, _ in iter(lambda: channel.basic_get(SOURCE), None) if found is not None)
    channel.basic_reject(method.delivery_tag, requeue=False)


def versions(interpreter: Path, client: Client) -> dict[str, str]:
    done = subprocess.run([str(interpreter), "-I", "-c", _VERSIONS, *client.packages], capture_output=True, check=True)
    found: dict[str, str] = json.loads(done.stdout)
    return found


def main() -> None:
    interpreter = python()
    if interpreter is None:
        sys.exit("the frameworks are not here; `make .frameworks/venv` installs them")
    for name in CLIENTS:
        with dead_letter(sys.argv[1], name, interpreter) as client:
            save(name, client.dead, SOURCE, versions(interpreter, client), taken(sys.argv[1], client))
        print(name)


if __name__ == "__main__":
    main()
