# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests the native language: what it reads, what it writes, and what it says to a mistake."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from redeliver_mw.errors import PolicyError
from redeliver_mw.message import Destination
from redeliver_mw.policy import (
    Accept,
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
from redeliver_mw.policy.activemq_delays import ActiveMQDelays
from redeliver_mw.policy.artemis_delays import ArtemisDelays
from redeliver_mw.policy.backoff import Chain, Clamp, FullJitter, Linear, Spread, Uniform
from redeliver_mw.policy.conditions import AllOf, Always, AnyOf, Message, Named, Not, OfType
from redeliver_mw.policy.formats.native import reader
from redeliver_mw.policy.formats.native.reader import read
from redeliver_mw.policy.formats.native.writer import write
from redeliver_mw.policy.stops import AfterFailures, AfterSeconds, AllStops, AnyStop

BACKOFFS: list[tuple[str, Backoff]] = [
    ("5", Backoff.constant(5)),
    ("[1, 5, 30]", Backoff.listed([1, 5, 30])),
    ("{ steps = { 3 = 1, 6 = 5 } }", Backoff.steps({3: 1, 6: 5})),
    ("{ initial = 2, multiplier = 1.5 }", Backoff.exponential(2, 1.5)),
    ("{ start = 10, increment = -2 }", Linear(10, -2)),
    ("{ between = [1, 4.5] }", Uniform(1, 4.5)),
    ("{ constant = 9, jitter = 0.1 }", Backoff.constant(9).jittered(0.1)),
    ("{ initial = 1, multiplier = 2, cap = 60 }", Backoff.exponential(1, 2, cap=60)),
    ("{ initial = 1, multiplier = 2, floor = 3 }", Clamp(Backoff.exponential(1, 2), 3, 1e9)),
    ("{ initial = 1, multiplier = 2, cap = 60, jitter = 0.5 }", Backoff.exponential(1, 2, cap=60).jittered(0.5)),
    (
        "{ of = { initial = 1, multiplier = 2, jitter = 0.5 }, cap = 60 }",
        Backoff.exponential(1).jittered(0.5).capped(60),
    ),
    ("{ constant = 1, jitter = 0.5, jitter_first = false }", Spread(Backoff.constant(1), 0.5, first=False)),
    ("{ initial = 1, multiplier = 3, full_jitter = 0.5 }", FullJitter(Backoff.exponential(1, 3), 0.5)),
    ("{ sum = [1, { between = [0, 2] }] }", Backoff.constant(1) + Uniform(0, 2)),
    ("{ chain = [1, { initial = 1, multiplier = 2 }] }", Chain((Backoff.constant(1), Backoff.exponential()))),
    ("{ of = [1, 2], jitter = 1 }", Spread(Backoff.listed([1, 2]), 1.0)),
    (
        "{ recurrence = { initial = 50, delay = 500, multiplier = 2, cap = 60, factor = 0.15 } }",
        ActiveMQDelays(50, 500, 2.0, 60, 0.15),
    ),
    ("{ growth = { delay = 50, multiplier = 2, cap = 60, factor = 0.15 } }", ArtemisDelays(50, 2, 60, 0.15)),
]
STOPS: list[tuple[str, Any]] = [
    ("3", AfterFailures(3)),
    ('"never"', AfterFailures(None)),
    ("{ seconds = 90 }", AfterSeconds(90)),
    ("{ failures = 3, seconds = 90 }", AnyStop((AfterFailures(3), AfterSeconds(90)))),
    ("{ all = [3, { seconds = 90 }] }", AllStops((AfterFailures(3), AfterSeconds(90)))),
    (
        "{ any = [{ all = [3, { seconds = 9 }] }, 8] }",
        AnyStop((AllStops((AfterFailures(3), AfterSeconds(9))), AfterFailures(8))),
    ),
]
RULES: list[tuple[str, Any]] = [
    ('"TimeoutError"', OfType((TimeoutError,))),
    ('["TimeoutError", "KeyError"]', OfType((TimeoutError, KeyError))),
    ('["shop.errors.SoldOut"]', Named(("shop.errors.SoldOut",))),
    ("true", Always(True)),
    ('{ message = "no stock" }', Message("no stock")),
    ('{ pattern = "no .*", flags = ["ignorecase"] }', Message(None, re.compile("no .*", re.IGNORECASE))),
    ('{ not = "KeyError" }', Not(OfType((KeyError,)))),
    ('{ any = ["KeyError", { message = "x" }] }', AnyOf((OfType((KeyError,)), Message("x")))),
    ('{ all = ["KeyError", { message = "x" }] }', AllOf((OfType((KeyError,)), Message("x")))),
]
WHOLE = """# everything that can stand in a file
syntax = "artemis"
match = "merge"

[default]
dead_after = { failures = 5, seconds = 3600 }
backoff = { initial = 1, multiplier = 3, cap = 20, jitter = 0.25, jitter_first = false }
dead_letter = ["queue:dead.$", { kind = "topic", name = " alarms " }]
retry_on = ["OSError", "requests.exceptions.ConnectionError"]
fatal = { pattern = "^schema", flags = ["ignorecase"] }
ignore = "KeyError"
expiry = { action = "log", log = "%header%,orderId" }
act = "arrival"
name = "all of it"

[default.arms.patient]
share = 0.05
dead_after = 9
backoff = [60, 600]

[default.arms."never say die"]
share = 0.01
on_dead = "keep"
ignore = "none"

[destinations."orders.#"]
backoff = [1, 2, 3]
arms = { brave = { share = 0.1, backoff = 0 } }

[destinations."topic:prices.*"]
on_dead = "discard"
expiry = { action = "redirect", target = "queue:late" }
"""


def policy(text: str) -> RedeliveryPolicy:
    found = read(text)
    assert not found.entries
    return found.default


def test_the_worked_example_of_the_manual_goes_as_described() -> None:
    text = re.findall(r"(?ms)^    (\[default\].*?)\n\n", reader.__doc__ or "")[-1].replace("\n    ", "\n")
    found = read(text).resolve("orders.eu")
    assert [found.decide(count).base for count in range(1, 5)] == [2, 6, 10, 10]
    end = found.decide(5)
    assert isinstance(end, DeadLetter)
    source = Destination("orders.eu")
    assert [str(target.resolve(source)) for target in end.targets] == ["queue:dead.orders.eu", "topic:alarms"]


@pytest.mark.parametrize(("text", "expected"), BACKOFFS)
def test_every_kind_of_delay_is_read_and_written(text: str, expected: Backoff) -> None:
    assert policy(f"backoff = {text}").backoff == expected
    assert f"backoff = {text}\n" in write(PolicyMap(None, RedeliveryPolicy(backoff=expected))).text


@pytest.mark.parametrize(("text", "expected"), STOPS)
def test_every_limit_is_read_and_written(text: str, expected: Any) -> None:
    assert policy(f"dead_after = {text}").stop == expected
    assert f"dead_after = {text}\n" in write(PolicyMap(None, RedeliveryPolicy(expected))).text


@pytest.mark.parametrize("key", ["retry_on", "fatal", "ignore"])
@pytest.mark.parametrize(("text", "expected"), RULES)
def test_every_rule_by_exception_is_read_and_written(key: str, text: str, expected: Any) -> None:
    assert getattr(policy(f"{key} = {text}"), key) == expected
    assert f"{key} = {text}\n" in write(PolicyMap(None, RedeliveryPolicy(**{key: expected}))).text


@pytest.mark.parametrize(
    ("text", "targets", "on_dead"),
    [
        ('dead_letter = "DEAD"', (Target("queue", "DEAD"),), "dead-letter"),
        ('dead_letter = ["topic:a", "same:$.b"]', (Target("topic", "a"), Target("same", "$.b")), "dead-letter"),
        ('dead_letter = { kind = "topic", name = "a " }', (Target("topic", "a "),), "dead-letter"),
        ("dead_letter = []", (), "keep"),
        ('on_dead = "keep"', (), "keep"),
        ('on_dead = "discard"', (), "discard"),
    ],
)
def test_the_end_is_a_target_or_several_or_none(text: str, targets: tuple[Target, ...], on_dead: str) -> None:
    found = policy(text)
    assert (found.targets, found.on_dead) == (targets, on_dead)
    assert read(write(read(text)).text) == read(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('"discard"', Expiry("discard")),
        ('"log"', Expiry("log")),
        ('{ action = "log", log = "%header%,orderId" }', Expiry("log", None, "%header%,orderId")),
        ('{ action = "redirect", target = "queue:late" }', Expiry("redirect", Target("queue", "late"))),
        (
            '{ action = "redirect", target = "queue:late", time_to_live = 60 }',
            Expiry("redirect", Target("queue", "late"), time_to_live=60),
        ),
    ],
)
def test_what_becomes_of_expired_messages(text: str, expected: Expiry) -> None:
    assert policy(f"expiry = {text}").expiry == expected
    assert f"expiry = {text}\n" in write(PolicyMap(None, RedeliveryPolicy(expiry=expected))).text


