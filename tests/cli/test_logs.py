# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Log lines as JSON have the code of the error that they are about as a field."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest

from redeliver_mw.adapter.kit.connection_state import ConnectionState
from redeliver_mw.cli.logs import LogFormat, show_logs
from redeliver_mw.errors import ConfigError, CredentialsRefused

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


def test_lines_for_people_have_the_code_in_their_text_only(capsys: pytest.CaptureFixture[str]) -> None:
    show_logs(LogFormat.console)
    LOG.warning("%s", ConfigError("wrong", code="option-value"))
    said = capsys.readouterr().err
    assert "wrong [option-value]" in said
    assert "error_code" not in said
