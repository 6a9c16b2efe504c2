# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests address-settings: fields, merging, delays, ends.

H1 to H17 are the vectors of the five-languages facts: the user manual of Artemis (doc), its own tests and classes
(src), or arithmetic on those (derived).
"""

from __future__ import annotations

import random
from contextlib import suppress
from xml.sax.saxutils import escape, quoteattr

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from redeliver_mw.errors import PolicyError
from redeliver_mw.message import Destination, DestinationKind
from redeliver_mw.policy import (
    Backoff,
    DeadLetter,
    Discard,
    Expiry,
    PolicyMap,
    Redeliver,
    RedeliveryPolicy,
    Target,
    load_policies,
)
from redeliver_mw.policy.artemis_delays import ArtemisDelays
from redeliver_mw.policy.destinations import MapEntry
from redeliver_mw.policy.formats.artemis import reader, writer
from tests.policy.writing import difference, maps

EXAMPLE = """<address-settings>
  <address-setting match="#"><dead-letter-address>DLA</dead-letter-address><max-delivery-attempts>5</max-delivery-attempts></address-setting>
  <address-setting match="shop.orders.#"><redelivery-delay>2000</redelivery-delay><redelivery-delay-multiplier>3</redelivery-delay-multiplier><max-redelivery-delay>9000</max-redelivery-delay></address-setting>
  <address-setting match="shop.orders.vip"><max-delivery-attempts>-1</max-delivery-attempts></address-setting>
