# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Telemetry: what an operator sees of failed attempts while the program runs."""
