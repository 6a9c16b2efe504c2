# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests redeliver convert: a policy in another language, and what is lost on the way."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from redeliver_mw.cli.main import run
from redeliver_mw.message import DestinationKind
from redeliver_mw.policy import RedeliveryPolicy, Target, load_policies
from redeliver_mw.policy.formats import READERS

Capture = pytest.CaptureFixture[str]
TEXT = "5:1000; 10:5000; 50:move(queue:dlq$error)"
PROPERTIES = "the _JMSJCA_ properties: a handler cannot set them, and a dead letter does not carry them"
JITTERED = "dead_after = 3\nbackoff = { constant = 1, jitter = 0.5 }\n"
MAP = 'backoff = 1\n[destinations."orders.>"]\ndead_after = 2\n'


def test_what_is_written_is_the_same_policy_in_the_other_language(capsys: Capture) -> None:
    assert run(["convert", TEXT, "--to", "native", "--lossy"]) == 0
    out, err = capsys.readouterr()
    assert err == f"lost in native: default: {PROPERTIES}\n"
    found = READERS["native"](out, False).default
    assert found == RedeliveryPolicy.parse(TEXT)
    assert run(["convert", out, "--to", "jmsjca"]) == 0
    assert capsys.readouterr().out == f"{TEXT}\n"


def test_what_cannot_be_expressed_is_listed_and_nothing_is_written(capsys: Capture) -> None:
    assert run(["convert", JITTERED, "--to", "jmsjca"]) == 3
    out, err = capsys.readouterr()
    assert out == ""
    assert "lost in jmsjca: jitter (1 s, jitter 50%)\n" in err
    assert "--lossy" in err


def test_lossy_writes_the_nearest_and_still_says_what_is_lost(capsys: Capture) -> None:
    assert run(["convert", JITTERED, "--to", "jmsjca", "--lossy"]) == 0
    out, err = capsys.readouterr()
    assert out == "1:1000; 3:move(queue:DLQ.$)\n"
    assert err == "lost in jmsjca: jitter (1 s, jitter 50%)\n"


def test_json_has_the_text_and_the_list(capsys: Capture) -> None:
    assert run(["convert", JITTERED, "--to", "jmsjca", "--json"]) == 3
    told = {"from": "native", "to": "jmsjca", "text": None, "lost": ["jitter (1 s, jitter 50%)"], "warnings": []}
    assert json.loads(capsys.readouterr().out) == told
    assert run(["convert", JITTERED, "--to", "jmsjca", "--json", "--lossy"]) == 0
    assert json.loads(capsys.readouterr().out) == told | {"text": "1:1000; 3:move(queue:DLQ.$)"}


ARMS = "backoff = 1\n[arms.patient]\nshare = 0.05\nbackoff = 60\n"


def test_arms_are_lost_where_a_language_has_none(capsys: Capture) -> None:
    assert run(["convert", ARMS, "--to", "jmsjca"]) == 3
    out, err = capsys.readouterr()
    assert out == ""
    said = "lost in jmsjca: default: the arm patient (5%): all messages of a source are under one policy\n"
    assert said in err
    assert run(["convert", ARMS, "--to", "jmsjca", "--lossy"]) == 0
    assert capsys.readouterr() == ("1:1000; 7:move(queue:DLQ.$)\n", said)