</address-settings>"""


class Coin(random.Random):
    """Gives the draws that it was given: the first of a pair is the coin (below 0.5 is plus), the second its share."""

    def __init__(self, *draws: float) -> None:
        super().__init__()
        self.draws = list(draws)

    def random(self) -> float:
        return self.draws.pop(0)


def together(**matches: str) -> PolicyMap:
    return reader.read(f"<address-settings>{''.join(matches.values())}</address-settings>")


def setting(match: str = "#", **fields: object) -> str:
    body = "".join(f"<{name.replace('_', '-')}>{value}</{name.replace('_', '-')}>" for name, value in fields.items())
    return f'<address-setting match="{match}">{body}</address-setting>'


def one(**fields: object) -> RedeliveryPolicy:
    return reader.read(setting(**fields)).resolve("orders")


def milliseconds(policy: RedeliveryPolicy, count: int) -> list[float]:
    return [round(policy.backoff.span(failures).base * 1000, 6) for failures in range(1, count + 1)]


def end(policy: RedeliveryPolicy, failures: int) -> str:
    decision = policy.decide(failures)
    return (
        "to " + ", ".join(map(str, decision.targets)) if isinstance(decision, DeadLetter) else type(decision).__name__
    )


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param((5000, 2, 15000), [5000, 10000, 15000, 15000], id="H1 doc"),
        pytest.param((1000, 3, None), [1000, 3000, 9000, 10000, 10000], id="H4 derived"),
        pytest.param((1000, 0.5, None), [1000, 500, 250, 125, 62], id="H5 derived"),
        pytest.param((5000, 1, 3000), [3000, 3000, 3000], id="H6 derived"),
        pytest.param((0, 2, 100), [0, 0, 0], id="H7 derived"),
        pytest.param((-5, 2, 100), [0, 0], id="a delay below 0 is none"),
        pytest.param((1000, 2, -1), [0, 0], id="a maximum of -1 cuts every delay to now"),
        pytest.param((100, 1.15, 10**6), [100, 114, 132], id="binary fractions are cut, not rounded"),
    ],
)
def test_delays(fields: tuple[int, float, int | None], expected: list[float]) -> None:
    delay, multiplier, most = fields
    given_most = {} if most is None else {"max_redelivery_delay": most}
    policy = one(redelivery_delay=delay, redelivery_delay_multiplier=multiplier, **given_most)
    assert milliseconds(policy, len(expected)) == expected


@pytest.mark.parametrize(
    ("most", "expected"),
    [pytest.param(15000, [875, 1375, 975], id="H2 doc"), pytest.param(1200, [875, 1200, 975], id="H3 derived")],
)
def test_jitter_comes_before_the_cut(most: int, expected: list[int]) -> None:
    policy = one(redelivery_delay=1000, redelivery_collision_avoidance_factor=0.5, max_redelivery_delay=most)
    coin = Coin(0.9, 0.25, 0.1, 0.75, 0.9, 0.05)
    decisions = [policy.decide(1) for _ in expected]
    drawn = [decision.draw(coin) for decision in decisions if isinstance(decision, Redeliver)]
    assert [delay * 1000 for delay in drawn] == expected


@given(st.integers(0, 10**6), st.floats(0, 9), st.floats(0, 1), st.integers(0, 10**7), st.integers(1, 200))
def test_a_drawn_delay_is_within_its_span(
    delay: int, multiplier: float, factor: float, most: int, failures: int
) -> None:
    growth = ArtemisDelays(delay, multiplier, most, factor)
    low, high = growth.span(failures)[1:]
    assert low <= growth.draw(failures, random.Random(failures)) <= high <= growth.longest(None)
    assert high <= most / 1000


@pytest.mark.parametrize("attempts", [1, 2, 3, 16])
def test_as_many_deliveries_as_attempts_and_then_the_dead_letter_address(attempts: int) -> None:
    """These are H8 and H9 (src)."""
    policy = one(max_delivery_attempts=attempts, dead_letter_address="ad1")
    assert policy.dead_after == attempts
    assert all(isinstance(policy.decide(failures), Redeliver) for failures in range(1, attempts))
    assert end(policy, attempts) == "to queue:ad1"


def test_without_a_dead_letter_address_a_message_is_dropped_and_a_warning_says_so() -> None:
    """This is H10 (src)."""
    policies = reader.read(setting(max_delivery_attempts=1))
    assert policies.resolve("orders").decide(1) == Discard("exhausted")
    assert policies.warnings == ("#: no dead-letter-address, so a message is dropped after 1 failure",)


def test_the_exact_setting_decides_and_only_its_address_receives() -> None:
    """This is H11 (src)."""
    wild = setting("*", max_delivery_attempts=3, dead_letter_address="d")
    policies = together(wild=wild, exact=setting("queue1", max_delivery_attempts=4, dead_letter_address="s"))
    assert end(policies.resolve("queue1"), 3) == "Redeliver"
    assert end(policies.resolve("queue1"), 4) == "to queue:s"
    assert end(policies.resolve("queue2"), 3) == "to queue:d"


@pytest.mark.parametrize("attempts", [-1, 0, -7])
def test_no_attempts_are_endless_ones(attempts: int) -> None:
    """This is H12 (src)."""
    policy = one(max_delivery_attempts=attempts, dead_letter_address="DLA")
    assert policy.dead_after is None
    assert isinstance(policy.decide(10**6), Redeliver)


def test_the_first_setting_that_sets_a_field_wins() -> None:
    """This is H13 (src): the closest has DLA, exp, attempts 1000; behind it stand exp2, delay 2003, multiplier 2.5."""
    near = setting("a", dead_letter_address="DLA", expiry_address="exp", max_delivery_attempts=1000)
    far = setting("#", expiry_address="exp2", redelivery_delay=2003, redelivery_delay_multiplier=2.5)
    policy = together(far=far, near=near).resolve("a")
    assert policy.dead_after == 1000
    assert [str(target) for target in policy.targets] == ["queue:DLA"]
    assert str(policy.expiry.target) == "queue:exp"
    assert milliseconds(policy, 2) == [2003, 5007]


H14 = ["#", "a", "a.#", "a.*", "a.b.c", "a.*.c", "a.d.c", "a.b.#", "a.b", "a.b.c.#", "a.b.c.d", "a.*.*.d", "a.*.d.#"]


@pytest.mark.parametrize(
    ("name", "winner"),
    [
        ("a", "a"),
        ("a.x", "a.*"),
        ("a.b.x", "a.b.#"),
        ("a.x.c", "a.*.c"),
        ("a.b.x.d", "a.*.*.d"),
        ("a.d.d.g", "a.*.d.#"),
        ("zzz.z", "#"),
    ],
)
@pytest.mark.parametrize("shuffle", range(3))
def test_the_closest_pattern(name: str, winner: str, shuffle: int) -> None:
    """This is H14 (src), in three orders of writing."""
    keys = random.Random(shuffle).sample(H14, len(H14))
    policies = together(**{key: setting(key, dead_letter_address=f"for-{H14.index(key)}") for key in keys})
    assert end(policies.resolve(name), 10) == f"to queue:for-{H14.index(winner)}"


def test_the_example_of_three_settings() -> None:
    """This is H17 (derived)."""
    policies = reader.read(EXAMPLE)
    vip, other = policies.resolve("shop.orders.vip"), policies.resolve("shop.orders.x")
    assert milliseconds(vip, 4) == milliseconds(other, 4) == [2000, 6000, 9000, 9000]
    assert vip.dead_after is None
    assert (end(other, 4), end(other, 5)) == ("Redeliver", "to queue:DLA")
    assert milliseconds(policies.resolve("elsewhere"), 2) == [0, 0]
    assert policies.warnings == ()


def test_the_worked_example_of_the_module() -> None:
    shop = setting(
        "shop.#",
        dead_letter_address="DLA",
        max_delivery_attempts=4,
        redelivery_delay=2000,
        redelivery_delay_multiplier=3,
        max_redelivery_delay=9000,
    )
    policies = together(shop=shop, vip=setting("shop.vip", max_delivery_attempts=-1))
    assert milliseconds(policies.resolve("shop.orders"), 3) == [2000, 6000, 9000]
    assert end(policies.resolve("shop.orders"), 4) == "to queue:DLA"
    assert milliseconds(policies.resolve("shop.vip"), 100)[-1] == 9000


def test_an_address_that_nothing_matches_has_the_defaults_of_the_broker() -> None:
    policies = reader.read(
        f'<core xmlns="urn:activemq:core"><address-settings>{setting("b")}</address-settings></core>'
    )
    assert policies.resolve("a").decide(10) == Discard("exhausted")
    assert isinstance(policies.resolve("a").decide(9), Redeliver)
    assert "no address-setting matches" in policies.warnings[-1]


@pytest.mark.parametrize("root", ["urn:hornetq", "urn:jbm"])
def test_jms_names_of_hornetq_and_jboss_messaging_lose_their_prefix(root: str) -> None:
    """The texts are the seed's two fragments, made whole."""
    policies = load_policies(
        f'<configuration xmlns="{root}"><address-settings>'
        + setting(
            "jms.queue.exampleQueue",
            redelivery_delay=5000,
            dead_letter_address="jms.queue.deadLetterQueue",
            max_delivery_attempts=3,
        )
        + setting("jms.topic.#", dead_letter_address="jms.topic.dead")
        + "</address-settings></configuration>"
    )
    queue = policies.resolve("exampleQueue")
    assert milliseconds(queue, 2) == [5000, 5000]
    assert end(queue, 3) == "to queue:deadLetterQueue"
    assert end(policies.resolve("exampleQueue", "topic"), 10) == "to topic:dead"
    assert policies.resolve("other").decide(10) == Discard("exhausted")


