# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Examines whether a broker, a policy and a limbo are set up for redelivery: a list of findings, each with its cure."""

from __future__ import annotations

from .examination import examine
from .finding import CHECKS, Finding, FindingStatus, is_wrong

__all__ = ["CHECKS", "Finding", "FindingStatus", "examine", "is_wrong"]
