# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""What Spark looks for by itself in packages of this name: `spark.read.format("redeliver_limbo")` needs no more."""

from redeliver_mw.pipeline.limbo_source import LimboSource as DefaultSource

__all__ = ["DefaultSource"]