def test_auto_created_resources_are_a_queue_of_the_sources_own() -> None:
    fields = {"dead_letter_address": "DLA", "auto_create_dead_letter_resources": "true"}
    decision = one(**fields).decide(10)
    assert isinstance(decision, DeadLetter)
    assert str(decision.targets[0].resolve(Destination("orders"))) == "queue:DLQ.orders"
    assert end(one(**fields, dead_letter_queue_prefix="", dead_letter_queue_suffix=".dead"), 10) == "to queue:$.dead"
    assert one(auto_create_dead_letter_resources="true").decide(10) == Discard("exhausted")


def test_an_empty_address_unsets_an_inherited_one() -> None:
    policies = together(
        far=setting("#", dead_letter_address="DLA", expiry_address="EXP"),
        near=setting("quiet", dead_letter_address="", expiry_address=""),
    )
    quiet = policies.resolve("quiet")
    assert quiet.decide(10) == Discard("exhausted")
    assert quiet.expired() == Discard("expired")
    loud = policies.resolve("loud").expired()
    assert isinstance(loud, DeadLetter)
    assert str(loud.targets[0]) == "queue:EXP"


def test_of_two_settings_with_one_pattern_the_first_counts_alone() -> None:
    """Artemis 2.44 was seen to log `Duplicate address-setting match found … These settings will be ignored`."""
    policies = together(first=setting("a", redelivery_delay=5), second=setting("a", dead_letter_address="D"))
    assert milliseconds(policies.resolve("a"), 1) == [5]
    assert policies.resolve("a").decide(10) == Discard("exhausted")
    assert "twice; the later one is ignored" in policies.warnings[0]


