# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Holds the SQL that limbo, crash safety and idempotency share: databases, the schema, header values."""
