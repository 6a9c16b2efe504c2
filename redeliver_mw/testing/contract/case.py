# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Holds what all parts of the contract share: the world, excuses, and the ban on overriding."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar, cast

import pytest

from ...adapter.capabilities import Capabilities
from ...policy import RedeliveryPolicy
from ...redelivery import ledger
from .world import Ability, World

F = TypeVar("F", bound=Callable[..., Any])


class Excuses:
    """Is a pytest plugin that lists at the end which tests were excused for which adapters, and why."""

    NAME: ClassVar[str] = "redeliver-mw-contract-excuses"

    def __init__(self) -> None:
        """Begin without excuses."""
        self.given: dict[tuple[str, str], list[str]] = {}

    @classmethod
    def of(cls, config: pytest.Config) -> Excuses:
        """Return the plugin of a test run; it is registered at the first call."""
        found = config.pluginmanager.get_plugin(cls.NAME)
        if not isinstance(found, cls):
            found = cls()
            config.pluginmanager.register(found, cls.NAME)
        return found

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Write a line for each adapter and reason. Called by pytest."""
        for (who, why), tests in sorted(self.given.items()):
            terminalreporter.write_line(f"excused from the contract: {who}: {why}: {', '.join(tests)}")


def needs_ability(*abilities: Ability) -> Callable[[F], F]:
    """Mark a test that needs more than every harness offers."""

    def missing(world: World) -> str:
        lacking = sorted(set(abilities) - world.abilities)
        return f"its harness has no {', '.join(lacking)}" if lacking else ""

    return _excused_by(missing)


def needs_marks(test: F) -> F:
    """Mark a test of what is remembered of a returned message: the broker must mark such a message as redelivered."""
    return _excused_by(lambda w: "" if "cut" in w.marks else "it does not mark what comes back")(test)


def needs_missing(test: F) -> F:
    """Mark a test of a target that does not exist."""
    return _excused_by(lambda w: "it makes a queue at its first use" if w.makes_on_use else "")(test)


def needs(can: Callable[[Capabilities], object], why_not: str) -> Callable[[F], F]:
    """Mark a test that needs more than every broker offers, by the declared capabilities."""
    return _excused_by(lambda world: "" if can(world.capabilities) else why_not)


def _excused_by(excuse: Callable[[World], str]) -> Callable[[F], F]:
    def decorate(test: F) -> F:
        @functools.wraps(test)
        def run(self: Case, *args: Any, **kwargs: Any) -> None:
            if why := excuse(kwargs["world"]):
                name = test.__name__.removeprefix("test_")
                self.excuses.given.setdefault((type(self).__name__, why), []).append(name)
                return
            test(self, *args, **kwargs)

        return cast(F, run)

    return decorate


class Case:
    """Is the base of every part. A subclass provides the fixture `world`."""

    excuses: Excuses

    @pytest.fixture
    def world(self) -> World:
        """Return the broker under test; a fixture of the subclass, which also closes it."""
        raise NotImplementedError("give the contract a fixture `world`")

    @pytest.fixture(autouse=True)
    def _with_excuses(self, request: pytest.FixtureRequest) -> None:
        self.excuses = Excuses.of(request.config)

    def policy(
        self, world: World, dead_letter: str | list[str] | None, dead_after: int = 3, **more: Any
    ) -> RedeliveryPolicy:
        """Return a policy that dead-letters after `dead_after` failures, with a tick between attempts."""
        names = [dead_letter] if isinstance(dead_letter, str) else dead_letter
        targets = None if names is None else [f"queue:{name}" for name in names]
        return RedeliveryPolicy(dead_after, **({"backoff": world.tick, "dead_letter": targets} | more))

    def forget_everything(self) -> None:
        """Forget everything, as in a new process: no ledger remembers anything."""
        ledger._ledgers.clear()

    def test_no_test_of_the_contract_is_overridden_without_a_reason(self) -> None:
        own = {name: part for part in reversed(type(self).__mro__) if _is_part(part) for name in vars(part)}
        changed = [
            name
            for name, part in own.items()
            if name.startswith("test_")
            and getattr(type(self), name, None) is not vars(part)[name]
            and not _has_reason(getattr(type(self), name, None))
        ]
        assert not changed, f"overridden, and no mark of pytest's says why: {', '.join(changed)}"


def _is_part(cls: type) -> bool:
    return cls.__module__.startswith(__package__ or "redeliver_mw.testing.contract")


def _has_reason(test: object) -> bool:
    marks = getattr(test, "pytestmark", [])
    return any(mark.name == "xfail" and mark.kwargs.get("reason") for mark in marks)