def test_of_two_settings_with_one_jms_pattern_the_last_counts_alone() -> None:
    """FileConfigurationParser of HornetQ puts one after the other into a map."""
    name = "jms.queue.a"
    policies = together(first=setting(name, redelivery_delay=5), second=setting(name, dead_letter_address="D"))
    assert milliseconds(policies.resolve("a"), 1) == [0]
    assert end(policies.resolve("a"), 10) == "to queue:D"
    assert "twice; the later one replaces the earlier" in policies.warnings[0]


def test_a_queue_has_the_settings_of_its_address() -> None:
    """This was seen on Artemis 2.44, in both directions."""
    policies = together(a=setting("a.b", redelivery_delay=5), b=setting("c::eu", redelivery_delay=7))
    assert milliseconds(policies.resolve("a.b::eu.x"), 1) == [5]
    assert milliseconds(policies.resolve("c"), 1) == milliseconds(policies.resolve("c::us"), 1) == [7]
    assert "counts for the whole address c" in policies.warnings[0]


@pytest.mark.parametrize(
    ("one", "other", "told"),
    [
        ("a.*.#", "*.b.#", True),
        ("a*.b.#", "*.bb.#", False),
        ("a.*.#", "a.b.#", True),
        ("a.b.#", "a.c.#", False),
        ("b.*.#", "a.b.#", False),
        ("a.*", "*.b", False),
    ],
)
def test_contradictions_of_equal_rank_are_a_warning(one: str, other: str, told: bool) -> None:
    """Artemis 2.44 was seen to take now the first written of such two, now the last."""
    near, far = setting(one, redelivery_delay=5, max_delivery_attempts=4), setting(other, redelivery_delay=7)
    warnings = together(near=near, far=far).warnings
    assert [line for line in warnings if "rank" in line] == told * [
        f"{one} and {other} are of equal rank and differ in redelivery-delay: Artemis takes either"
    ]
    assert "rank" not in "".join(together(near=near, far=far.replace("7", "5")).warnings)


def test_counts_before_delivery_are_a_warning_that_names_crash_safe() -> None:
    core = "<core><persist-delivery-count-before-delivery>true</persist-delivery-count-before-delivery>"
    core += f"<address-settings>{setting('#')}</address-settings></core>"
    assert "crash_safe" in reader.read(core).warnings[0]
    assert "crash_safe" not in "".join(reader.read(core.replace("true", "false")).warnings)


def test_a_misspelt_field_is_a_warning_and_foreign_ones_are_passed_over() -> None:
    policies = reader.read(
        setting(
            max_delivery_atempts=3,
            dead_letter_address="D",
            redistribution_delay=1000,
            max_size_bytes=10,
            address_full_policy="PAGE",
        )
    )
    assert policies.warnings == (
        "line 1, column 28, <max-delivery-atempts>: passed over; did you mean max-delivery-attempts?",
    )


