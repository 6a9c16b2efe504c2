# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests Ctrl-C before the first and after the last line of a command: no traceback, and an exit code that stands."""

from __future__ import annotations

import subprocess
import sys

INTERRUPTED_IMPORT = """
import sys

class Interrupts:
    def find_spec(self, name, path, target=None):
        if name == "redeliver_mw.cli.main":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupts())
from redeliver_mw.cli.entry import main
main()
"""
INTERRUPTED_END = """
import atexit, os, signal

atexit.register(lambda: os.kill(os.getpid(), signal.SIGINT))
from redeliver_mw.cli.entry import main
main()
"""


def ended(program: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, check=False)


def test_a_ctrl_c_while_the_commands_are_imported_exits_with_130_and_no_traceback() -> None:
    done = ended(INTERRUPTED_IMPORT, "check", "3:1000")
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_a_ctrl_c_while_the_interpreter_ends_changes_no_exit_code() -> None:
    done = ended(INTERRUPTED_END, "check", "3:1000")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("valid jmsjca")


def test_a_ctrl_c_while_the_interpreter_ends_leaves_the_code_of_an_error() -> None:
    assert ended(INTERRUPTED_END, "check", "3:soon").returncode == 2
