# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Keeps failure counts in the limbo database, so that they survive a crash of the process."""
