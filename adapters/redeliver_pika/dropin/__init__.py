# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Is the drop-in for pika: it wraps callbacks and channels of existing consumers."""
