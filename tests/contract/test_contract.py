# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests the contract's own teeth: what it does with inheritors that cheat or cannot."""

from __future__ import annotations

import subprocess
import sys

import pytest

from redeliver_mw.testing.contract import AdapterContract
from redeliver_mw.testing.contract.case import Excuses, needs
from tests.contract.memory_world import MemoryWorld
from tests.contract.on_brokers import OnBrokers, WithDeclaredQueues
from tests.contract.versions import EVERYWHERE, VARIES

BAN = "test_no_test_of_the_contract_is_overridden_without_a_reason"
VICTIM = "test_a_message_that_succeeds_is_handled_once_and_gone"


def banned(**changes: object) -> None:
    getattr(type("Inheritor", (AdapterContract,), changes)(), BAN)()


def test_an_inheritor_that_overrides_nothing_passes() -> None:
    banned(test_more=lambda self: None)


@pytest.mark.parametrize("instead", [lambda self, world: None, None], ids=["another", "none"])
def test_an_overridden_test_fails_the_contract(instead: object) -> None:
    with pytest.raises(AssertionError, match=VICTIM):
        banned(**{VICTIM: instead})


def marked(name: str, **said: str) -> object:
    def instead(self: object, world: object) -> None: ...

    return getattr(pytest.mark, name)(**said)(instead)


def test_an_override_that_is_expected_to_fail_for_a_reason_is_let_through() -> None:
    banned(**{VICTIM: marked("xfail", reason="this broker does not do that")})


@pytest.mark.parametrize("instead", [marked("xfail"), marked("xfail", reason=""), marked("slow", reason="it is slow")])
def test_another_mark_or_one_without_a_reason_is_not_enough(instead: object) -> None:
    with pytest.raises(AssertionError, match=VICTIM):
        banned(**{VICTIM: instead})


def test_a_capability_that_is_not_declared_excuses_and_is_reported() -> None:
    ran = []

    class Inheritor(AdapterContract):
        @needs(lambda c: c.dialect == "no such dialect", "it is not that one")
        def test_it(self, world: MemoryWorld) -> None:
            ran.append(world)

    inheritor, world = Inheritor(), MemoryWorld("rabbitmq")
    inheritor.excuses = Excuses()
    inheritor.test_it(world=world)
    assert not ran
    assert inheritor.excuses.given == {("Inheritor", "it is not that one"): ["it"]}


def test_pytest_is_not_needed_until_the_contract_is() -> None:
    before = "import sys, redeliver_mw.testing as testing; assert 'pytest' not in sys.modules"
    after = "testing.AdapterContract; assert 'pytest' in sys.modules"
    subprocess.run([sys.executable, "-c", f"{before}; {after}"], check=True)


def test_what_runs_on_every_version_is_named_as_the_contract_names_it() -> None:
    names = {name for base in (AdapterContract, OnBrokers) for name in dir(base)}
    assert names >= VARIES
    classes = {base.__name__ for cls in (AdapterContract, OnBrokers, WithDeclaredQueues) for base in cls.__mro__}
    assert classes | {"_OnRabbitMQ"} >= EVERYWHERE