def test_an_empty_file_is_the_default_policy_with_a_warning() -> None:
    found = read("# nothing\n")
    assert found.default == RedeliveryPolicy()
    assert any("says nothing" in warning for warning in found.warnings)


def test_a_pyproject_has_it_under_tool_redeliver_beside_the_settings_of_an_app(tmp_path: Path) -> None:
    file = tmp_path / "pyproject.toml"
    file.write_text(
        '[project]\nname = "JMSJCA.redeliveryhandling="\n[tool.redeliver.app]\nurl = "memory://"\n'
        '[tool.redeliver.default]\ndead_after = 2\n[tool.redeliver.destinations."a.>"]\nbackoff = 9\n'
    )
    found = load_policies(file)
    assert found.resolve("b").dead_after == 2
    assert found.resolve("a.b").decide(1) == Redeliver(9, 9, 9)
    assert found.language == "native"


def test_an_entry_says_what_differs_from_the_default() -> None:
    found = read(
        'dead_after = 2\nfatal = "KeyError"\non_dead = "discard"\n'
        '[destinations."a.*"]\nfatal = "none"\n[destinations.b]\ndead_letter = "DEAD"\n'
    )
    assert found.resolve("a.x").fatal is None
    assert found.resolve("a.x").decide(2) == Discard("exhausted")
    assert found.resolve("b").decide(2) == DeadLetter((Target("queue", "DEAD"),), "exhausted")
    assert found.resolve("b").fatal == OfType((KeyError,))


