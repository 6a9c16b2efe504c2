# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Keeps Delta logs over the Parquet files of a lake, so that other programs can read its tables."""
