# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""The Spark pipeline: from journals to answers. Needs the extra `spark`; nothing outside of it imports pyspark.

Its functions take the caller's own SparkSession; `session` makes one. Importing this loads no Spark.
"""

from .draining.job import drain
from .draining.order import Drained
from .errors import LakeError, SparkError
from .lake.compaction import Compacted, compact
from .lake.lake import Lake
from .plans import plan
from .plans.letter import Letter
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
    "Plan",
    "Replayed",
    "SparkError",
    "compact",
    "drain",
    "plan",
    "read_plan",
    "replay",
    "session",
]
