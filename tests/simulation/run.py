# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Runs histories, and tells them."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from .book import Broken
from .plan import Plan, plan_of
from .world import World


@contextmanager
def _silence() -> Iterator[None]:
    """Silence the log: what is logged of all that goes wrong would be more than what is told."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def fault_of(plan: Plan) -> str:
    """Return what is wrong with this history; empty when nothing is. An error out of the code is wrong, too."""
    with _silence():
        try:
            World(plan).run()
        except Broken as broken:
            return str(broken)
        except Exception as error:
            return "".join(traceback.format_exception_only(error)).strip()
    return ""


def failures_in(start: int, end: int, limbos: bool = False) -> list[int]:
    """Return the seeds from `start` to before `end` whose history is bad."""
    return [seed for seed in range(start, end) if fault_of(plan_of(seed, limbos=limbos))]


def tell(plan: Plan) -> tuple[str, bool]:
    """Return a history as numbered lines, and whether it is a bad one."""
    world, bad, trace = World(plan, telling=True), "", ""
    with _silence():
        try:
            world.run()
        except Broken as broken:
            bad = str(broken)
        except Exception as error:
            bad, trace = f"{type(error).__name__}: {error}", traceback.format_exc()
    lines = [f"{number:4}  {line}" for number, line in enumerate(world.lines, 1)]
    again = f"python -m tests.simulation{' --limbo' * plan.limbos} {plan.seed}"
    end = f"BROKEN: {bad}\nagain: {again}" if bad else "no rule was broken"
    return "\n".join([f"history {plan.seed}", str(plan), *lines, trace, end]), bool(bad)
