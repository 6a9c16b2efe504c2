# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Implements RabbitMQ over AMQP 1.0: its capabilities, queues and management."""
