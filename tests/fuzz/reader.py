# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Runs one reader under atheris: `python -m tests.fuzz.reader LANGUAGE FOLDER [libFuzzer's options] CORPUS`.

Whatever a text says, a reader answers with policies or with a PolicyError, and policies answer whatever they are
asked: every F, any name, and our own language can write them down. An input that takes more than a second is kept
in FOLDER as `slow-…`; what fails is kept there by libFuzzer, as `crash-…`, `timeout-…` or `oom-…`.
"""

from __future__ import annotations

import hashlib
import math
import random
import sys
import time
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["redeliver_mw.policy"]):
    from redeliver_mw.errors import PolicyError
    from redeliver_mw.policy import PolicyMap, load_policies
    from redeliver_mw.policy.formats import WRITERS

LARGEST = 64 * 1024  # bytes of an input
SLOW = 1.0  # seconds
NAMES = ("orders", "orders.eu", "a.b.c", "", ".", "*", "BILLING.A", "patchbay:/acme/Orders", "jms.queue.x")
FAILURES = (0, 1, 2, 3, 7, 100, 10**9)


class Harness:
    """Calls one reader. `slowest` is in seconds."""

    def __init__(self, language: str, folder: Path) -> None:
        self._language, self._folder = language, folder
        self.slowest = 0.0

    def one(self, data: bytes) -> None:
        """Read one input that libFuzzer made. Any exception is a finding."""
        text = data.decode("utf-8", "surrogateescape")
        strict = len(data) % 2 == 1
        began = time.perf_counter()
        try:
            policies = load_policies(text, self._language, strict=strict)
        except PolicyError as error:
            str(error).encode("utf-8", "backslashreplace")
            return
        finally:
            self._timed(time.perf_counter() - began, data)
        asked(policies)

    def _timed(self, seconds: float, data: bytes) -> None:
        if seconds <= self.slowest:
            return
        self.slowest = seconds
        (self._folder / "slowest").write_text(f"{seconds}", encoding="ascii")
        if seconds > SLOW:
            (self._folder / f"slow-{hashlib.sha1(data).hexdigest()}").write_bytes(data)


def asked(policies: PolicyMap) -> None:
    """Ask policies every question that a consumer asks, and check the answers."""
    rng = random.Random(1)
    for name in (*NAMES, *(entry.pattern for entry in policies.entries[:10])):
        for kind in ("queue", "topic"):
            policy = policies.resolve(name, kind)
            for failures in FAILURES:
                policy.decide(failures)
                span = policy.backoff.span(max(failures, 1))
                assert 0 <= span.low <= span.high < math.inf
                assert 0 <= span.base < math.inf
            assert 0 <= policy.backoff.draw(3, rng) < math.inf
            assert 0 <= policy.longest_delay < math.inf
            policy.expired()
            assert policy.text is not None
            assert policy.version
    if len(policies.entries) <= 20:
        WRITERS["native"](policies)


def main() -> None:
    language, folder, *options = sys.argv[1:]
    harness = Harness(language, Path(folder))
    atheris.Setup([sys.argv[0], f"-max_len={LARGEST}", *options], harness.one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
