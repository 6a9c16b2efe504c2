# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests several hosts in turn, and the pauses between attempts."""

from __future__ import annotations

from redeliver_mw.adapter.kit.host_rotation import LONGEST_PAUSE, SHORT_PAUSE, HostRotation
from redeliver_mw.adapter.kit.tls_errors import TlsFailed
from redeliver_mw.adapter.registry import parse_url
from redeliver_mw.errors import BrokerUnavailable, CredentialsRefused


def away(why: str) -> BrokerUnavailable:
    return BrokerUnavailable(f"no broker answers there ({why})", where="u", cure="Start it")


def test_the_pause_grows_to_five_seconds_and_no_further() -> None:
    hosts = HostRotation(parse_url("rabbitmq://h/"), 5672)
    pauses = []
    for _ in range(2000):
        hosts.failed(away("refused"))
        pauses.append(hosts.pause)
    assert LONGEST_PAUSE == 5.0
    assert max(pauses) <= LONGEST_PAUSE + SHORT_PAUSE
    assert max(pauses[100:]) > 4.0
    assert max(pauses[:1]) <= 0.2 + SHORT_PAUSE


def test_within_a_round_the_next_host_is_tried_soon() -> None:
    hosts = HostRotation(parse_url("rabbitmq://a,b:1,c/"), 5672)
    tried = []
    for _ in range(4):
        tried.append(hosts.host)
        hosts.failed(away("refused"))
        assert len(tried) % 3 == 0 or hosts.pause == SHORT_PAUSE
    assert tried == [("a", 5672), ("b", 1), ("c", 5672), ("a", 5672)]


def test_each_host_is_named_with_its_own_reason() -> None:
    hosts = HostRotation(parse_url("rabbitmq://a,b:1/"), 5672)
    hosts.failed(away("no such name"))
    told = hosts.failed(away("refused"))
    assert told.what == "no broker answers there (a:5672: no such name; b:1: refused)"
    assert (told.where, told.cure) == ("u", "Start it")


def test_one_host_keeps_its_short_text() -> None:
    hosts = HostRotation(parse_url("rabbitmq://a/"), 5672)
    assert hosts.failed(away("refused")).what == "no broker answers there (refused)"


def test_a_first_connect_is_hopeless_after_three_rounds() -> None:
    hosts = HostRotation(parse_url("rabbitmq://a,b/"), 5672)
    assert [hosts.is_hopeless(hosts.failed(away("refused"))) for _ in range(6)] == [False] * 5 + [True]


def test_a_refused_password_is_hopeless_at_once_and_tls_when_each_host_was_tried() -> None:
    hosts = HostRotation(parse_url("rabbitmq://a,b/"), 5672)
    assert hosts.is_hopeless(hosts.failed(CredentialsRefused("no")))
    assert hosts.is_hopeless(hosts.failed(TlsFailed("expired")))
    assert not hosts.is_hopeless(hosts.failed(TlsFailed("expired")))
