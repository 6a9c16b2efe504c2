# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Offers what Spark looks for by itself in packages of this name, for `spark.read.format("redeliver")`."""

from redeliver_mw.pipeline.lake_source import LakeSource as DefaultSource

__all__ = ["DefaultSource"]