def test_arms_are_written_in_our_own_language(capsys: Capture) -> None:
    assert run(["convert", ARMS, "--to", "native"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert READERS["native"](out, False) == READERS["native"](ARMS, False)
    assert out.endswith("[default.arms.patient]\nshare = 0.05\nbackoff = 60\n")


def test_each_entry_that_is_lost_is_named(capsys: Capture) -> None:
    assert run(["convert", MAP, "--to", "jmsjca"]) == 3
    assert "lost in jmsjca: orders.>: one string is for every destination" in capsys.readouterr().err


def test_one_destination_of_a_map_can_be_converted_alone(capsys: Capture) -> None:
    assert run(["convert", MAP, "--to", "jmsjca", "--destination", "orders.eu"]) == 0
    assert capsys.readouterr().out == "1:1000; 2:move(queue:DLQ.$)\n"


def test_a_file_is_converted(tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "orders.txt"
    file.write_text(TEXT + "\n")
    assert run(["convert", str(file), "--to", "native", "--lossy"]) == 0
    assert "dead_after = 50" in capsys.readouterr().out


def test_a_password_in_a_url_is_not_printed(capsys: Capture) -> None:
    for to in ("native", "jmsjca", "activemq"):
        run(["convert", f"tcp://me:hunter2@h?JMSJCA.redeliveryhandling={TEXT}", "--to", to, "--lossy"])
        run(["convert", "tcp://me:hunter2@h?jms.redeliveryPolicy.maximumRedeliveries=1", "--to", to, "--lossy"])
    out, err = capsys.readouterr()
    assert out
    assert "hunter2" not in out + err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([TEXT, "--to", "nativ"], "Did you mean 'native'?"),
        ([TEXT], "--to"),
        (["3:soon", "--to", "native"], "E102"),
        ([TEXT, "--to", "native", "--destination", "topic:a", "--kind", "queue"], "is no queue"),
    ],
)
def test_wrong_input_is_exit_2_with_nothing_on_stdout(arguments: list[str], said: str, capsys: Capture) -> None:
    assert run(["convert", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err


@pytest.mark.parametrize("kind", ["queue", "topic"])
def test_a_target_of_the_sources_kind_is_not_lost_where_the_destination_is_named(
    capsys: Capture, kind: DestinationKind
) -> None:
    text = 'dead_after = 2\ndead_letter = "same:dead"\nbackoff = 1'
    assert run(["convert", text, "--to", "artemis", "--prefixes", "--destination", f"{kind}:prices"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert READERS["artemis"](out, False).resolve("prices", kind).targets == (Target(kind, "dead"),)


def test_a_language_that_can_say_the_sources_kind_keeps_it(capsys: Capture) -> None:
    given = "2:move(same:dead)"
    assert run(["convert", given, "--to", "jmsjca", "--destination", "topic:prices"]) == 0
    assert capsys.readouterr().out == f"{given}\n"


@pytest.mark.parametrize("language", ["patchbay", "weblogic", "artemis", "activemq", "native"])
@pytest.mark.parametrize("kind", ["queue", "topic"])
def test_a_destination_is_written_under_its_name(capsys: Capture, kind: DestinationKind, language: str) -> None:
    text = "dead_after = 5\nbackoff = 2\ndead_letter = 'queue:dead'\nexpiry = 'discard'"
    assert run(["convert", text, "--to", language, "--destination", f"{kind}:Q"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    found = READERS[language](out, False)
    named = [str(entry) for entry in found.entries if entry.pattern == "Q"]
    assert named == ["Q" if language == "artemis" else f"{kind}:Q"]  # an address has no kind
    policy = found.resolve("Q", kind)
    assert (policy.dead_after, policy.backoff.span(1).base, policy.targets) == (5, 2, (Target("queue", "dead"),))
    assert "<template" not in out


def test_a_destination_of_a_map_is_written_under_its_name(capsys: Capture) -> None:
    assert run(["convert", MAP, "--to", "patchbay", "--destination", "orders.eu", "--lossy"]) == 0
    found = READERS["patchbay"](capsys.readouterr().out, False)
    assert [str(entry) for entry in found.entries] == ["queue:orders.eu"]


@pytest.mark.parametrize(
    ("language", "all_others"),
    [
        ("artemis", "<address-settings><address-setting match='x'/></address-settings>"),
        ("activemq", "tcp://h?jms.redeliveryPolicy.maximumRedeliveries=6"),
    ],
)
def test_nothing_is_written_of_other_destinations(capsys: Capture, language: str, all_others: str) -> None:
    """Other destinations have what their broker gives them: read back, that is the default of the language."""
    text = "dead_after = 5\nbackoff = 2\ndead_letter = 'queue:dead'\nexpiry = 'discard'"
    assert run(["convert", text, "--to", language, "--destination", "Q"]) == 0
    out = capsys.readouterr().out
    assert ("#" in out, "defaultEntry" in out) == (False, False)
    usual = load_policies(all_others).resolve("other")
    other = READERS[language](out, False).resolve("other")
    assert (other.dead_after, other.backoff.span(1).base) == (usual.dead_after, usual.backoff.span(1).base)


@pytest.mark.parametrize("lossy", [[], ["--lossy"]])
@pytest.mark.parametrize("text", ["dead_after = 3", "dead_after = 'never'\nbackoff = 0\nexpiry = 'discard'"])
def test_a_result_that_names_nothing_is_not_written(capsys: Capture, text: str, lossy: list[str]) -> None:
    assert run(["convert", text, "--to", "patchbay", *lossy]) == 3
    out, err = capsys.readouterr()
    assert out == ""
    assert err.endswith("Nothing is written: patchbay names each destination. Use --destination NAME\n")
    assert run(["convert", text, "--to", "patchbay", "--json", *lossy]) == 3
    assert json.loads(capsys.readouterr().out)["text"] is None


def test_a_pattern_is_no_destination_to_be_named(capsys: Capture) -> None:
    assert run(["convert", MAP, "--to", "weblogic", "--destination", "orders.>"]) == 2
    assert "--destination" in capsys.readouterr().err


TYPED = """dead_after = 'never'
expiry = 'discard'
[destinations."queue:orders"]
dead_after = 4
"""


def test_names_have_the_prefixes_of_hornetq_only_if_asked_for(capsys: Capture) -> None:
    run(["convert", TYPED, "--to", "artemis", "--lossy"])
    out, err = capsys.readouterr()
    assert 'match="orders"' in out
    assert "jms." not in out
    assert "lost in artemis: topic:orders: an address has one setting, here that of queue:orders" in err
    run(["convert", TYPED, "--to", "artemis", "--lossy", "--prefixes"])
    out, err = capsys.readouterr()
    assert 'match="jms.queue.orders"' in out
    assert "an address has one setting" not in err
    assert run(["convert", TYPED, "--to", "native", "--prefixes"]) == 2
    assert "names have no prefixes in native" in capsys.readouterr().err


WEBLOGIC = """<weblogic-jms><queue name="Q">
  <delivery-failure-params>{failure}</delivery-failure-params></queue>
  <queue name="E"><delivery-params-overrides><time-to-live>9000</time-to-live></delivery-params-overrides></queue>
</weblogic-jms>"""
REDIRECTED = "<error-destination>E</error-destination><redelivery-limit>3</redelivery-limit>"
REDIRECTED += "<expiration-policy>Redirect</expiration-policy>"


@pytest.mark.parametrize("language", ["activemq", "jmsjca", "artemis"])
def test_the_time_to_live_of_a_redirected_message_is_lost(capsys: Capture, language: str) -> None:
    text = WEBLOGIC.format(failure=REDIRECTED)
    assert run(["convert", text, "--to", language, "--destination", "Q"]) == 3
    err = capsys.readouterr().err
    assert "expiry redirect" in err
    assert "never expires" in err


@pytest.mark.parametrize("language", ["native", "activemq", "artemis", "jmsjca", "patchbay"])
def test_a_senders_limit_is_lost_where_the_destination_has_none(capsys: Capture, language: str) -> None:
    text = WEBLOGIC.format(failure="<redelivery-limit>-1</redelivery-limit>")
    assert run(["convert", text, "--to", language, "--destination", "Q"]) == 3
    assert "JMS_BEA_RedeliveryLimit" in capsys.readouterr().err
    run(["convert", WEBLOGIC.format(failure=REDIRECTED), "--to", language, "--destination", "Q"])
    assert "JMS_BEA_RedeliveryLimit" not in capsys.readouterr().err


@pytest.mark.parametrize("language", ["native", "activemq", "artemis", "weblogic", "patchbay"])
def test_what_a_message_says_to_jmsjca_is_lost(capsys: Capture, language: str) -> None:
    assert run(["convert", TEXT, "--to", language, "--destination", "Q"]) == 3
    assert PROPERTIES in capsys.readouterr().err


@pytest.mark.parametrize("language", ["native", "activemq", "artemis", "weblogic", "jmsjca"])
def test_a_delivery_date_is_lost_outside_patch_bay(capsys: Capture, language: str) -> None:
    assert run(["convert", PATCHBAY, "--to", language, "--destination", "Q"]) == 3
    assert "DELIVERY_DATE" in capsys.readouterr().err


PATCHBAY = """<dynamo-message-system><patchbay><message-sink><input-port><input-destination>
<destination-name>Q</destination-name><destination-type>Queue</destination-type></input-destination></input-port>
</message-sink></patchbay></dynamo-message-system>"""


def test_a_string_of_jmsjca_that_leaves_out_all_that_was_configured_is_not_written(capsys: Capture) -> None:
    limit = "<delivery-failure-params><redelivery-limit>2</redelivery-limit></delivery-failure-params>"
    module = f"<weblogic-jms><queue name='W'>{limit}</queue></weblogic-jms>"
    assert run(["convert", module, "--to", "jmsjca", "--lossy"]) == 3
    out, err = capsys.readouterr()
    assert out == ""
    assert "Nothing is written: jmsjca has one string for all, and it would be empty. Use --destination NAME" in err
    assert run(["convert", module, "--to", "jmsjca", "--lossy", "--destination", "W"]) == 0
    assert capsys.readouterr().out == "3:delete\n"
