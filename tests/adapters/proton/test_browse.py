# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests looking into a queue of Artemis by a link that copies and is drained."""

from __future__ import annotations

import pytest

from redeliver_mw.adapter.registry import adapter_for
from redeliver_mw.dead_letters.broker_client import BrokerClient
from redeliver_mw.message import Destination
from tests.contract.proton_world import ProtonWorld

pytestmark = pytest.mark.broker

# Artemis sends messages of up to 100 KiB from memory, in frames of 32 kB here, and larger ones from a file.
SIZES = (10, 70_000, 80_000, 10, 90_000, 100_000, 102_000, 200_000, 10)


def test_messages_of_several_frames_are_seen_whole_and_stay(world: ProtonWorld) -> None:
    queue = world.new_queue()
    for number, size in enumerate(SIZES):
        world.send(queue, bytes([number]) * size)
    with BrokerClient(adapter_for(world.url)) as client:
        for limit in (len(SIZES), 2, 100):
            seen = [letter.body for letter in client.browse(Destination(queue), limit)]
            assert seen == [bytes([number]) * size for number, size in enumerate(SIZES)][:limit]
    assert world.depth(queue) == len(SIZES)


@pytest.mark.parametrize("size", [70_000, 85_000, 100_000])
def test_the_last_message_of_a_queue_is_seen_although_the_broker_drains_its_link_in_the_middle(
    world: ProtonWorld, size: int
) -> None:
    queue = world.new_queue()
    world.send(queue, b"x" * size)
    with BrokerClient(adapter_for(world.url)) as client:
        for _ in range(8):  # without the mend most looks end without an answer
            assert [len(letter.body) for letter in client.browse(Destination(queue), 10)] == [size]
