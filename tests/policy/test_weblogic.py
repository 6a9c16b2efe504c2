# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests WebLogic's JMS module: templates, limits, delays, error destinations, expiry.

W1 to W11 are the vectors of the five-languages facts; all of them are readings of the manual page that is the seed.
"""

from __future__ import annotations

from contextlib import suppress
from xml.sax.saxutils import escape

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from redeliver_mw.errors import PolicyError
from redeliver_mw.policy import DeadLetter, Discard, Expiry, PolicyMap, Redeliver, RedeliveryPolicy, load_policies
from redeliver_mw.policy.formats.weblogic import reader, writer
from tests.policy.writing import difference, maps

EXAMPLE = """<weblogic-jms xmlns="http://xmlns.oracle.com/weblogic/weblogic-jms">
  <template name="Slow">
    <delivery-params-overrides><redelivery-delay>7000</redelivery-delay></delivery-params-overrides>
    <delivery-failure-params><redelivery-limit>2</redelivery-limit></delivery-failure-params>
  </template>
  <queue name="Work"><sub-deployment-name>srv1</sub-deployment-name><template>Slow</template>
    <delivery-failure-params><error-destination>WorkErr</error-destination><expiration-policy>Redirect</expiration-policy></delivery-failure-params>
  </queue>
  <queue name="WorkErr"><sub-deployment-name>srv1</sub-deployment-name></queue>
</weblogic-jms>
"""
E = '<queue name="E"/>'


def tags(**fields: object) -> str:
    return "".join(f"<{name.replace('_', '-')}>{value}</{name.replace('_', '-')}>" for name, value in fields.items())


def failing(**fields: object) -> str:
    return f"<delivery-failure-params>{tags(**fields)}</delivery-failure-params>"


def overriding(**fields: object) -> str:
    return f"<delivery-params-overrides>{tags(**fields)}</delivery-params-overrides>"


def module(*parts: str) -> PolicyMap:
    return reader.read(f"<weblogic-jms>{''.join(parts)}</weblogic-jms>")


def work(*parts: str, beside: str = E) -> RedeliveryPolicy:
    return module(f'<queue name="Work">{"".join(parts)}</queue>', beside).resolve("Work")


def end(policy: RedeliveryPolicy, failures: int) -> str:
    decision = policy.decide(failures)
    return (
        "to " + ", ".join(map(str, decision.targets)) if isinstance(decision, DeadLetter) else type(decision).__name__
    )


def delays(policy: RedeliveryPolicy, count: int) -> list[float]:
    return [policy.backoff.span(failures).base * 1000 for failures in range(1, count + 1)]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param(
            {"redelivery_limit": 2, "error_destination": "E"}, ["Redeliver", "Redeliver", "to queue:E"], id="W1"
        ),
        pytest.param({"redelivery_limit": 0, "error_destination": "E"}, ["to queue:E"], id="W2"),
        pytest.param({"redelivery_limit": 2}, ["Redeliver", "Redeliver", "Discard"], id="W3"),
        pytest.param({"redelivery_limit": -1, "error_destination": "E"}, ["Redeliver"] * 100, id="W4 no limit"),
    ],
)
def test_a_limit_counts_redeliveries(fields: dict[str, object], expected: list[str]) -> None:
    policy = work(failing(**fields))
    assert [end(policy, failures) for failures in range(1, len(expected) + 1)] == expected


def test_the_senders_limit_counts_where_the_destination_has_none() -> None:
    """This is W4: limit 1 of the sender's is two deliveries, then the error destination."""
    open_, closed = failing(error_destination="E"), failing(error_destination="E", redelivery_limit=4)
    limited = reader.with_senders_limit(work(open_), 1)
    assert [end(limited, failures) for failures in (1, 2)] == ["Redeliver", "to queue:E"]
    assert reader.with_senders_limit(work(open_), -1) == work(open_)
    assert reader.with_senders_limit(work(closed), 1) == work(closed)
    assert end(reader.with_senders_limit(work(), 0), 1) == "Discard"
    other = RedeliveryPolicy(None)
    assert reader.with_senders_limit(other, 1) == other


@pytest.mark.parametrize(("override", "expected"), [(-1, 500), (0, 0), (3000, 3000)])
def test_an_override_of_minus_one_is_the_consumers_delay(override: int, expected: int) -> None:
    """This is W5."""
    factory = f'<connection-factory name="F"><default-delivery-params>{tags(default_redelivery_delay=500)}'
    factory += "</default-delivery-params></connection-factory>"
    policy = work(overriding(redelivery_delay=override), beside=factory)
    assert delays(policy, 3) == [expected] * 3


