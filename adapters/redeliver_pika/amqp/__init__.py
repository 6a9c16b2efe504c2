# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Implements AMQP 0-9-1 on the wire, where pika changes what it reads or writes."""
