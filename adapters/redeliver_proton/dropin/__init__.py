# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Is the drop-in for proton: it wraps handlers of existing consumers."""
