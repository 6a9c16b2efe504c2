# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from redeliver_mw import App
from redeliver_mw.adapter.registry import GROUP, OURS, BrokerUrl, adapter_for, dialects, parse_url
from redeliver_mw.errors import ConfigError, PolicyError, RedeliverError
from tests.cli.running import redeliver

SECRET = "pa:ss@w0rd"


def test_a_broker_url_is_taken_apart() -> None:
    url = parse_url("rabbitmq://guest:secret@rabbit:5673/shop?heartbeat=10")
    assert url.dialect == "rabbitmq+pika"
    assert url.hosts == (("rabbit", 5673),)
    assert (url.user, url.password, url.path) == ("guest", "secret", "shop")
    assert url.options == {"heartbeat": "10"}
    assert url.policy is None


@pytest.mark.parametrize(
    ("scheme", "dialect"),
    [
        ("rabbitmq", "rabbitmq+pika"),
        ("activemq", "activemq+stomp"),
        ("artemis", "artemis+proton"),
        ("memory", "memory"),
        ("rabbitmq+pika", "rabbitmq+pika"),
        ("rabbitmq+proton", "rabbitmq+proton"),
        ("mine+own", "mine+own"),
    ],
)
def test_a_scheme_alone_means_the_usual_driver(scheme: str, dialect: str) -> None:
    assert parse_url(f"{scheme}://host").dialect == dialect


@pytest.mark.parametrize(
    ("written", "hosts"),
    [
        ("a", (("a", None),)),
        ("a:1,b:2,c", (("a", 1), ("b", 2), ("c", None))),
        ("[::1]:5672", (("::1", 5672),)),
        ("[::1]", (("::1", None),)),
        ("[fe80::1]:1,b", (("fe80::1", 1), ("b", None))),
    ],
)
def test_hosts_come_as_a_list_with_ports_and_ipv6(written: str, hosts: tuple[tuple[str, int | None], ...]) -> None:
    assert parse_url(f"rabbitmq://{written}/").hosts == hosts


@pytest.mark.parametrize(
    ("written", "path"), [("", None), ("/", ""), ("/shop", "shop"), ("/%2f", "/"), ("/%2Fa%20b", "/a b")]
)
def test_the_virtual_host_is_what_follows_the_first_slash_decoded(written: str, path: str | None) -> None:
    assert parse_url(f"rabbitmq://host{written}").path == path


@pytest.mark.parametrize("written", [SECRET, "pa%3Ass%40w0rd"])
def test_a_password_may_hold_colons_and_ats_and_is_never_shown(written: str) -> None:
    url = parse_url(f"rabbitmq://me:{written}@host:5672/v")
    assert (url.user, url.password) == ("me", SECRET)
    assert url.hosts == (("host", 5672),)
    for shown in (url.text, repr(url), str(url)):
        assert "w0rd" not in shown
        assert "pa:ss" not in shown
    assert "me@host:5672" in url.text


@pytest.mark.parametrize(
    "url",
    [
        f"rabbitmq://me:{SECRET}@host:none/",
        f"rabbitmq://me:{SECRET}@host:0/",
        f"rabbitmq://me:{SECRET}@host:65536/",
        f"nosuch://me:{SECRET}@host/",
        f"//me:{SECRET}@host",
        f"activemq+proton://me:{SECRET}@host",
        f"memory://me:{SECRET}@x?personality=nosuch",
        "memory://x?foo=1",
    ],
)
def test_a_url_that_cannot_be_used_is_one_error_with_a_cure_and_without_the_password(url: str) -> None:
    with pytest.raises(ConfigError) as refused:
        adapter_for(url)
    assert refused.value.cure
    assert refused.value.exit_code == 2
    assert "w0rd" not in str(refused.value)


def test_an_unknown_scheme_names_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"'kafka' is unknown\. Known are .*memory"):
        adapter_for("kafka://host")
    with pytest.raises(ConfigError, match="not built yet"):
        adapter_for("artemis+stomp://host")


@pytest.mark.parametrize("port", ["65536", "0", "-1", "x", "٣", ""])
def test_a_bad_port_is_refused(port: str) -> None:
    with pytest.raises(ConfigError, match="port"):
        parse_url(f"rabbitmq://host:{port}/")


def test_an_option_that_the_dialect_does_not_have_is_refused_by_name() -> None:
    url = parse_url("rabbitmq://host/?hartbeat=3&tls=1")
    with pytest.raises(ConfigError, match="'hartbeat' is unknown"):
        url.check_options({"heartbeat"})
    parse_url("rabbitmq://host/?heartbeat=3&tls=1&ca=x").check_options({"heartbeat"})


