# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Reads and writes the policies of ActiveMQ Classic: connection URLs and broker XML."""
