# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Moves dead letters from their queue into the lake, with tasks that share a queue. `job.drain` does all of it.

1. `tasks`: each task takes its share, and writes batches to staging files (`staging`) before it settles them;
2. `commit`: staged letters, of this run or of a run that was killed, go into the table, each letter once (`dedupe`
   decides which letters are the same). A manifest, written last, lists the files that count.
"""
