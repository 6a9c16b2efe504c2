# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Finds the demo's broker: REDELIVER_URL, otherwise docker-compose.yml, otherwise the local installation."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

from redeliver_mw import connect
from redeliver_mw.errors import BrokerError, ConfigError

KINDS = ("memory", "rabbitmq", "activemq", "artemis")
# From docker-compose.yml: user and password, and the port inside of the container.
LOGIN = {"activemq": "admin:admin", "artemis": "admin:admin", "rabbitmq": "guest:guest"}
PORT = {"activemq": 61613, "artemis": 61616, "rabbitmq": 5672}
PROJECT = "redeliver-demo"  # so that `down` ends only what the demo has started

REPOSITORY = Path(__file__).resolve().parents[2]
ANSWERS = 5.0  # seconds that an engine may take to answer
TALKS = 30.0  # seconds that compose may take to print something
FETCHES = 900.0  # seconds that `up` may take, because it fetches the image
COMES_UP = 90.0  # seconds from then until the broker accepts a connection: older composes do not wait for it


@contextlib.contextmanager
def the_broker(kind: str, console: Console) -> Iterator[str]:
    """Yield the URL of a running broker, and print which one it is. A broker that was started here ends with the block.

    Raises ConfigError for a REDELIVER_URL of another kind, and BrokerMissing and BrokerFailed of `tests.brokers`.
    """
    with contextlib.ExitStack() as ending:
        if kind == "memory":
            console.print("The broker is embedded: memory://")
            url = "memory://"
        elif given := os.environ.get("REDELIVER_URL"):
            url = of_this_kind(given, kind)
            console.print("The broker is the one that REDELIVER_URL names")
        else:
            url = composed(kind, console, ending) or installed(kind, console, ending)
        yield url


def of_this_kind(url: str, kind: str) -> str:
    """Return `url`. Raises ConfigError if it belongs to a broker of another kind."""
    scheme = url.partition("://")[0]
    if scheme.partition("+")[0] != kind:
        raise ConfigError(f"REDELIVER_URL begins with {scheme!r}, and {kind} is asked for", cure="Change or unset it")
    return url


def installed(kind: str, console: Console, ending: contextlib.ExitStack) -> str:
    """Start the local installation, after fetching it if necessary, and return its URL."""
    from tests.brokers import broker

    console.print(f"Starting the local installation of {kind}, which ends with the demo")
    own = ending.enter_context(broker(kind))
    console.print(own.describe(), highlight=False)
    return own.url


# --- docker-compose.yml


def composed(kind: str, console: Console, ending: contextlib.ExitStack) -> str | None:
    """Start the broker of docker-compose.yml and return its URL, or None, with the reason printed, if Docker cannot."""
    command = compose_command()
    if command is None:
        console.print("No Docker engine with compose answers")
        return None
    name = " ".join(command)
    if (url := published([*command, "--profile", kind], kind)) and lets_us_in(url, 0.0):
        console.print(f"{name} has {kind} up, and keeps it")
        return url
    console.print(f"{name} brings {kind} up (the first time it fetches the image), and down in the end")
    compose = [*command, "--project-name", PROJECT, "--profile", kind]
    with contextlib.ExitStack() as undo:
        undo.callback(run, [*compose, "down", "--volumes"], FETCHES)  # also removes what a failed `up` has left
        wait = ["--wait"] if waits(command) else []
        up = run([*compose, "up", "-d", *wait, kind], FETCHES)
        url = published(compose, kind) if up.returncode == 0 else None
        if url and lets_us_in(url, COMES_UP):
            ending.push(undo.pop_all())
            return url
    output = (up.stderr.strip() or up.stdout.strip()).splitlines() if up.returncode else []
    why = output[-1] if output else "the broker does not let us in"
    console.print(f"{name} could not: {why[:200]}", markup=False, highlight=False, soft_wrap=True)
    return None


def compose_command() -> list[str] | None:
    """Return Docker's own compose, or the older program; None without either, or without a running engine."""
    if not run(["docker", "info", "--format", "{{.ServerVersion}}"], ANSWERS).stdout.strip():
        return None
    known = (["docker", "compose"], ["docker-compose"])
    return next((command for command in known if run([*command, "version"]).returncode == 0), None)


def waits(command: list[str]) -> bool:
    """Return whether `up` supports --wait, which came with version 2."""
    return not run([*command, "version", "--short"]).stdout.lstrip("v").startswith("1.")


def published(compose: list[str], kind: str) -> str | None:
    """Return the URL of the running container; None if there is none."""
    answer = run([*compose, "port", kind, str(PORT[kind])])
    host, _, port = answer.stdout.strip().rpartition(":")
    path = "/" if kind == "rabbitmq" else ""
    return f"{kind}://{LOGIN[kind]}@{host}:{port}{path}" if answer.returncode == 0 and host else None


def lets_us_in(url: str, patience: float) -> bool:
    """Return whether the broker accepts a connection: try once, and again until `patience` seconds are over."""
    end = time.monotonic() + patience
    while True:
        try:
            connect(url).close()
        except BrokerError:
            if time.monotonic() >= end:
                return False
            time.sleep(0.5)
        else:
            return True


def run(argv: list[str], timeout: float = TALKS) -> subprocess.CompletedProcess[str]:
    """Run a program and return its result.

    A program that is missing or takes too long counts as failed, with the reason.
    """
    try:
        return subprocess.run(argv, check=False, cwd=REPOSITORY, capture_output=True, text=True, timeout=timeout)
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(argv, 1, "", str(error))
