# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Log lines as JSON have the code of the error that they are about as a field."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from redeliver_mw import App, Delivery, RedeliveryPolicy
from redeliver_mw.adapter.kit.connection_state import ConnectionState
from redeliver_mw.cli.logs import LogFormat, show_logs
from redeliver_mw.errors import ConfigError, CredentialsRefused
from redeliver_mw.testing import TestApp

LOG = logging.getLogger("redeliver_mw.test_logs")


@pytest.fixture(autouse=True)
def unchanged_loggers() -> Iterator[None]:
    ours = logging.getLogger("redeliver_mw")
    before = ours.handlers, ours.level, ours.propagate
    yield
    ours.handlers, ours.propagate = before[0], before[2]
    ours.setLevel(before[1])


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def test_the_error_of_a_line_has_its_code_in_a_field(capsys: pytest.CaptureFixture[str]) -> None:
    show_logs(LogFormat.json)
    LOG.warning("%s: %s", "orders", ConfigError("wrong", code="option-value"))
    LOG.warning("plain")
    try:
        raise ConfigError("wrong", code="policy-value")
    except ConfigError:
        LOG.exception("raised")
    ConnectionState("rabbitmq://h/", "consume", LOG).failed(CredentialsRefused("refused", cure="Check both"))
    first, plain, raised, refused = lines(capsys)
    assert (first["event"], first["error_code"]) == ("orders: wrong [option-value]", "option-value")
    assert "error_code" not in plain
    assert "positional_args" not in plain
    assert raised["error_code"] == "policy-value"
    assert refused["error_code"] == "credentials-refused"
    assert refused["event"] == (
        "rabbitmq://h/: cannot connect (consume): refused. Check both [credentials-refused]; trying again"
    )


@pytest.mark.parametrize("form", LogFormat)
def test_what_a_handler_has_bound_is_in_the_line_of_its_failure_and_in_no_other(
    form: LogFormat, capsys: pytest.CaptureFixture[str]
) -> None:
    show_logs(form)
    app = App("memory://", policy=RedeliveryPolicy(1, on_dead="discard"))

    @app.handler("orders")
    def on_order(delivery: Delivery) -> None:
        if delivery.text == "one":
            structlog.contextvars.bind_contextvars(order=7, token="password=hunter2", event="theirs")
        raise ValueError("no stock")

    with TestApp(app) as test:
        test.send("orders", b"one")
        test.advance(2)  # else the second line is left out
        test.send("orders", b"two")
    said = capsys.readouterr().err
    assert "hunter2" not in said
    assert "theirs" not in said
    if form is LogFormat.json:
        first, second = [json.loads(line) for line in said.splitlines() if "no stock" in line]
        assert (first["order"], first["token"]) == (7, "password=***")
        assert "order" not in second
    else:
        assert said.count("order=7") == 1


def test_lines_for_people_have_the_code_in_their_text_only(capsys: pytest.CaptureFixture[str]) -> None:
    show_logs(LogFormat.console)
    LOG.warning("%s", ConfigError("wrong", code="option-value"))
    said = capsys.readouterr().err
    assert "wrong [option-value]" in said
    assert "error_code" not in said
