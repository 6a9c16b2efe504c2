# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Clusters and pairs of brokers under faults: what a consumer does, and where each confirmed message is afterwards.

`python -m tests.infrastructure` runs it by itself and prints a table; docs/infrastructure.md has its figures.
"""
