# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests redeliver api and its tokens: what they print, how the server ends, and what is said of bad input."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
from pathlib import Path

import httpx2
import pytest

from redeliver_mw.cli.main import run
from redeliver_mw.operations import Store
from redeliver_mw.operations.tokens import ROLES
from tests.cli.running import Running
from tests.operations.taking import put
from tests.pipeline.letters import letter

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def store_url(tmp_path: Path) -> str:
    """Return the URL of a store with one letter."""
    url = f"sqlite:///{tmp_path}/store.db"
    with Store(url) as store:
        put(store, letter(b"lamp", copy_id="copy-0"))
    return url


def said(capsys: Capture, *words: str, code: int = 0) -> tuple[str, str]:
    assert run(["api", *words]) == code
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    return out, err


def made(capsys: Capture, url: str, name: str = "anna", role: str = "reader") -> str:
    return said(capsys, "token", "add", name, "--role", role, "--store", url)[0].strip()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        return int(one.getsockname()[1])


def test_a_token_is_printed_once_listed_without_its_secret_and_revoked(store_url: str, capsys: Capture) -> None:
    token = made(capsys, store_url)
    assert re.fullmatch(r"rdv_[0-9a-f]{12}_[\w-]{43}", token)
    out, _ = said(capsys, "token", "list", "--store", store_url)
    assert "anna" in out
    assert "valid" in out
    assert token not in out
    assert "token anna (reader) is revoked" in said(capsys, "token", "revoke", "anna", "--store", store_url)[0]
    [found] = json.loads(said(capsys, "token", "list", "--store", store_url, "--json")[0])
    assert (found["name"], found["role"], found["state"]) == ("anna", "reader", "revoked")
    assert made(capsys, store_url) != token


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["add", "a b", "--role", "reader"], "api-token-name"),
        (["add", "x" * 65, "--role", "reader"], "api-token-name"),
        (["add", "bo", "--role", "root"], "option-value"),
        (["add", "bo", "--role", "reader", "--expires", "soon"], "option-value"),
        (["add", "bo", "--role", "reader", "--expires", "0d"], "option-value"),
        (["add", "bo", "--role", "reader", "--expires", "99999d"], "option-value"),
        (["add", "anna", "--role", "reader"], "api-token-name"),
        (["revoke", "nobody"], "api-token-not-found"),
    ],
)
def test_what_is_wrong_with_a_token_is_said(store_url: str, capsys: Capture, words: list[str], code: str) -> None:
    made(capsys, store_url)
    assert run(["api", "token", *words, "--store", store_url]) in (1, 2)
    assert f"[{code}]" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--listen", "8600"], "api-address"),
        (["--listen", "127.0.0.1:0"], "api-address"),
        (["--listen", "no.such.host.invalid:8600", "--behind-proxy"], "api-address"),
        (["--listen", "0.0.0.0:8600", "--host", "dead.example"], "api-tls-required"),
        (["--listen", "0.0.0.0:8600", "--behind-proxy"], "option-value"),
        (["--host", "https://dead.example"], "option-value"),
        (["--certfile", "missing.pem"], "tls-file-not-usable"),
        (["--keyfile", "missing.pem"], "tls-file-not-usable"),
        (["--broker", "a=memory://", "--broker", "a=memory://"], "option-value"),
        (["--broker", "nonsense"], "broker-url-syntax"),
        (["--keep-bodies", "long"], "option-value"),
        (["--store", "sqlite:///missing.db"], "store-file-missing"),
    ],
)
def test_a_server_that_cannot_be_started_says_why(
    store_url: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch, words: list[str], code: str
) -> None:
    monkeypatch.setenv("REDELIVER_STORE", store_url)
    assert run(["api", *words]) in (1, 2)
    assert f"[{code}]" in capsys.readouterr().err


def test_a_taken_port_is_said(store_url: str, capsys: Capture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        _, err = said(capsys, "--store", store_url, "--listen", f"127.0.0.1:{port}", code=1)
    assert "this port is taken" in err
    assert "[port-taken]" in err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_server_answers_and_ends_in_good_order(
    store_url: str, capsys: Capture, tmp_path: Path, number: signal.Signals
) -> None:
    token, port = made(capsys, store_url), free_port()
    with Running(tmp_path, "api", "--store", store_url, "--listen", f"127.0.0.1:{port}") as server:
        assert server.saw("serving http://127.0.0.1:")
        base, headers = f"http://127.0.0.1:{port}/api/v1", {"Authorization": f"Bearer {token}"}
        assert httpx2.get(f"{base}/counts", headers=headers, timeout=20).json()["waiting"] == 1
        assert httpx2.get(f"{base}/counts?token={token}", headers=headers, timeout=20).status_code == 400
        with Store(store_url) as store:
            operation = store_operation(store)
        with httpx2.stream("GET", f"{base}/operations/{operation}/events", headers=headers, timeout=20) as stream:
            lines = stream.iter_lines()
            assert next(lines) == "event: progress"
            server.signal(number)
            assert "event: end" not in list(lines)
        assert server.wait(30) == 0
    assert token not in server.err
    assert "Traceback" not in server.err
    assert re.search(r"GET /api/v1/counts 200, api:anna", server.err)


def store_operation(store: Store) -> str:
    from redeliver_mw.operations import Selection
    from redeliver_mw.operations.operation import plan_operation

    return plan_operation(store, "archive", Selection(), options={}).operation_id


def test_without_a_token_the_command_says_how_to_make_one(store_url: str, tmp_path: Path) -> None:
    with Running(tmp_path, "api", "--store", store_url, "--listen", f"127.0.0.1:{free_port()}") as server:
        assert server.saw("redeliver api token add")
        assert server.saw("serving")


def test_the_requests_of_the_page_on_the_api_are_answered(store_url: str, capsys: Capture, tmp_path: Path) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "http-api.md").read_text()
    commands = "\n".join(re.findall(r"^```sh\n(.*?)^```$", page, re.DOTALL | re.MULTILINE))
    assert commands.count("curl") == 4
    token, port = made(capsys, store_url, role="admin"), free_port()
    program = commands.replace("127.0.0.1:8600", f"127.0.0.1:{port}").replace("curl -sS", "curl -sS --fail -w '\\n'")
    with Running(tmp_path, "api", "--store", store_url, "--listen", f"127.0.0.1:{port}") as server:
        assert server.saw("serving")
        done = subprocess.run(
            ["bash", "-e", "-c", program],
            env={"TOKEN": token, "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines() if line]
    assert [sorted(one)[0] for one in answers] == ["by", "letters", "became", "operations"]


def test_the_page_names_each_role() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "http-api.md").read_text()
    assert re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE) == list(ROLES)
