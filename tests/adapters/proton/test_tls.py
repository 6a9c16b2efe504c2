# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""TLS, which is ours and not the driver's: everything else is to be the same."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from redeliver_mw import connect
from redeliver_mw.errors import BrokerUnavailable
from tests.contract.proton_world import ProtonWorld
from tests.faults.terminator import Terminator, make_certificate, needs_openssl

pytestmark = [pytest.mark.broker, needs_openssl]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make_certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def terminator(world: ProtonWorld, certificate: tuple[Path, Path]) -> Iterator[Terminator]:
    made = Terminator((world.broker.host, world.broker.port), *certificate)
    yield made
    made.close()


def test_it_works_over_tls_and_after_a_cut(
    world: ProtonWorld, terminator: Terminator, certificate: tuple[Path, Path]
) -> None:
    queue = world.new_queue()
    url = f"{world.other_url(hosts=[f'127.0.0.1:{terminator.port}'])}?tls=1&ca={certificate[1]}"
    consumer = world.consume(queue, url=url)
    world.send(queue, b"x" * 300_000)
    assert world.wait_until(lambda: consumer.handler.done.total() == 1)
    world.advance(0.2)  # else its ack is cut, too, and it comes again
    begun = time.process_time()
    terminator.cut()
    world.send(queue, b"after")
    assert world.wait_until(lambda: consumer.handler.done[b"after"] == 1)
    world.advance(0.5)
    assert time.process_time() - begun < 1.0, "a closed TLS connection must not be read for ever"
    with connect(url) as session:
        session.publish(queue, b"y" * 300_000)
    assert world.wait_until(lambda: consumer.handler.done[b"y" * 300_000] == 1)
    consumer.stop()
    assert world.depth(queue) == 0


def test_a_certificate_that_nobody_vouches_for_is_refused(world: ProtonWorld, terminator: Terminator) -> None:
    url = world.other_url(hosts=[f"127.0.0.1:{terminator.port}"])
    with pytest.raises(BrokerUnavailable, match="certificate"):
        connect(f"{url}?tls=1")
    with connect(f"{url}?tls=1&verify=0"):
        pass
