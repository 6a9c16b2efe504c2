# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Is the drop-in for stomp.py: it wraps listeners of existing consumers."""
