# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""What limbo, crash safety and idempotency share of SQL: databases, the schema, header values."""
