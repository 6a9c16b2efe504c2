# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Plays every fault on every cluster and pair, with every consumer.

`make infrastructure-tests` runs these tests, and so does `make test-all`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.infrastructure.plan import CLUSTERS
from tests.infrastructure.play import Stage, staged
from tests.infrastructure.table import markdown, verdicts

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.infrastructure, pytest.mark.timeout(900)]
CASES = [(name, fault.name) for name, plan in CLUSTERS.items() for fault in plan.faults]


class Theatre:
    """Keeps one cluster up, the one that was asked for last. A cluster on which something failed is not used again."""

    def __init__(self, factory: pytest.TempPathFactory) -> None:
        self._factory = factory
        self._stage: Stage | None = None
        self._name = ""

    def stage(self, name: str) -> Stage:
        if self._stage is None or self._name != name:
            self.close()
            self._stage, self._name = staged(name, self._factory.mktemp(name)), name
        return self._stage

    def close(self) -> None:
        stage, self._stage = self._stage, None
        if stage is not None:
            stage.close()


@pytest.fixture(scope="module")
def theatre(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Theatre]:
    one = Theatre(tmp_path_factory)
    yield one
    one.close()


@pytest.mark.parametrize(("name", "fault"), CASES)
def test_nothing_is_lost_and_consuming_goes_on(name: str, fault: str, theatre: Theatre) -> None:
    stage = theatre.stage(name)
    (wanted,) = [one for one in CLUSTERS[name].faults if one.name == fault]
    try:
        rows = stage.play(wanted)
        print("\n" + markdown(rows))
        assert verdicts(rows) == []
    except BaseException:
        theatre.close()
        raise
