# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Holds what people do with dead letters, and the store that keeps both: no command line, no HTTP."""
