# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Lists what is measured, by section: each section takes what was asked for, and yields figures."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tests.bench.asked import Asked
from tests.bench.figures import Figure
from tests.bench.sections import brokers, failing, frameworks, knobs, life, traces

Section = Callable[[Asked], Iterator[Figure]]

SECTIONS: dict[str, Section] = {
    "brokers": brokers.measure,
    "frameworks": frameworks.measure,
    "knobs": knobs.measure,
    "failing": failing.measure,
    "life": life.measure,
    "traces": traces.measure,
}
