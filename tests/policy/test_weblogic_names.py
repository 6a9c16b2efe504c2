# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests the names by which clients know WebLogic's destinations: JNDI names, and those of distributed destinations."""

from __future__ import annotations

import pytest

from redeliver_mw.policy import DeadLetter, PolicyMap, load_policies
from redeliver_mw.policy.findings import findings_of

FAILS = """<delivery-params-overrides><redelivery-delay>7000</redelivery-delay></delivery-params-overrides>
<delivery-failure-params><error-destination>E</error-destination><redelivery-limit>{}</redelivery-limit>
</delivery-failure-params>"""


def module(*parts: str) -> PolicyMap:
    return load_policies(f"<weblogic-jms>{''.join(parts)}</weblogic-jms>", strict=True)


def uniform(name: str, inside: str = "", jndi: str = "") -> str:
    names = f"<jndi-name>{jndi}</jndi-name>" if jndi else ""
    return f'<uniform-distributed-queue name="{name}">{inside}{names}</uniform-distributed-queue>'


def target(policies: PolicyMap, name: str, failures: int) -> str:
    decision = policies.resolve(name).decide(failures)
    assert isinstance(decision, DeadLetter)
    return ", ".join(map(str, decision.targets))


@pytest.mark.parametrize("element", ["jndi-name", "local-jndi-name"])
def test_a_destination_has_its_policy_under_its_jndi_name_too(element: str) -> None:
    queue = f'<queue name="Work">{FAILS.format(2)}<{element}>jms/work</{element}></queue>'
    policies = module(queue, '<queue name="E"/>')
    for name in ("Work", "jms/work"):
        policy = policies.resolve(name)
        assert (policy.dead_after, policy.longest_delay) == (3, 7.0)
    assert policies.resolve("jms/other").dead_after is None


@pytest.mark.parametrize(("jndi", "there"), [("jms/errors", "queue:jms/errors"), ("", "queue:E")])
def test_dead_letters_of_a_jndi_name_go_to_the_jndi_name_of_the_error_destination_if_it_has_one(
    jndi: str, there: str
) -> None:
    policies = module(uniform("Work", FAILS.format(2), "jms/work"), uniform("E", jndi=jndi))
    assert target(policies, "Work", 3) == "queue:E"
    assert target(policies, "jms/work", 3) == there


def two(first: str, second: str) -> PolicyMap:
    """Return the policies of the queues A, dead after 3 failures, and B, dead after 7, with these JNDI names."""
    limits = {"A": (2, first), "B": (6, second)}
    queues = [
        f'<queue name="{name}">{FAILS.format(limit)}<jndi-name>{jndi}</jndi-name></queue>'
        for name, (limit, jndi) in limits.items()
    ]
    return module(*queues, '<queue name="E"/>')


def test_a_name_stands_over_the_same_jndi_name_of_another_destination() -> None:
    assert two("B", "b").resolve("B").dead_after == 7


def test_a_jndi_name_of_two_destinations_is_reported() -> None:
    policies = two("q", "q")
    assert policies.resolve("q").dead_after == 3
    assert [text for text in policies.warnings if "its JNDI name q is another one's too" in text]


def test_an_error_destination_that_is_known_by_its_jndi_name_is_no_hot_loop() -> None:
    policies = module(uniform("Work", FAILS.format(2), "jms/work"), uniform("E", jndi="jms/errors"))
    assert findings_of(policies) == []


def weighted(*members: str) -> str:
    inside = "".join(f'<distributed-queue-member name="{member}"/>' for member in members)
    return f'<distributed-queue name="All"><jndi-name>jms/all</jndi-name>{inside}</distributed-queue>'


@pytest.mark.parametrize("name", ["All", "jms/all"])
def test_a_weighted_distributed_queue_has_the_policy_of_its_members(name: str) -> None:
    queues = [f'<queue name="{one}">{FAILS.format(2)}</queue>' for one in ("A", "B")]
    policies = module(*queues, '<queue name="E"/>', weighted("A", "B"))
    assert policies.resolve(name).dead_after == 3


def test_members_that_differ_are_reported() -> None:
    queues = [f'<queue name="A">{FAILS.format(2)}</queue>', f'<queue name="B">{FAILS.format(6)}</queue>']
    policies = module(*queues, '<queue name="E"/>', weighted("A", "B"))
    assert policies.resolve("All").dead_after == 3
    assert [text for text in policies.warnings if "All: its members A, B differ" in text]


def test_failure_params_of_a_weighted_distributed_queue_are_out_of_place() -> None:
    queues = f'<queue name="E"/><distributed-queue name="All">{FAILS.format(2)}</distributed-queue>'
    policies = load_policies(f"<weblogic-jms>{queues}</weblogic-jms>")
    assert [one for one in policies.warnings if "<delivery-failure-params>" in one and "belongs in" in one]


def test_a_member_of_a_weighted_destination_may_name_its_queue_apart() -> None:
    member = "<distributed-queue-member name='m'><physical-destination-name>Q</physical-destination-name>"
    limit = "<delivery-failure-params><redelivery-limit>3</redelivery-limit></delivery-failure-params>"
    policies = load_policies(
        f"<weblogic-jms><distributed-queue name='D'>{member}</distributed-queue-member></distributed-queue>"
        f"<queue name='Q'>{limit}</queue></weblogic-jms>"
    )
    assert policies.resolve("D").dead_after == 4