def test_a_destination_stands_over_its_template_one_by_one() -> None:
    """This is W6."""
    policies = load_policies(EXAMPLE)
    policy = policies.resolve("Work")
    assert delays(policy, 2) == [7000, 7000]
    assert [end(policy, failures) for failures in (2, 3)] == ["Redeliver", "to queue:WorkErr"]
    assert isinstance(policies.resolve("WorkErr").decide(10**6), Redeliver)
    assert isinstance(policies.resolve("elsewhere").decide(10**6), Redeliver)
    assert policies.warnings == ()


def test_a_minus_one_that_is_written_stands_over_the_template() -> None:
    template = f'<template name="T">{failing(redelivery_limit=2)}{overriding(redelivery_delay=9)}</template>'
    policy = work(tags(template="T"), failing(redelivery_limit=-1), overriding(redelivery_delay=-1), beside=template)
    assert policy.dead_after is None
    assert delays(policy, 1) == [0]


def test_a_template_names_error_destinations_by_subdeployment() -> None:
    group = f'<group-params sub-deployment-name="s">{tags(error_destination="E")}</group-params>'
    template = f'<template name="T">{failing(redelivery_limit=0)}{group}</template>'
    here = f'<queue name="E">{tags(sub_deployment_name="s")}</queue>'
    assert end(work(tags(sub_deployment_name="s", template="T"), beside=template + here), 1) == "to queue:E"
    assert end(work(tags(sub_deployment_name="t", template="T"), beside=template + here), 1) == "Discard"


@pytest.mark.parametrize(("life", "expected"), [("60000", 60.0), ("0", None), ("-1", None), (None, None)])
def test_a_redirected_message_lives_as_long_as_its_new_destination_says(
    life: str | None, expected: float | None
) -> None:
    """This is W7: the message lives until now + 60000 ms, or for ever."""
    error = f'<queue name="E">{overriding(time_to_live=life) if life else ""}</queue>'
    policy = work(failing(error_destination="E", expiration_policy="Redirect"), beside=error)
    expired = policy.expired()
    assert isinstance(expired, DeadLetter)
    assert [str(target) for target in expired.targets] == ["queue:E"]
    assert policy.expiry.time_to_live == expected


@pytest.mark.parametrize("place", ["queue", "template", "emptied"])
def test_redirect_without_an_error_destination_is_refused(place: str) -> None:
    """This is W8, and also that an error destination may not be taken away while it is in use."""
    redirect = failing(expiration_policy="Redirect", **({"error_destination": "E"} if place == "emptied" else {}))
    template = f'<template name="T">{redirect}</template>'
    own = (
        redirect
        if place == "queue"
        else tags(template="T") + (failing(error_destination="") if place == "emptied" else "")
    )
    with pytest.raises(PolicyError, match="Redirect without an error-destination") as caught:
        work(own, beside=template + E)
    assert caught.value.where.startswith("line 1, column 15, <queue> Work")
    assert caught.value.cure


HEADERS = {"JMSMessageID": "ID:1", "JMSPriority": 4}
PROPERTIES = {"orderId": 7, "name": "x"}


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        pytest.param("%HEADER%,orderId", HEADERS | {"orderId": 7}, id="W9"),
        pytest.param("", {"JMSMessageID": "ID:1"}, id="W10"),
        pytest.param("%header%, %Properties%", HEADERS | PROPERTIES, id="all"),
        pytest.param("ORDERID, JMSPriority", {"JMSMessageID": "ID:1", "JMSPriority": 4}, id="names in their own case"),
    ],
)
def test_what_is_logged_of_an_expired_message(items: str, expected: dict[str, object]) -> None:
    policy = work(failing(expiration_policy="Log", expiration_logging_policy=items))
    assert policy.expired() == Discard("expired")
    assert policy.expiry.action == "log"
    assert policy.expiry.logged(HEADERS, PROPERTIES) == expected


@pytest.mark.parametrize("policy", ["None", "Discard", "discard", "", None])
def test_an_expired_message_is_dropped_silently(policy: str | None) -> None:
    """This is W11."""
    read = work(failing(error_destination="E", **({} if policy is None else {"expiration_policy": policy})))
    assert read.expired() == Discard("expired")
    assert read.expiry.action == "discard"


def test_a_limit_without_an_error_destination_is_a_warning() -> None:
    policies = module(f'<queue name="Work">{failing(redelivery_limit=2)}</queue>')
    assert "dropped after 3 failures" in policies.warnings[0]


