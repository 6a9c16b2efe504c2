# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""The Spark pipeline: from journals to answers. Needs the extra `spark`; nothing outside of it imports pyspark.

Its functions take the caller's own SparkSession; `session` makes one. Importing this loads no Spark.
"""

from .compact import Compacted, compact
from .draining.job import Drained, drain
from .lake import Lake
from .letter import Letter
from .planned import Plan, read_plan
from .plans import plan
from .replaying.job import replay
from .replaying.report import Replayed
from .session import session
from .troubles import LakeError, SparkError

__all__ = [
    "Compacted", "Drained", "Lake", "LakeError", "Letter", "Plan", "Replayed", "SparkError",
    "compact", "drain", "plan", "read_plan", "replay", "session",
]  # fmt: skip
