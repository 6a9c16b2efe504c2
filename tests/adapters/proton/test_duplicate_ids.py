# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""A row of limbo that a crash has published twice is one message on Artemis; two rows of one copy id are two."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from redeliver_mw.adapter.registry import adapter_for
from redeliver_mw.clock import SystemClock
from redeliver_mw.dropin.companion import NullSink
from redeliver_mw.errors import LimboError
from redeliver_mw.limbo import Limbo
from redeliver_mw.limbo.service import LimboService
from redeliver_mw.message import Destination, Outgoing
from tests.adapters.proton.probe import Probe
from tests.contract.proton_world import ProtonWorld
from tests.faults.load import until
from tests.limbo.messages import count

pytestmark = pytest.mark.broker

PATIENCE = 30.0


class Programs:
    """Stands for programs that work at one limbo one after the other, as one app."""

    def __init__(self, world: ProtonWorld, folder: Path) -> None:
        self.limbo = f"sqlite:///{folder}/limbo.db"
        self._url = world.broker.url

    def __enter__(self) -> LimboService:
        self._adapter = adapter_for(self._url)
        self._adapter.start(NullSink())
        self._service = LimboService(self.limbo, self._adapter, "once", SystemClock())
        self._service.open()
        self._service.start()
        return self._service

    def __exit__(self, *_: object) -> None:
        self._service.close(PATIENCE)
        self._adapter.close()


def park(service: LimboService, out: Outgoing) -> None:
    parked = threading.Event()
    service.park(out, time.time(), lambda verdict, _: parked.set() if verdict == "ok" else None)
    assert parked.wait(PATIENCE)


def test_a_row_whose_removal_was_lost_is_published_again_and_is_there_once(
    world: ProtonWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, programs, done = world.new_queue(), Programs(world, tmp_path), Limbo.done
    published: list[int] = []

    def lost(_: Limbo, rows: list[object]) -> None:
        raise LimboError("gone")

    monkeypatch.setattr(Limbo, "done", lost)
    with programs as service:
        park(service, Outgoing(Destination(queue), b"one", {}, copy_id="c" * 32))
        until(lambda: world.depth(queue) == 1, PATIENCE, "it is not published")
    assert count(programs.limbo) == 1
    monkeypatch.setattr(Limbo, "done", lambda limbo, rows: (published.extend(rows), done(limbo, rows))[1])
    with programs:
        until(lambda: count(programs.limbo) == 0, PATIENCE, "it is not published again")
    assert len(published) == 1
    assert world.depth(queue) == 1


def test_what_a_full_address_refused_is_no_duplicate_when_it_is_tried_again(world: ProtonWorld, probe: Probe) -> None:
    queue = world.new_queue()
    world.raw.settings(queue, maxSizeMessages=1, addressFullMessagePolicy="FAIL")
    world.send(queue, b"filler")
    out = Outgoing(Destination(queue), b"one", {}, copy_id="c" * 32, duplicate_salt="row")
    assert probe.publish(out)[0] == "refused"
    world.raw.settings(queue, maxSizeMessages=100, addressFullMessagePolicy="FAIL")
    assert world.wait_until(lambda: probe.publish(out) == ("ok", ""))
    assert world.depth(queue) == 2


def test_another_message_with_the_same_copy_id_is_not_taken_for_it(world: ProtonWorld, tmp_path: Path) -> None:
    queue, programs = world.new_queue(), Programs(world, tmp_path)
    for number in (1, 2):
        with programs as service:
            park(service, Outgoing(Destination(queue), b"one", {}, copy_id="c" * 32))
            until(lambda number=number: world.depth(queue) == number, PATIENCE, "it is not published")
            until(lambda: count(programs.limbo) == 0, PATIENCE, "it stays")