@pytest.mark.parametrize(
    ("text", "on"), [("1", True), ("yes", True), ("TRUE", True), ("0", False), ("off", False), ("", False)]
)
def test_a_switch_is_on_or_off(text: str, on: bool) -> None:
    assert parse_url(f"rabbitmq://host/?tls={text}").flag("tls") is on


def test_a_switch_that_is_neither_is_refused() -> None:
    with pytest.raises(ConfigError, match="neither on nor off"):
        parse_url("rabbitmq://host/?tls=perhaps").tls_context()


def test_tls_verifies_unless_told_otherwise() -> None:
    assert parse_url("rabbitmq://host/").tls_context() is None
    verified = parse_url("rabbitmq://host/?tls=1").tls_context()
    trusting = parse_url("rabbitmq://host/?tls=1&verify=0").tls_context()
    assert verified is not None
    assert verified.check_hostname
    assert trusting is not None
    assert not trusting.check_hostname


def test_tls_files_that_are_not_there_are_one_clear_error() -> None:
    with pytest.raises(ConfigError, match=r"ca=/no/such/file\.pem cannot be read: No such file or directory"):
        parse_url("rabbitmq://host/?tls=1&ca=/no/such/file.pem").tls_context()


def test_a_policy_in_the_url_is_left_to_the_policy_formats() -> None:
    text = "rabbitmq://host/?heartbeat=3&JMSJCA.redeliveryhandling=3:25"
    url = parse_url(text)
    assert url.options == {"heartbeat": "3"}
    assert url.policy == text


def test_memory_needs_no_server_and_is_always_there() -> None:
    assert "memory" in dialects()
    assert adapter_for("memory://").capabilities.broker_kind
    assert isinstance(parse_url("memory://"), BrokerUrl)


def test_our_own_adapters_are_those_that_the_package_plugs_in() -> None:
    """They are found without a look at what is installed."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))["project"]
    assert {name: f"{module}:adapter_from_url" for name, module in OURS.items()} == project["entry-points"][GROUP]


# What others pay for: XML for brokers' own languages, HTTP and e-mail for packages' metadata and the management, a
# database for a limbo, the command line.
NOT_LOADED = {
    "xml",
    "defusedxml",
    "http.client",
    "email",
    "importlib.metadata",
    "sqlalchemy",
    "typer",
    "rich",
    "structlog",
}


@pytest.mark.parametrize("scheme", ["rabbitmq", "activemq"])
def test_an_app_and_its_adapter_load_nothing_that_they_do_not_use(scheme: str) -> None:
    code = (
        "import sys; from redeliver_mw import App; from redeliver_mw.registry import adapter_for\n"
        f"App('{scheme}://127.0.0.1:1/', policy='3:25'); adapter_for('{scheme}://127.0.0.1:1/')\n"
        "print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "redeliver_mw.app" in loaded
    assert loaded & NOT_LOADED == set()


def test_no_text_at_all_is_no_broker_url() -> None:
    for text in ("", "host", "://host"):
        with pytest.raises(RedeliverError, match="no broker URL"):
            parse_url(text)


@pytest.mark.parametrize(
    "option", ["redeliveryPolicy.maximumRedeliveries", "nested.jms.redeliveryPolicy.maximumRedeliveries"]
)
def test_an_app_refuses_a_policy_in_its_url_that_no_reader_would_find(option: str) -> None:
    with pytest.raises(PolicyError, match=r"jms\.redeliveryPolicy"):
        App(f"memory://?{option}=3")


@pytest.mark.parametrize(
    "url",
    [
        f"rabbitmq://shop:1234/{SECRET}@mq/",
        f"rabbitmq://shop:{SECRET}?x@mq/",
        f"rabbitmq://shop:{SECRET}/x@mq:5672/v",
        f"activemq://shop:p@ss/{SECRET}@mq:61613",
        f"activemq://shop:1/{SECRET}@one,two:61613",
        f"artemis://shop:a?b={SECRET}@mq",
        "rabbitmq://shop:Sw0rd",
    ],
)
def test_a_password_with_a_raw_slash_or_question_mark_is_refused_and_shown_nowhere(url: str, tmp_path: Path) -> None:
    for make in (parse_url, adapter_for, App):
        with pytest.raises(ConfigError) as refused:
            make(url)
        assert refused.value.cure
        assert "w0rd" not in str(refused.value)
    done = redeliver(tmp_path, "dead", "list", url, "dlq")
    assert done.returncode == 2
    assert "w0rd" not in done.stdout + done.stderr


def test_a_password_that_is_encoded_is_taken_as_it_is_meant() -> None:
    found = parse_url("rabbitmq://shop:a%2Fb%3Fc%40d@mq:5672/v%40x?tls=0")
    assert (found.user, found.password, found.hosts, found.path) == ("shop", "a/b?c@d", (("mq", 5672),), "v@x")
