# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Holds what the command line asked for, and describes the machine that the bench runs on."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from tests.bench.benches import BENCHES
from tests.bench.load import Load
from tests.bench.rounds import ROOT, Ground
from tests.brokers import broker

DRIVERS = ("pika", "stomp.py", "python-qpid-proton")
FRAMEWORKS = ("kombu", "aio-pika", "dramatiq", "celery", "faststream")
VENV = ROOT / ".bench/venv/bin/python"


@dataclass
class Asked:
    """Holds what was asked for, and notes the versions of the brokers that were started.

    `rounds` are those that count. `messages` are those of a usual case, `growth` those of the case that watches memory.
    `python` is the Python that has the other frameworks.
    """

    rounds: int = 5
    messages: int = 10_000
    growth: int = 1_000_000
    brokers: tuple[str, ...] = tuple(BENCHES)
    python: Path = VENV
    versions: dict[str, str] = field(default_factory=dict)
    load: Load = field(default_factory=Load)

    def say(self, text: str) -> None:
        """Print to stderr how far the bench is."""
        print(f"{time.strftime('%H:%M:%S')}  {text}", file=sys.stderr, flush=True)

    @contextmanager
    def ground(self, kind: str) -> Iterator[Ground]:
        """Yield a broker that was started for this, and a folder. Raises BrokerMissing and BrokerFailed."""
        bench = BENCHES[kind]
        with (
            broker(kind, version=bench.version, **bench.options) as own,
            tempfile.TemporaryDirectory(prefix="redeliver-bench-") as folder,
        ):
            self.versions[own.title] = own.version
            yield Ground(bench, own.url, Path(folder), self.say)

    def about(self) -> dict[str, Any]:
        """Return all that figures depend on, for the JSON."""
        return {
            "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "commit": _commit(),
            "machine": machine(),
            "load": {"before": round(self.load.before, 1), "others": round(self.load.others(), 2)},
            "versions": {"Python": platform.python_version(), **self.versions, **_here(), **self._others()},
            "options": {"rounds": self.rounds, "messages": self.messages, "growth": self.growth},
        }

    def _others(self) -> Mapping[str, str]:
        if not self.python.exists():
            return {}
        code = f"from importlib.metadata import version\nfor name in {FRAMEWORKS}: print(name, version(name))"
        done = subprocess.run([self.python, "-c", code], capture_output=True, text=True, check=False)
        return dict(line.split() for line in done.stdout.splitlines())


def _here() -> dict[str, str]:
    found = {}
    for name in DRIVERS:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def machine() -> dict[str, str | int]:
    """Return the number of cores, the processor, the memory and the system."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    words = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    model = words[0].partition(": ")[2] if words else platform.machine()
    return {"cores": os.cpu_count() or 1, "processor": model, "memory_gib": round(memory), "system": platform.system()}


def _commit() -> str:
    """Return the commit of the sources, with a + if they differ from it; return an empty text where there is no git."""
    with suppress(OSError):
        argv = ["git", "-C", str(ROOT), "describe", "--always", "--abbrev=10", "--dirty=+"]
        return subprocess.run(argv, capture_output=True, text=True, check=False).stdout.strip()
    return ""
