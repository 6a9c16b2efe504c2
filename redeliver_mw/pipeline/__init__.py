# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""The Spark pipeline: from journals to answers. Needs the extra `spark`; nothing outside of it imports pyspark.

Its functions take the caller's own SparkSession; `session` makes one. Importing this loads no Spark.
"""

from .compact import Compacted, compact
from .lake import Lake
from .session import session
from .troubles import LakeError, SparkError

__all__ = ["Compacted", "Lake", "LakeError", "SparkError", "compact", "session"]
