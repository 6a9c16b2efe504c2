# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Sends a plan back: a few letters first, at a limited rate, each batch confirmed and recorded.

`job` holds `replay`.
"""