def test_all_that_is_wrong_is_reported_in_one_pass_with_line_and_cure() -> None:
    text = "\n".join(
        [
            "<address-settings>",
            setting("a.#.b"),
            setting("b", redelivery_delay="soon", redelivery_collision_avoidance_factor=1.5),
            setting("c", dead_letter_address="D$", auto_create_expiry_resources="maybe"),
            "</address-settings>",
        ]
    )
    with pytest.raises(PolicyError) as caught:
        reader.read(text)
    message = str(caught.value)
    assert message.startswith("5 problems")
    for part in (
        "line 2, column 1, <address-setting>",
        "'a.#.b'",
        "line 3",
        "'soon'",
        "from 0 to 1",
        "'D$'",
        "'maybe'",
    ):
        assert part in message


def test_strict_refuses_the_endless_numbers_that_the_manual_does_not_know() -> None:
    assert reader.read(setting(max_delivery_attempts=-1), strict=True).resolve("a").dead_after is None
    with pytest.raises(PolicyError, match="-1"):
        reader.read(setting(max_delivery_attempts=0), strict=True)


anything = settings(suppress_health_check=[HealthCheck.too_slow])


@anything
@given(
    st.dictionaries(st.sampled_from([*reader.FIELDS, "other"]), st.text(max_size=12) | st.integers().map(str)),
    st.text(alphabet="ab.*#$,{ ", max_size=8),
)
def test_whatever_a_setting_holds_only_a_policy_error_comes_out(fields: dict[str, str], match: str) -> None:
    body = "".join(f"<{name}>{escape(value)}</{name}>" for name, value in fields.items())
    with suppress(PolicyError):
        policies = reader.read(f"<address-setting match={quoteattr(match)}>{body}</address-setting>")
        assert policies.resolve("a.b").decide(1)


@anything
@given(st.text())
def test_whatever_the_text_is_only_a_policy_error_comes_out(text: str) -> None:
    with suppress(PolicyError):
        reader.read(text)


@settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow])
@given(maps(["A", "A.B", "A.*", "*.B", "A.>", ">", "A.*.C"]))
def test_what_is_written_and_loses_nothing_decides_alike_when_it_is_read(policies: PolicyMap) -> None:
    written = writer.write(policies)
    again = reader.read(written.text)
    if not written.lost:
        assert difference(policies, again) == ""


@pytest.mark.parametrize("kinds", [("queue", None), (None, "queue")])
def test_an_entry_for_one_kind_and_one_for_both_are_no_match_that_stands_twice(
    kinds: tuple[DestinationKind | None, ...],
) -> None:
    given = {"queue": RedeliveryPolicy(3, 1), None: RedeliveryPolicy(4, 1)}
    written = writer.write_with_prefixes(PolicyMap([MapEntry("A", kind, given[kind]) for kind in kinds]))
    again = reader.read(written.text)
    assert (again.resolve("A").dead_after, again.resolve("A", "topic").dead_after) == (3, 4)
    assert not any("twice" in line for line in again.warnings)


def test_plain_policies_lose_nothing() -> None:
    policies = PolicyMap(
        {
            "ORDERS.>": RedeliveryPolicy(5, Backoff.exponential(1, 3, cap=60), expiry=Expiry("discard")),
            "topic:PRICES": RedeliveryPolicy(None, 2, None),
            "queue:FAST": RedeliveryPolicy(3, ArtemisDelays(100, 1.5, 900, 0.25), "topic:dead"),
        },
        RedeliveryPolicy(2, 0, "queue:$.x", "discard"),
    )
    written = writer.write_with_prefixes(policies)
    assert written.lost == ()
    again = reader.read(written.text)
    assert difference(policies, again) == ""
    assert writer.write(again).text == written.text


@pytest.mark.parametrize(
    ("policy", "lost"),
    [
        (RedeliveryPolicy(3, 1, ["queue:a", "queue:b"]), "#: the target queue:b: there is one target, queue:a"),
        (RedeliveryPolicy(4, [1, 5, 2]), "delays"),
        (RedeliveryPolicy(3, 1, fatal=ValueError), "rules by exception"),
        (RedeliveryPolicy(3, 1, expiry=Expiry("log")), "not logged"),
        (RedeliveryPolicy(3, 0.0005), "delays (0.0005 s): the nearest"),
        (RedeliveryPolicy(9, Backoff.exponential(1, 2, cap=4).jittered(0.5)), "delays"),
    ],
)
def test_what_address_settings_cannot_say_is_listed(policy: RedeliveryPolicy, lost: str) -> None:
    written = writer.write(PolicyMap({}, policy))
    assert any(lost in line for line in written.lost)
    assert reader.read(written.text).resolve("x").dead_after == policy.dead_after


