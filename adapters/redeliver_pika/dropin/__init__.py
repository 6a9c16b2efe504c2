# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""The drop-in for pika: callbacks and channels of existing consumers."""
