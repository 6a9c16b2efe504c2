# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Dead letters off their queue and into the lake, by tasks that share a queue; `job.drain` is the whole of it.

1. `tasks`: each task takes its share, and writes batches to staging files (`staging`) before it settles them;
2. `commit`: what was staged, by this run or by one that was killed, goes into the table, each letter once
   (`dedupe` tells which of two are the same one). A manifest, written last, says what counts.
"""
