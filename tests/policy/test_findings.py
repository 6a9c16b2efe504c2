# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""What a reader finds is told wherever a policy is read; and an empty text is no policy anywhere."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from redeliver_mw import App, Delivery, RedeliveryPolicy
from redeliver_mw.cli.main import run
from redeliver_mw.errors import ConfigError, PolicyError
from redeliver_mw.policy import load_policies
from redeliver_mw.testing import TestApp

# The second <redelivery-delay> stands where it means nothing: in WebLogic it belongs to <delivery-params-overrides>.
MISPLACED = """<weblogic-jms>
  <queue name="orders">
    <redelivery-delay>7000</redelivery-delay>
    <delivery-failure-params><redelivery-limit>2</redelivery-limit><expiration-policy>Redirect</expiration-policy>
      <error-destination>dead</error-destination></delivery-failure-params>
  </queue>
  <queue name="dead"/>
</weblogic-jms>"""
EMPTY = [b"", b" \n\t\r\n", b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff", b"\0\0", b"\xef\xbb\xbf\n\n"]


def handle(delivery: Delivery) -> None:
    raise ValueError("no")


def app_of(policy: object, **options: object) -> App:
    app = App("memory://", policy=policy, **options)
    app.handler("orders")(handle)
    return app


@pytest.fixture(params=["text", "file"])
def policy(request: pytest.FixtureRequest, tmp_path: Path) -> str | Path:
    if request.param == "text":
        return MISPLACED
    (tmp_path / "module.xml").write_text(MISPLACED, "utf-8")
    return tmp_path / "module.xml"


@pytest.mark.parametrize("command", ["check", "explain", "convert"])
def test_a_finding_is_printed_by_each_command_and_strict_makes_it_an_error(
    command: str, policy: str | Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = ["--to", "native", "--lossy"] if command == "convert" else []
    assert run([command, str(policy), *more]) == 0
    told = capsys.readouterr().err
    assert "<redelivery-delay>" in told
    assert "line 3" in told
    assert run([command, str(policy), *more, "--strict"]) == 2
    assert "<redelivery-delay>" in capsys.readouterr().err


COLD_ENTRIES = """<redeliveryPolicyMap><redeliveryPolicyMap><redeliveryPolicyEntries>
  <redeliveryPolicy queue="shop.orders" maximumRedeliveries="2" redeliveryDelay="3000"/>
</redeliveryPolicyEntries></redeliveryPolicyMap></redeliveryPolicyMap>"""


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (["check", "3:0"], "at once for ever"),
        (["check", "3:0", "--json"], "at once for ever"),
        (["explain", "3:0"], "at once for ever"),
        (["convert", "3:0", "--to", "native", "--lossy"], "at once for ever"),
        (["convert", "3:0", "--to", "weblogic", "--destination", "orders", "--lossy"], "at once for ever"),
        (["check", "2:1000; 3:move(queue:$)"], "where they come from"),
        (["convert", "2:1000; 3:move(queue:$)", "--to", "native", "--lossy"], "where they come from"),
        (["explain", "3:1000", "--against", "3:0"], "at once for ever"),
        (["explain", COLD_ENTRIES, "--destination", "shop.ordres"], "Did you mean shop.orders?"),
        (["convert", COLD_ENTRIES, "--to", "native", "--destination", "shop.ordres"], "Did you mean shop.orders?"),
    ],
)
def test_what_a_policy_comes_to_is_a_warning_and_with_strict_an_error(
    command: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(command) == 0
    err = capsys.readouterr().err
    assert err.startswith("warning: ")
    assert told in err
    assert run([*command, "--strict"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert told in err


def test_a_finding_in_a_file_is_refused_with_the_name_of_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "policy"
    file.write_text("3:0", "utf-8")
    assert run(["check", str(file), "--strict"]) == 2
    assert capsys.readouterr().err.startswith(f"error: {file}: ")


def test_explain_prints_the_findings_of_the_policy_beside_it_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", "3:1000", "--against", MISPLACED, "--json"]) == 0
    out, err = capsys.readouterr()
    assert "<redelivery-delay>" in err
    assert set(json.loads(out)) == {"a", "b", "first_difference"}


def test_an_app_logs_each_finding_once_at_its_start(policy: str | Path, caplog: pytest.LogCaptureFixture) -> None:
    app = app_of(policy, allow_hot_loop=True)
    app.handler("billing")(handle)
    with caplog.at_level(logging.WARNING, "redeliver_mw"), TestApp(app) as test:
        test.broker.declare("dead")
    (line,) = [record.getMessage() for record in caplog.records if "<redelivery-delay>" in record.getMessage()]
    assert "line 3" in line
    assert isinstance(policy, str) or str(policy) in line


def test_with_strict_policies_an_app_refuses_a_policy_with_a_finding(policy: str | Path) -> None:
    with pytest.raises(PolicyError, match="redelivery-delay"):
        app_of(policy, strict_policies=True)


def changed(file: Path, text: str, **options: object) -> TestApp:
    """Return a running App whose policy file, dead at the second failure, has been changed to this text."""
    file.write_text("1:1000; 2:move(queue:dead)", "utf-8")
    test = TestApp(app_of(file, **options))
    test.advance(3)
    file.write_text(text, "utf-8")
    test.advance(3)
    return test


def test_a_finding_in_a_changed_file_is_logged_too(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with changed(tmp_path / "policy", MISPLACED):
        pass
    assert [r for r in caplog.records if "<redelivery-delay>" in r.getMessage() and r.levelno == logging.WARNING]


# -- empty ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", EMPTY)
@pytest.mark.parametrize("name", ["policy", "policy.toml", "broker.xml", "broker.properties"])
def test_an_empty_file_is_an_error(
    name: str, content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / name
    file.write_bytes(content)
    with pytest.raises(ConfigError) as refused:
        load_policies(file)
    assert str(file) in str(refused.value)
    with pytest.raises(ConfigError):
        app_of(file)
    for command in ("check", "explain"):
        assert run([command, str(file)]) == 2
        assert str(file) in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "  \n", "\ufeff"])
def test_an_empty_text_is_an_error(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    for read in (load_policies, RedeliveryPolicy.parse, app_of):
        with pytest.raises(PolicyError, match="empty"):
            read(text)
    assert run(["check", text]) == 2
    assert "it is empty" in capsys.readouterr().err


def test_by_its_name_jmsjca_has_an_empty_policy_which_tries_again_at_once_for_ever() -> None:
    policy = RedeliveryPolicy.parse("", "jmsjca")
    assert (policy.dead_after, policy.longest_delay) == (None, 0)


@pytest.mark.parametrize("content", EMPTY)
def test_a_running_app_keeps_its_policy_when_the_file_is_emptied(
    content: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "policy"
    file.write_text("2:1000; 3:move(queue:dead)", "utf-8")
    app = app_of(file)
    with TestApp(app) as test:
        test.advance(3)
        file.write_bytes(content)
        test.advance(3)
        test.send("orders", b"one")
        test.advance(10)
        assert test.depth("dead") == 1
    assert [r for r in caplog.records if r.levelno == logging.ERROR and str(file) in r.getMessage()]


# -- what a policy comes to -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "3:0",
        "1:5000; 4:0",
        '<weblogic-jms><queue name="orders"><delivery-failure-params><redelivery-limit>-1</redelivery-limit>'
        "</delivery-failure-params></queue></weblogic-jms>",
        '<address-settings><address-setting match="orders"><max-delivery-attempts>-1</max-delivery-attempts>'
        "</address-setting></address-settings>",
        "tcp://h:61616?jms.redeliveryPolicy.maximumRedeliveries=-1&jms.redeliveryPolicy.redeliveryDelay=0"
        "&jms.redeliveryPolicy.initialRedeliveryDelay=0",
    ],
)
def test_endless_retries_without_a_last_delay_are_a_finding(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", text]) == 0
    assert "tried again at once for ever" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["3:1000", "1:0; 4:1000", "3:0; 9:delete", "1:0; 9:move(queue:dead)"])
def test_retries_that_end_or_wait_in_the_end_are_no_finding(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", text]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "text",
    [
        "3:1000; 4:move(queue:$)",
        "3:1000; 4:move(same:$)",
        MISPLACED.replace("<error-destination>dead<", "<error-destination>orders<").replace(
            "<redelivery-delay>7000</redelivery-delay>", ""
        ),
        '<address-settings><address-setting match="orders"><max-delivery-attempts>3</max-delivery-attempts>'
        "<dead-letter-address>orders</dead-letter-address></address-setting></address-settings>",
    ],
)
def test_dead_letters_that_go_to_their_own_source_are_a_finding(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", text]) == 0
    assert "where they come from" in capsys.readouterr().err


# -- what is no file of policies --------------------------------------------------------------------------


def folder(path: Path) -> None:
    path.mkdir()


def pipe(path: Path) -> None:
    os.mkfifo(path)


def link_to_itself(path: Path) -> None:
    path.symlink_to(path)


def link_to_nothing(path: Path) -> None:
    path.symlink_to(path.with_name("nothing"))


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def huge(path: Path) -> None:
    path.touch()
    os.truncate(path, 2**30)  # a hole: it takes no space on the disk


def utf16(path: Path) -> None:
    path.write_bytes("3:1000; 5:move(queue:dead)".encode("utf-16-le"))


def bomb(path: Path) -> None:
    entities = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 10))
    path.write_text(f'<!DOCTYPE a [<!ENTITY e0 "ha">{entities}]><weblogic-jms>&e9;</weblogic-jms>')


@pytest.mark.parametrize("make", [folder, pipe, link_to_itself, link_to_nothing, device, huge, utf16, bomb])
@pytest.mark.parametrize("name", ["policy", "broker.xml"])
def test_what_is_no_file_of_policies_is_refused_by_its_name(
    make: Callable[[Path], None], name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / name
    make(path)
    for command in (["check"], ["explain"], ["convert", "--to", "native"]):
        assert run([command[0], str(path), *command[1:]]) == 2
        err = capsys.readouterr().err
        assert err.startswith(f"error: {path}: ")
        assert "Traceback" not in err
    with pytest.raises(ConfigError) as refused:
        app_of(path)
    assert str(path) in str(refused.value)
    assert refused.value.cure


# -- a name without an entry ------------------------------------------------------------------------------

ENTRIES = """<redeliveryPolicyMap><redeliveryPolicyMap><redeliveryPolicyEntries>
  <redeliveryPolicy queue="shop.orders" maximumRedeliveries="2" redeliveryDelay="3000"/>
  <redeliveryPolicy topic="shop.prices" maximumRedeliveries="4" redeliveryDelay="3000"/>
</redeliveryPolicyEntries></redeliveryPolicyMap></redeliveryPolicyMap>"""


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("shop.ordres", "Did you mean shop.orders?"),
        ("shop.prices", "There is one for topic:shop.prices"),
        ("topic:shop.orders", "There is one for queue:shop.orders"),
        ("billing", "so the default applies\n"),
    ],
)
def test_explain_says_that_no_entry_is_for_a_name(name: str, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", ENTRIES, "--destination", name]) == 0
    err = capsys.readouterr().err
    assert "no entry is for" in err
    assert hint in err


@pytest.mark.parametrize("more", [[], ["--destination", "shop.orders"], ["--destination", "topic:shop.prices"]])
def test_explain_says_nothing_of_a_name_that_has_an_entry(more: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", ENTRIES, *more]) == 0
    assert "no entry" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("source", "told"), [("shop.ordres", 1), ("shop.prices", 1), ("shop.orders", 0), ("billing", 0)]
)
def test_an_app_logs_a_handler_whose_name_nearly_has_an_entry(
    source: str, told: int, caplog: pytest.LogCaptureFixture
) -> None:
    app = App("memory://", policy=ENTRIES)
    app.handler(source)(handle)
    with TestApp(app):
        pass
    assert len([r for r in caplog.records if "no entry is for" in r.getMessage()]) == told


# -- endless retries without a delay, in an App ------------------------------------------------------------

HOT = '<weblogic-jms><queue name="orders"/><queue name="billing"/></weblogic-jms>'


@pytest.mark.parametrize("in_file", [False, True])
def test_an_app_refuses_to_start_with_endless_retries_without_a_last_delay(in_file: bool, tmp_path: Path) -> None:
    file = tmp_path / "module.xml"
    file.write_text(HOT, "utf-8")
    app = app_of(file if in_file else HOT)
    with pytest.raises(PolicyError) as refused:
        TestApp(app).start()
    told = str(refused.value)
    assert "queue:orders: a message that always fails is tried again at once for ever" in told
    assert "allow_hot_loop=True" in told
    assert "billing" not in told  # no handler of this App is for it
    assert (str(file) in told) == in_file
    assert not app.is_started


def test_a_refused_hot_loop_is_reported_with_the_misspelt_element_that_brought_it() -> None:
    module = HOT.replace("/><", "><delivery-failure-param/></queue><", 1)
    with pytest.raises(PolicyError, match=r"did you mean delivery-failure-params\?.*at once for ever"):
        TestApp(app_of(module)).start()


def test_an_app_that_allows_a_hot_loop_logs_it_at_its_own_sources(caplog: pytest.LogCaptureFixture) -> None:
    with TestApp(app_of(HOT, allow_hot_loop=True)):
        pass
    (line,) = [r.getMessage() for r in caplog.records if "at once for ever" in r.getMessage()]
    assert "queue:orders" in line


def test_a_hot_loop_is_refused_for_each_source_that_has_it() -> None:
    app = App("memory://", policy="3:0")
    for source in ("orders", "billing"):
        app.handler(source)(handle)
    app.handler("calm", policy="3:1000")(handle)
    with pytest.raises(PolicyError) as refused:
        TestApp(app).start()
    told = str(refused.value)
    assert "queue:orders" in told
    assert "queue:billing" in told
    assert "calm" not in told


def test_one_arm_with_a_hot_loop_is_enough_to_refuse_a_start() -> None:
    cold, hot = RedeliveryPolicy.parse("2:1000; 5:move(queue:dead)"), RedeliveryPolicy.parse("2:0")
    policy = cold.replace(arms={"hot": (0.1, hot)})
    with pytest.raises(PolicyError, match="at once for ever"):
        TestApp(app_of(policy)).start()


@pytest.mark.parametrize("hot", ["3:0", "1:1000; 2:0"])
def test_a_changed_file_with_a_hot_loop_is_refused_and_the_old_policy_holds(
    hot: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "policy"
    with changed(file, hot) as test:
        test.send("orders", b"one")
        test.advance(3)
        assert [message.body for message in test.broker.peek("dead")] == [b"one"]
    (line,) = [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR and str(file) in r.getMessage()]
    assert "at once for ever" in line
    assert "allow_hot_loop=True" in line


def test_where_a_hot_loop_is_allowed_a_changed_file_may_have_one_and_that_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with changed(tmp_path / "policy", "3:0", allow_hot_loop=True):
        pass
    assert [r for r in caplog.records if "at once for ever" in r.getMessage() and r.levelno == logging.WARNING]


def test_with_strict_policies_a_handler_whose_name_nearly_has_an_entry_is_refused() -> None:
    app = App("memory://", policy=ENTRIES, strict_policies=True)
    app.handler("shop.ordres")(handle)
    with pytest.raises(PolicyError, match=r"Did you mean shop\.orders"):
        TestApp(app).start()


def test_with_strict_policies_a_map_that_was_read_leniently_is_refused_too() -> None:
    with pytest.raises(PolicyError, match="redelivery-delay"):
        TestApp(app_of(load_policies(MISPLACED), strict_policies=True)).start()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("dead_letter = 'queu:a'", "its dead letters go to queue:queu:a. Did you mean queue:a?"),
        ("[destinations.'tpoic:a']\ndead_after = 3", "tpoic:a: a destination of that name. Did you mean topic:a?"),
        ("dead_letter = 'patchbay:/acme/Dead'", None),
        ("[destinations.'patchbay:/acme/Orders']\ndead_after = 3", None),
    ],
)
def test_a_misspelt_kind_before_a_name_is_a_finding(
    text: str, told: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["check", text]) == 0
    assert capsys.readouterr().err == (f"warning: {told}\n" if told else "")


def test_a_single_character_of_code_0_is_not_called_utf_16(tmp_path: Path) -> None:
    (tmp_path / "policy").write_bytes(b"3:25\0; 5:delete")
    with pytest.raises(PolicyError, match="a character of code 0 in it"):
        load_policies(tmp_path / "policy")
