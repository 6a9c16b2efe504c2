# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Runs or installs brokers: `python -m tests.brokers up KIND [--version V]` runs one until Ctrl-C.

`python -m tests.brokers fetch` installs all of them.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
import time

from tests.brokers import KINDS, BrokerFailed, BrokerMissing, broker
from tests.brokers._install import say
from tests.telemetry import prometheus_server


def main() -> int:
    """Return 0 when all is done, and 1 if a broker is missing, would not start, or died."""
    parser = argparse.ArgumentParser(prog="python -m tests.brokers")
    commands = parser.add_subparsers(dest="command", required=True)
    up = commands.add_parser("up", help="start one, print its URL, run until Ctrl-C or SIGTERM")
    up.add_argument("kind", choices=sorted(KINDS))
    up.add_argument("--version")
    commands.add_parser("fetch", help="install and cache every broker that the tests use, and Prometheus")
    asked = parser.parse_args()
    if asked.command == "up" and asked.version not in (None, *KINDS[asked.kind].VERSIONS):
        up.error(f"--version of {asked.kind} is one of {', '.join(KINDS[asked.kind].VERSIONS)}")
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _leave)
    try:
        return _up(asked.kind, asked.version) if asked.command == "up" else _fetch()
    except (BrokerMissing, BrokerFailed) as error:
        say(str(error))
        return 1


def _leave(number: int, _: object) -> None:
    """Unwind, and clean up on the way; a signal that arrives meanwhile changes nothing."""
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)
    raise SystemExit(128 + number)


def _up(kind: str, version: str | None) -> int:
    say(f"starting {kind}{' ' + version if version else ''}")
    began = time.monotonic()
    with broker(kind, version=version) as b:
        ended = threading.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: ended.set())
        say(f"up after {time.monotonic() - began:.1f} s; Ctrl-C ends it and deletes its data")
        print(b.url, b.describe(), sep="\n", flush=True)
        while not ended.wait(1.0):
            if not b.alive():
                raise BrokerFailed(f"{b.describe()} has ended by itself")
    say("ended")
    return 0


def _fetch() -> int:
    missing = 0
    for kind, module in sorted(KINDS.items()):
        for version in getattr(module, "FETCHED", module.VERSIONS):
            try:
                say(module.fetch(version))
            except BrokerMissing as error:
                say(f"{kind} {version}: {error}")
                missing += 1
    try:
        prometheus_server.fetch()
    except BrokerMissing as error:
        say(f"prometheus: {error}")
        missing += 1
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
