# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Asserts of the shipped contract tell their values here."""

import pytest

pytest.register_assert_rewrite("redeliver_mw.testing.contract")