def test_queue_and_topic_in_front_of_a_pattern_narrow_it() -> None:
    found = read('[destinations."topic:p"]\ndead_after = 1\n[destinations."queue:p"]\ndead_after = 2\n')
    assert [found.resolve("p", kind).dead_after for kind in ("topic", "queue")] == [1, 2]


def test_merge_takes_each_key_from_the_closest_entry_that_has_it() -> None:
    found = read(WHOLE)
    merged = found.resolve("orders.eu")
    assert merged.backoff == Backoff.listed([1, 2, 3])
    assert merged.name == "all of it"
    assert found.resolve("prices.gold", "topic").on_dead == "discard"
    assert found.resolve("prices.gold", "queue").on_dead == "dead-letter"


def test_all_that_can_stand_in_a_file_is_written_so_that_it_is_read_as_the_same() -> None:
    written = write(read(WHOLE))
    assert written.lost == ()
    assert read(written.text) == read(WHOLE)
    assert write(read(written.text)) == written


def test_an_arm_says_what_differs_from_the_policy_that_it_is_an_arm_of() -> None:
    found = read(WHOLE)
    keeps, patient = found.default.arms
    assert (keeps.name, keeps.propensity, patient.name, patient.propensity) == ("never say die", 0.01, "patient", 0.05)
    alone = found.default.alone
    assert patient.policy == alone.replace(dead_after=9, backoff=[60, 600])
    assert keeps.policy == alone.replace(on_dead="keep", ignore=None)
    (brave,) = found.resolve("orders.eu").arms
    assert brave.policy == alone.replace(backoff=0)
    assert found.resolve("prices.gold", "topic").arms == ()  # an entry has the arms that it says


