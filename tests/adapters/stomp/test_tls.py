# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests TLS: stomp.py writes on another thread then, and everything else is to be the same."""

from __future__ import annotations

import pytest

from tests.adapters.over_tls import OverTls
from tests.faults.terminator import needs_openssl

pytestmark = [pytest.mark.broker, needs_openssl]


class TestOverTls(OverTls):
    pass
