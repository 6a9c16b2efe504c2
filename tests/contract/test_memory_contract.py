# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""The memory broker keeps the contract, as every personality, by hand and on threads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import pytest

from redeliver_mw.testing.contract import AdapterContract, World
from tests.contract.memory_world import MemoryWorld, ThreadedMemoryWorld
from tests.contract.uncopyable import Uncopyable


class _OnMemory(AdapterContract, Uncopyable):
    personality: ClassVar[str]

    @pytest.fixture
    def world(self) -> Iterator[World]:
        mine = MemoryWorld(self.personality)
        yield mine
        mine.close()


class TestAsRabbitMQ(_OnMemory):
    personality = "rabbitmq"


class TestAsRabbitMQWithClassicQueues(_OnMemory):
    personality = "rabbitmq-classic"


class TestAsActiveMQ(_OnMemory):
    personality = "activemq"


class TestAsArtemis(_OnMemory):
    personality = "artemis"


class TestOnThreads(AdapterContract):
    @pytest.fixture
    def world(self) -> Iterator[World]:
        mine = ThreadedMemoryWorld("rabbitmq-classic")
        yield mine
        mine.close()
