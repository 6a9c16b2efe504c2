# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Holds the entry point of `redeliver`: Ctrl-C while the commands are imported ends it without a traceback.

It imports nothing else of the project beforehand, since that import is what may be interrupted.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line of this process, and exit with its code."""
    try:
        from .main import main as run
    except KeyboardInterrupt:
        sys.exit(130)
    run()
