# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Plays the short form, in `make test`: one cluster or pair of each broker, of which a node is killed."""

from __future__ import annotations

import pytest

from tests.infrastructure.plan import CLUSTERS
from tests.infrastructure.play import staged
from tests.infrastructure.table import markdown, verdicts


@pytest.mark.broker
@pytest.mark.slow
@pytest.mark.timeout(600)  # a machine with much beside it
@pytest.mark.parametrize("name", ["rabbitmq43", "artemis-shared-store", "activemq63"])
def test_nothing_is_lost_and_consuming_goes_on(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    with staged(name, tmp_path_factory.mktemp(name)) as stage:
        only = {way.name for way in stage.ways if way.way in ("app", "drop-in") and "1.0" not in way.name}
        kill = next(fault for fault in CLUSTERS[name].faults if fault.name == "kill")
        rows = stage.play(kill, only=only)
        print("\n" + markdown(rows))
        assert verdicts(rows) == []
