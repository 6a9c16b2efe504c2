# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""What every test may ask for."""

import pytest
from hypothesis import settings

# How long an example takes is the machine's affair; what may take only so long has a test that says so.
settings.register_profile("house", deadline=None)
settings.load_profile("house")

pytest.register_assert_rewrite("redeliver_mw.testing")

from tests.brokers.pytest_support import (
    FIXTURES,
    _brokers_put_right,
    activemq,
    activemq63,
    activemq518,
    artemis,
    artemis244,
    every_broker,
    jvm_broker,
    pytest_sessionfinish,
    pytest_terminal_summary,
    pytest_testnodedown,
    rabbitmq,
    rabbitmq43,
    rabbitmq310,
)
from tests.storage.databases import file, postgres, url

__all__ = [
    "_brokers_put_right",
    "activemq",
    "activemq63",
    "activemq518",
    "artemis",
    "artemis244",
    "every_broker",
    "file",
    "jvm_broker",
    "postgres",
    "pytest_sessionfinish",
    "pytest_terminal_summary",
    "pytest_testnodedown",
    "rabbitmq",
    "rabbitmq43",
    "rabbitmq310",
    "url",
]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whoever asks for a real broker is marked `broker`."""
    for item in items:
        if FIXTURES & set(getattr(item, "fixturenames", ())):
            item.add_marker("broker")
