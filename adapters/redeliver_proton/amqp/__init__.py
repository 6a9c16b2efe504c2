# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Implements AMQP 1.0 on the wire, where proton changes what it reads or writes."""
