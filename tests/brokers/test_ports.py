# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests that processes that look for free ports at the same time are not given the same ones."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.brokers._process import free_ports

_ASK = """\
import json
from tests.brokers._process import free_ports
print(json.dumps(free_ports(150)), flush=True)
input()
"""


def test_no_two_processes_are_given_the_same_port() -> None:
    given = [free_ports(150)]
    children = [
        subprocess.Popen([sys.executable, "-c", _ASK], stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(4)
    ]
    try:
        for child in children:
            assert child.stdout is not None
            given.append(json.loads(child.stdout.readline()))
    finally:
        for child in children:
            child.communicate(b"\n", timeout=30)
    everything = [port for ports in given for port in ports]
    assert len(everything) == 5 * 150
    assert len(set(everything)) == len(everything)