def test_its_own_text_comes_back_as_it_was() -> None:
    assert writer.write(reader.read(EXAMPLE)).text == EXAMPLE


def test_without_prefixes_an_address_has_the_setting_of_its_queue_and_the_topics_is_lost() -> None:
    given = [MapEntry("A", "topic", RedeliveryPolicy(4, 1)), MapEntry("A", "queue", RedeliveryPolicy(3, 1))]
    written = writer.write(PolicyMap(given))
    assert 'match="A"' in written.text
    assert "jms." not in written.text
    assert reader.read(written.text).resolve("A").dead_after == 3
    assert [line for line in written.lost if line.startswith("topic:A: an address has one setting")]
    same = [MapEntry("A", "topic", RedeliveryPolicy(4, 1)), MapEntry("A", "queue", RedeliveryPolicy(4, 1))]
    assert writer.write(PolicyMap(same)).lost == ()


def test_with_prefixes_every_name_has_one() -> None:
    written = writer.write_with_prefixes(PolicyMap({"A.B": RedeliveryPolicy(3, 1, "queue:dead")}))
    assert 'match="jms.queue.A.B"' in written.text
    assert 'match="jms.topic.A.B"' in written.text
    assert ">jms.queue.dead<" in written.text


def test_a_destination_named_with_the_prefix_of_hornetq_has_the_setting_of_its_name() -> None:
    read = load_policies(
        '<address-settings><address-setting match="jms.queue.exampleQueue"><max-delivery-attempts>3'
        '</max-delivery-attempts></address-setting><address-setting match="jms.topic.exampleTopic">'
        "<max-delivery-attempts>4</max-delivery-attempts></address-setting></address-settings>"
    )
    assert read.resolve("jms.queue.exampleQueue").dead_after == read.resolve("exampleQueue").dead_after == 3
    assert read.resolve("jms.topic.exampleTopic").dead_after == read.resolve("exampleTopic", "topic").dead_after == 4
    assert [read.resolve(name).dead_after for name in ("jms.queue.other", "jms.queue.", "exampleTopic")] == [10] * 3


@pytest.mark.parametrize("attribute", ["", ' macth="orders"', ' name="orders"'])
def test_a_setting_without_a_match_says_what_to_write(attribute: str) -> None:
    with pytest.raises(PolicyError, match="it does not say for which addresses") as raised:
        load_policies(f"<address-setting{attribute}><max-delivery-attempts>3</max-delivery-attempts></address-setting>")
    assert raised.value.cure == 'Write match="...", a name or # for all'


@pytest.mark.parametrize(
    ("field", "written", "cure"),
    [
        ("redelivery-delay", "5s", "Write 5000: a delay is a whole number of milliseconds, without a unit"),
        ("max-redelivery-delay", "two", "Give a whole number of milliseconds from "),
        ("max-delivery-attempts", "${attempts:3}", "Write the value itself: placeholders are not looked up"),
    ],
)
def test_a_value_that_cannot_be_read_says_what_to_write(field: str, written: str, cure: str) -> None:
    with pytest.raises(PolicyError) as raised:
        load_policies(f'<address-setting match="a"><{field}>{written}</{field}></address-setting>')
    assert raised.value.cure.startswith(cure)


def test_what_the_default_loses_is_listed_where_an_entry_for_queues_is_written_for_all() -> None:
    plain = RedeliveryPolicy(2, 1.0, "queue:x", expiry=Expiry("redirect", Target("queue", "DLQ")))
    short = plain.replace(expiry=Expiry("redirect", Target("queue", "DLQ"), time_to_live=60.0))
    lost = writer.write(PolicyMap({"queue:>": plain}, default=short)).lost
    assert lost == ("topic:#: expiry redirect for 60 s: there the message never expires",)