def test_none_takes_arms_away_that_a_wider_entry_has() -> None:
    text = 'match = "merge"\n[destinations.">".arms.a]\nshare = 0.1\ndead_after = 1\n[destinations.b]\n'
    assert [arm.name for arm in read(text).resolve("b").arms] == ["a"]
    assert read(text + 'arms = "none"\n').resolve("b").arms == ()
    assert read(write(read(text + 'arms = "none"\n')).text).resolve("b").arms == ()


def test_arms_made_in_code_are_written_as_what_differs() -> None:
    patient = RedeliveryPolicy(9, 60.0, "topic:late", fatal=KeyError)
    policy = RedeliveryPolicy(5, 1.0, arms={"patient": (0.05, patient), "b": (0.1, {"on_dead": "discard"})})
    written = write(PolicyMap(None, policy))
    assert written.lost == ()
    assert written.text.endswith(
        '[default.arms.b]\nshare = 0.1\non_dead = "discard"\n\n'
        '[default.arms.patient]\nshare = 0.05\nfatal = "KeyError"\ndead_after = 9\nbackoff = 60\n'
        'dead_letter = "topic:late"\n'
    )
    assert read(written.text).default == policy


@pytest.mark.parametrize("match", ["best", "merge", "chain"])
def test_arms_of_entries_made_in_code_are_the_same_when_read_again(match: Any) -> None:
    arms = {"patient": (0.05, RedeliveryPolicy(9, 60.0, on_dead="keep")), "b": (0.1, {"dead_after": 1})}
    given = {
        ">": RedeliveryPolicy(4, [1, 2], "queue:all", fatal=KeyError, arms=arms),
        "a.>": {"dead_letter": "queue:a"},
        "a.b": {"backoff": 3, "arms": arms},
        "a.c": RedeliveryPolicy(2),
    }
    policies = PolicyMap(given, RedeliveryPolicy(3, ignore=OSError, arms={"c": (0.2, {"backoff": 9})}), match=match)
    written = write(policies)
    assert written.lost == ()
    for name in ("a", "a.b", "a.c", "a.d", "z"):
        assert read(written.text).resolve(name) == policies.resolve(name)


def test_a_rule_of_an_arm_that_is_code_is_lost_and_named() -> None:
    written = write(PolicyMap(None, RedeliveryPolicy(arms={"a": (0.5, {"fatal": lambda error: True})})))
    assert len(written.lost) == 1
    assert written.lost[0].startswith("default: arm a: fatal: ")


def test_an_exception_is_known_by_its_name_without_being_imported() -> None:
    found = policy('ignore = ["shop.errors.SoldOut", "KeyError"]')
    sold_out = type("SoldOut", (Exception,), {"__module__": "shop.errors"})
    late = type("Late", (sold_out,), {"__module__": "elsewhere"})
    assert found.decide(1, error=sold_out()) == Accept()
    assert found.decide(1, error=late()) == Accept()
    assert found.decide(1, error=KeyError()) == Accept()
    assert isinstance(found.decide(1, error=ValueError()), Redeliver)


def test_an_exception_is_known_by_a_name_that_a_loaded_module_passes_on() -> None:
    import json.decoder

    found = policy('ignore = ["json.JSONDecodeError"]')
    assert json.JSONDecodeError.__module__ == "json.decoder"
    assert found.decide(1, error=json.JSONDecodeError("x", "", 0)) == Accept()


