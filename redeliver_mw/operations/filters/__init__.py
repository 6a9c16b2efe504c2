# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Reads `--where`, and says which dead letters a filter selects: in SQL and in memory, with one meaning."""
