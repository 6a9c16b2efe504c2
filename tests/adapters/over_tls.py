# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests that everything is the same over TLS.

That is tested for each adapter whose TLS is our own doing, in front of its real broker.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from redeliver_mw import connect
from redeliver_mw.errors import BrokerUnavailable
from tests.faults.terminator import Terminator, make_certificate


class OverTls:
    """Tests one adapter over TLS.

    A subclass's module has the fixture `world`, of a broker that speaks in clear at `world.broker`.
    """

    @pytest.fixture(scope="class")
    @classmethod
    def certificate(cls, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
        return make_certificate(tmp_path_factory.mktemp("tls"))

    @pytest.fixture
    def terminator(self, world: Any, certificate: tuple[Path, Path]) -> Iterator[Terminator]:
        made = Terminator((world.broker.host, world.broker.port), *certificate)
        yield made
        made.close()

    def test_it_works_over_tls_and_after_a_cut(
        self, world: Any, terminator: Terminator, certificate: tuple[Path, Path]
    ) -> None:
        queue = world.new_queue()
        url = f"{world.other_url(hosts=[f'127.0.0.1:{terminator.port}'])}?tls=1&ca={certificate[1]}"
        consumer = world.consume(queue, url=url)
        world.send(queue, b"x" * 300_000)
        assert world.wait_until(lambda: consumer.handler.done.total() == 1)
        assert world.wait_until(lambda: world.depth(queue) == 0)
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
        begun = time.monotonic()
        consumer.stop()
        assert time.monotonic() - begun < 3.0
        assert world.depth(queue) == 0

    def test_a_certificate_that_nobody_vouches_for_is_refused(self, world: Any, terminator: Terminator) -> None:
        url = world.other_url(hosts=[f"127.0.0.1:{terminator.port}"])
        with pytest.raises(BrokerUnavailable, match="certificate"):
            connect(f"{url}?tls=1")
        with connect(f"{url}?tls=1&verify=0"):
            pass
