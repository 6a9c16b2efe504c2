# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""ActiveMQ's RedeliveryPolicy, run from its own jar: `Delays.java`, compiled against what the brokers' cache holds."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

from tests.brokers import _install, _maven, activemq

_SOURCE = Path(__file__).with_name("Delays.java")
_SEED = "20260101"  # ActiveMQ's dice fall the same way every time


@dataclass(frozen=True)
class Settings:
    """A RedeliveryPolicy of ActiveMQ; delays in milliseconds."""

    initial: int = 1000
    delay: int = 1000
    exponential: bool = False
    multiplier: float = 5.0
    maximum: int = -1
    collision: bool = False
    percent: int = 15

    def url(self) -> str:
        """The same on a connection URL, without a limit."""
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
    """One version's class. BrokerMissing if jars or compiler cannot be had."""

    def __init__(self, version: str, folder: Path) -> None:
        cure = "Run `python -m tests.brokers fetch`, and install a JDK 17 or newer"
        self._java = _maven.java(cure)
        self._class_path = f"{folder}:{activemq.jars(version)}/*"
        command = [_compiler(self._java, cure), "-cp", self._class_path, "-proc:none", "-d", str(folder), str(_SOURCE)]
        subprocess.run(command, check=True, capture_output=True, text=True)

    def chains(self, asked: Iterable[tuple[Settings, int, int]]) -> list[list[int]]:
        """The delays of each setting, for so many failures and so many times, in milliseconds."""
        lines = "".join(f"{settings.line(failures, times)}\n" for settings, failures, times in asked)
        command = [self._java, "-XX:+UseSerialGC", "-cp", self._class_path, "Delays", _SEED]
        said = subprocess.run(command, check=True, input=lines, capture_output=True, text=True).stdout
        return [[int(word) for word in line.split()] for line in said.splitlines()]


def _compiler(java: str, cure: str) -> str:
    for path in (Path(java).resolve().with_name("javac"), Path(shutil.which("javac") or "")):
        if path.is_file():
            return str(path)
    _install.apt_install("openjdk-17-jdk-headless", cure)
    return shutil.which("javac") or "/usr/lib/jvm/java-17-openjdk-amd64/bin/javac"
