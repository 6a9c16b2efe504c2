# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Holds the Spark pipeline, which computes marts and policies from journals.

Needs the extra `spark`; no other package imports pyspark.

The functions take the caller's own SparkSession; `session` makes one. Importing this package loads no Spark.
"""

from ..dead_letters.edits.letter import Letter
from .draining.job import drain
from .draining.limbo_letters import LimboCopied, copy_limbo
from .draining.order import Drained
from .errors import LakeError, SparkError
from .lake.compaction import Compacted, compact
from .lake.lake import Lake
from .lake.optimization import optimize
from .lake.rewriting import Optimized
from .plans import plan
from .plans.plan_file import Plan, read_plan
from .replaying.job import replay
from .replaying.report import Replayed
from .session import session

__all__ = [
    "Compacted",
    "Drained",
    "Lake",
    "LakeError",
    "Letter",
    "LimboCopied",
    "Optimized",
    "Plan",
    "Replayed",
    "SparkError",
    "compact",
    "copy_limbo",
    "drain",
    "optimize",
    "plan",
    "read_plan",
    "replay",
    "session",
]
