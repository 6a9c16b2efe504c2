# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""What every test may ask for."""

from tests.brokers.pytest_support import (
    _brokers_put_right,
    pytest_terminal_summary,
    rabbitmq,
    rabbitmq43,
    rabbitmq310,
)

__all__ = ["_brokers_put_right", "pytest_terminal_summary", "rabbitmq", "rabbitmq43", "rabbitmq310"]