def test_the_same_rule_in_code_and_in_a_file_is_the_same_version() -> None:
    from redeliver_mw.errors import Reject

    written = write(PolicyMap(None, RedeliveryPolicy(fatal=[Reject, KeyError])))
    assert written.lost == ()
    assert read(written.text).default.version == RedeliveryPolicy(fatal=[Reject, KeyError]).version


def test_a_rule_that_is_code_is_lost_and_named() -> None:
    written = write(PolicyMap({"a.>": RedeliveryPolicy(fatal=lambda error: True)}))
    assert len(written.lost) == 1
    assert written.lost[0].startswith("a.>: fatal: ")
    assert read(written.text).resolve("a.b").fatal is None


@pytest.mark.parametrize(
    ("text", "where", "said"),
    [
        ("x = [[[", "", "no TOML"),
        ("a = 1\nb = = 2\n", "line 2, column 5", "no TOML"),
        ("a = " + "9" * 5000, "", "too many digits"),
        ("[defalt]\ndead_after = 1", "line 1, defalt", "Did you mean 'default'?"),
        ("[default]\ndead_afer = 3", "line 2, default.dead_afer", "Did you mean 'dead_after'?"),
        ("backoff = { inital = 3 }", "line 1, backoff", "Did you mean 'initial'?"),
        ("backoff = { constant = 3, initial = 3 }", "line 1, backoff", "constant and initial"),
        ("backoff = { cap = 3 }", "line 1, backoff", "found none"),
        ("backoff = { constant = 3, multiplier = 3 }", "line 1, backoff", "unknown key 'multiplier'"),
        ("backoff = { chain = [1, { initial = -3 }] }", "line 1, backoff.chain[1]", "is -3"),
        ("backoff = { start = 1 }", "line 1, backoff.increment", "missing"),
        ("backoff = { steps = { x = 1 } }", "line 1, backoff.steps", "no number of failures"),
        ("backoff = { initial = nan }", "line 1, backoff", "finite"),
        ("backoff = { constant = 1, jitter_first = true }", "line 1, backoff.jitter_first", "no jitter"),
        ("backoff = { recurrence = { initial = 1.5 } }", "line 1, backoff.recurrence", "whole milliseconds"),
        ("backoff = { recurrence = { inital = 1 } }", "line 1, backoff.recurrence", "Did you mean 'initial'?"),
        ("backoff = { growth = { cap = 1 } }", "line 1, backoff.growth.delay", "missing"),
        (f"backoff = {{ growth = {{ delay = {10**400} }} }}", "line 1, backoff.growth.delay", "64 bits"),
        ("backoff = []", "line 1, backoff", "empty list"),
        ("backoff = true", "line 1, backoff", "Give seconds"),
        ("dead_after = 0", "line 1, dead_after", "1 or more"),
        ("dead_after = {}", "line 1, dead_after", "empty table"),
        ("dead_after = { any = [] }", "line 1, dead_after.any", "Give at least one"),
        ('dead_letter = "queue:"', "line 1, dead_letter", "names no dead-letter target"),
        ('dead_letter = { kind = "quue", name = "a" }', "line 1, dead_letter.kind", "Did you mean 'queue'?"),
        ('on_dead = "dicard"', "line 1, on_dead", "Did you mean 'discard'?"),
        ('fatal = "TimoutError"', "line 1, fatal", "Did you mean 'TimeoutError'?"),
        ('fatal = { pattern = "(" }', "line 1, fatal.pattern", "no regular expression"),
        ('expiry = "redirect"', "line 1, expiry", "go together"),
        ('expiry = { action = "discard", log = "x" }', "line 1, expiry.log", "goes with the action log"),
        ('syntax = "artmis"', "line 1, syntax", "Did you mean 'artemis'?"),
        ("dead_after = 3\n[default]\ndead_after = 3", "line 2, default", "at the top"),
        ("default = 3", "line 1, default", "Write [default]"),
        ('[destinations."a.>.b"]\nbackoff = 1', 'line 1, destinations."a.>.b"', "at the end"),
        ('[destinations."queue:a"]\nbackof = 1', 'line 2, destinations."queue:a".backof', "Did you mean 'backoff'?"),
        ("[tool.other]\na = 1", "", "no [tool.redeliver]"),
        ("[tool.redeliver]\ndead_after = -1", "line 2, tool.redeliver.dead_after", "1 or more"),
        ("name = 3", "line 1, name", "no text"),
        ("[default.arms]", "line 1, default.arms", "Write [default.arms.NAME]"),
        ("arms = 3", "line 1, arms", "no table"),
        ("[arms.a]\nbackoff = 1", "line 1, arms.a", "there is no share"),
        ("[arms.a]\nshare = 1.5", "line 2, arms.a.share", "below 1"),
        ('[arms.a]\nshare = "5%"', "line 2, arms.a.share", "0.05 is 5%"),
        ("[arms.main]\nshare = 0.1", "line 1, arms.main", "the policy itself"),
        ("[arms.a]\nshare = 0.6\n[arms.b]\nshare = 0.4", "line 3, arms.b", "come to 100%"),
        ("[default.arms.a]\nshare = 0.1\nbackof = 1", "line 3, default.arms.a.backof", "Did you mean 'backoff'?"),
        ("[arms.a]\nshare = 0.1\nbackoff = { inital = 3 }", "line 3, arms.a.backoff", "Did you mean 'initial'?"),
        ("[arms.a]\nshare = 0.1\n[arms.a.arms.b]\nshare = 0.1", "line 1, arms.a.arms", "unknown key 'arms'"),
        ('[destinations."a.>".arms.b]\nshare = 0', 'line 2, destinations."a.>".arms.b.share', "above 0"),
        ("share = 0.1", "line 1, share", "unknown key 'share'"),
    ],
)
def test_a_mistake_is_reported_with_line_path_and_the_nearest_right_spelling(text: str, where: str, said: str) -> None:
    with pytest.raises(PolicyError) as caught:
        read(text)
    assert caught.value.where.startswith(where)
    assert said in str(caught.value)