def test_the_kind_of_the_error_destination_is_looked_up() -> None:
    policy = work(failing(redelivery_limit=0, error_destination="T"), beside='<topic name="T"/>')
    assert end(policy, 1) == "to topic:T"
    policies = module(f'<queue name="Work">{failing(redelivery_limit=0, error_destination="far")}</queue>')
    assert end(policies.resolve("Work"), 1) == "to queue:far"
    assert "not in this module" in policies.warnings[0]


def test_queues_and_topics_of_one_name_are_two() -> None:
    policies = module(f'<topic name="N">{failing(redelivery_limit=0)}</topic>', f'<queue name="N">{failing()}</queue>')
    assert end(policies.resolve("N", "topic"), 1) == "Discard"
    assert end(policies.resolve("N"), 1) == "Redeliver"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            f'<uniform-distributed-queue name="U">{failing(error_destination="E")}</uniform-distributed-queue>{E}',
            "uniform distributed one",
        ),
        (
            f'<queue name="Q">{failing(error_destination="U")}</queue><uniform-distributed-queue name="U"/>',
            "standalone one",
        ),
        (
            f'<uniform-distributed-queue name="U">{tags(sub_deployment_name="a")}{failing(error_destination="V")}'
            f'</uniform-distributed-queue><uniform-distributed-queue name="V">{tags(sub_deployment_name="b")}'
            "</uniform-distributed-queue>",
            "another subdeployment",
        ),
        (f'<queue name="Q">{tags(template="Slwo")}</queue><template name="Slow"/>', "Did you mean Slow?"),
        (f'<queue name="Q">{failing(redelivery_limit="-2")}</queue>', "from -1 to 2147483647"),
        (f'<queue name="Q">{overriding(redelivery_delay="9223372036854775808")}</queue>', "from -1 to"),
        (f'<queue name="Q">{failing(expiration_policy="Redirekt")}</queue>', "Did you mean Redirect?"),
        (f'<queue name="Q">{failing(error_destination="a$b")}</queue>', "stands for the name of the source"),
        ("<queue/>", "is no name"),
    ],
)
def test_what_is_illegal_is_refused_with_its_cure(text: str, expected: str) -> None:
    with pytest.raises(PolicyError) as caught:
        module(text)
    assert expected in str(caught.value)
    assert "line 1" in str(caught.value)


def test_all_that_is_wrong_is_reported_in_one_pass() -> None:
    with pytest.raises(PolicyError, match="2 problems") as caught:
        module(f'<queue name="A">{failing(redelivery_limit="x")}</queue>', "<topic/>")
    assert "'x'" in str(caught.value)


def test_the_manuals_header_without_its_second_sign_is_a_warning_and_strictly_an_error() -> None:
    text = (
        f'<weblogic-jms><queue name="Q">{failing(expiration_policy="Log", expiration_logging_policy="%header, name")}'
    )
    text += "</queue></weblogic-jms>"
    policies = reader.read(text)
    assert "Did you mean %header%?" in policies.warnings[0]
    assert policies.resolve("Q").expiry.logged(HEADERS, PROPERTIES) == {"JMSMessageID": "ID:1", "name": "x"}
    with pytest.raises(PolicyError, match="%header%"):
        reader.read(text, strict=True)


def test_unknown_elements_are_warnings_inside_the_blocks_and_nothing_elsewhere() -> None:
    policies = module(
        f'<queue name="Q"><maximum-message-size>9</maximum-message-size>{failing(redelivry_limit=1)}</queue>'
    )
    assert len(policies.warnings) == 2
    assert "did you mean redelivery-limit?" in policies.warnings[0]
    assert "nothing about redelivery" in policies.warnings[1]


ANYTHING = st.text(max_size=12) | st.integers().map(str) | st.sampled_from(["Redirect", "Log", "E", "Q", "T"])


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from(list(reader.KINDS)),
    st.dictionaries(st.sampled_from([*reader.FAILURE, "other"]), ANYTHING),
    st.dictionaries(st.sampled_from([*reader.OVERRIDES, "other"]), ANYTHING),
    ANYTHING,
)
def test_whatever_a_destination_holds_only_a_policy_error_comes_out(
    kind: str, failure: dict[str, str], overrides: dict[str, str], template: str
) -> None:
    inner = failing(**{key: escape(value) for key, value in failure.items()})
    inner += overriding(**{key: escape(value) for key, value in overrides.items()})
    with suppress(PolicyError):
        policies = module(
            f'<{kind} name="Q">{inner}{tags(template=escape(template))}</{kind}>', '<template name="T"/>', E
        )
        assert policies.resolve("Q").decide(1)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.text())
