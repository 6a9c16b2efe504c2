# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests clusters and pairs of brokers under faults: what a consumer does, and where each confirmed message ends.

`python -m tests.infrastructure` runs these tests by itself and prints a table; docs/infrastructure.md has its figures.
"""
