# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Defines how the pipeline's long jobs report their progress: to a function of the caller's."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

Progress: TypeAlias = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and how much there is: 0 if that is not known.

What is counted is each job's own: bytes of the journal, letters, marts. It may be called on a thread of the job's.
"""