def test_whatever_the_text_is_only_a_policy_error_comes_out(text: str) -> None:
    with suppress(PolicyError):
        reader.read(text)


@settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow])
@given(maps(["A", "A.B", "B", "C", "DLQ"]), st.booleans())
def test_what_is_written_and_loses_nothing_decides_alike_when_it_is_read(policies: PolicyMap, plain: bool) -> None:
    if plain:
        policies = PolicyMap(policies.entries, RedeliveryPolicy(None, 0, None, expiry=Expiry("discard")))
    written = writer.write(policies)
    if "name=" not in written.text:  # no destination: a module without any is refused
        with pytest.raises(PolicyError, match="no policy of weblogic"):
            reader.read(written.text)
        return
    again = reader.read(written.text)
    if not written.lost:
        assert difference(policies, again) == ""


def test_policies_of_named_destinations_lose_nothing() -> None:
    policies = PolicyMap(
        {
            "queue:A": RedeliveryPolicy(3, 7, "queue:DLQ.$", expiry=Expiry("log", log="%header%,orderId")),
            "topic:B": RedeliveryPolicy(1, 5, "topic:dead"),
            "C": RedeliveryPolicy(2, 0.5, None, "discard"),
        },
        RedeliveryPolicy(None, 0, None),
    )
    written = writer.write(policies)
    assert written.lost == ()
    again = reader.read(written.text)
    assert difference(policies, again) == ""
    assert all("dropped" in warning for warning in again.warnings)


@pytest.mark.parametrize(
    ("policies", "lost"),
    [
        (
            PolicyMap({"A.>": RedeliveryPolicy()}, RedeliveryPolicy(None, 0, None)),
            "A.>: a module names each destination",
        ),
        (PolicyMap({}, RedeliveryPolicy(3, 1)), "all others: written as the template Default"),
        (PolicyMap({"A": RedeliveryPolicy(3)}, RedeliveryPolicy(None, 0, None)), "queue:A: delays"),
        (PolicyMap({"A": RedeliveryPolicy(3, 1, ["a", "b"])}, RedeliveryPolicy(None, 0, None)), "there is one target"),
    ],
)
def test_what_a_module_cannot_say_is_listed(policies: PolicyMap, lost: str) -> None:
    written = writer.write(policies)
    assert any(lost in line for line in written.lost)
    if "name=" in written.text:
        reader.read(written.text)


def test_its_own_text_comes_back_as_it_was() -> None:
    assert writer.write(reader.read(EXAMPLE)).text == EXAMPLE


@pytest.mark.timeout(10)
def test_hundreds_of_misspelled_templates_are_reported_in_no_time() -> None:
    templates = "".join(f"<template name='temp{n}'/>" for n in range(1000))
    queues = "".join(f"<queue name='q{n}'><template>tempp{n}</template></queue>" for n in range(700))
    with pytest.raises(PolicyError, match=r"700 problems.*Did you mean temp\d+\?.*and 690 more"):
        reader.read(f"<weblogic-jms>{templates}{queues}</weblogic-jms>")


@pytest.mark.parametrize(
    ("first", "second", "what"),
    [
        ("queue", "queue", "a second queue Q"),
        ("topic", "topic", "a second topic Q"),
        ("queue", "uniform-distributed-queue", "a second queue Q"),
        ("template", "template", "a second template Q"),
    ],
)
def test_a_second_element_of_one_name_is_an_error(first: str, second: str, what: str) -> None:
    limit = "<delivery-failure-params><redelivery-limit>3</redelivery-limit></delivery-failure-params>"
    module = f'<weblogic-jms><{first} name="Q">{limit}</{first}><{second} name="Q"/></weblogic-jms>'
    with pytest.raises(PolicyError, match=f"{what}. Leave one out"):
        load_policies(module)


@pytest.mark.parametrize("written", ["5s", "5 sec", "5000 ms"])
def test_a_delay_with_a_unit_says_what_to_write(written: str) -> None:
    delay = f"<delivery-params-overrides><redelivery-delay>{written}</redelivery-delay></delivery-params-overrides>"
    with pytest.raises(PolicyError, match="Write 5000: a delay is a whole number of milliseconds"):
        load_policies(f'<weblogic-jms><queue name="Q">{delay}</queue></weblogic-jms>')
