# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Runs ActiveMQ's own classes from its own jars: Java programs, compiled against what the brokers' cache holds."""

from __future__ import annotations

import shutil
import subprocess
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

from tests.brokers import _install, _maven, activemq
from tests.differential.failing import Life

_SEED = "20260101"  # ActiveMQ's dice fall the same way every time


@dataclass(frozen=True)
class Settings:
    """Holds a RedeliveryPolicy of ActiveMQ, with its delays in milliseconds."""

    initial: int = 1000
    delay: int = 1000
    exponential: bool = False
    multiplier: float = 5.0
    maximum: int = -1
    collision: bool = False
    percent: int = 15

    def url(self) -> str:
        """Return the same policy on a connection URL, without a limit."""
        options = {
            "maximumRedeliveries": "-1",
            "initialRedeliveryDelay": self.initial,
            "redeliveryDelay": self.delay,
            "useExponentialBackOff": str(self.exponential).lower(),
            "backOffMultiplier": repr(self.multiplier),
            "maximumRedeliveryDelay": self.maximum,
            "useCollisionAvoidance": str(self.collision).lower(),
            "collisionAvoidancePercent": self.percent,
        }
        return "tcp://host:61616?" + urlencode(
            {f"jms.redeliveryPolicy.{name}": value for name, value in options.items()}
        )

    def line(self, failures: int, times: int) -> str:
        words = (self.initial, self.delay, self.exponential, repr(self.multiplier), self.maximum, self.collision)
        return " ".join(str(word) for word in (*words, self.percent, failures, times))


class ActiveMQ:
    """Runs one version's RedeliveryPolicy. Raises BrokerMissing if jars or compiler cannot be had."""

    def __init__(self, version: str, folder: Path) -> None:
        self._program = compiled("Delays", version, folder)

    def chains(self, asked: Iterable[tuple[Settings, int, int]]) -> list[list[int]]:
        """Return the delays of each setting, for so many failures and so many times, in milliseconds."""
        lines = "".join(f"{settings.line(failures, times)}\n" for settings, failures, times in asked)
        said = subprocess.run([*self._program, _SEED], check=True, input=lines, capture_output=True, text=True).stdout
        return [[int(word) for word in line.split()] for line in said.splitlines()]


class Failing:
    """Runs one version's JMS client, which consumes, as a context manager.

    `queues` has the broker's URL with the policy, by the name of the queue. What the client tells of each message's
    life stands in `lives`, by number; the thread that reads it is the only writer.
    """

    def __init__(
        self, program: list[str], user: str, password: str, queues: Mapping[str, str], lives: Mapping[str, Life]
    ) -> None:
        given = [word for queue, url in queues.items() for word in (url, queue)]
        self._process = subprocess.Popen(
            [*program, user, password, *given], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self._lives = lives
        self._reader = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Failing:
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "started\n"
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=20)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            number, count, rest = line.split()
            self._lives[number].was_seen(int(count), int(rest) / 1e6)


def compiled(name: str, version: str, folder: Path) -> list[str]:
    """Return the beginning of a command that runs `name`. Raises BrokerMissing if jars or compiler cannot be had."""
    cure = "Run `python -m tests.brokers fetch`, and install a JDK 17 or newer"
    java = _maven.java(cure)
    class_path = f"{folder}:{activemq.jars(version)}/*"
    source = folder / f"{name}.java"
    api = "javax" if version.startswith("5.") else "jakarta"  # the same interfaces, renamed
    source.write_text(Path(__file__).with_name(source.name).read_text().replace("import jms.", f"import {api}.jms."))
    command = [_compiler(java, cure), "-cp", class_path, "-proc:none", "-d", str(folder), str(source)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return [java, "-XX:+UseSerialGC", "-cp", class_path, name]


def _compiler(java: str, cure: str) -> str:
    for path in (Path(java).resolve().with_name("javac"), Path(shutil.which("javac") or "")):
        if path.is_file():
            return str(path)
    _install.apt_install("openjdk-17-jdk-headless", cure)
    return shutil.which("javac") or "/usr/lib/jvm/java-17-openjdk-amd64/bin/javac"