def test_all_mistakes_of_a_file_are_reported_in_one_pass() -> None:
    with pytest.raises(PolicyError, match="4 problems") as caught:
        read('mach = "best"\n[default]\ndead_after = 0\nact = "later"\n[destinations.a]\nexpiry = 3\n')
    for place in ("line 1, mach", "line 3, default.dead_after", "line 4, default.act", "line 6, destinations.a.expiry"):
        assert place in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "x = " + "[" * 1_000_000,
        "x = " + "{a=" * 1_000_000,
        "a." * 1_000_000 + "b = 1",
        "[" + "a." * 500_000 + "b]",
        "x = \x00",
        "x = '" + "y" * 5_000_000 + "'",
        "\n" * 1_000_000,
        "\n".join(f"[destinations.a{number}]\nbackof = 1" for number in range(5_000)),
    ],
    ids=["brackets", "braces", "dots", "dotted table", "NUL", "long", "lines", "mistakes"],
)
@pytest.mark.timeout(20)
def test_what_is_large_or_deep_ends_soon_and_only_in_a_policy_error(text: str) -> None:
    told = ""
    try:
        read(text)
    except PolicyError as error:
        told = str(error)
    assert len(told) < 10_000


@pytest.mark.parametrize(
    ("text", "what", "cure"),
    [
        ("dead_after = 0", "dead after 0 failures", 'Give 1 or more, or "never"'),
        (
            "expiry = 'redirect'",
            "redirect and a target go together",
            'Write { action = "redirect", target = "queue:EXPIRED" }',
        ),
        ("dead_after = 3\ndead_after = 4\n", "a key or a table stands there twice", "Leave one of the two out"),
        ("[default]\n[default]\n", "a key or a table stands there twice", "Leave one of the two out"),
    ],
)
def test_the_cure_of_a_mistake_is_written_in_toml(text: str, what: str, cure: str) -> None:
    with pytest.raises(PolicyError, match=what) as raised:
        load_policies(text)
    assert raised.value.cure == cure
