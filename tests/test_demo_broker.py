# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests which broker the demo takes where REDELIVER_URL is not set: docker-compose.yml's, or the local installation.

The programs `docker` and `docker-compose` are stand-ins: they write down what they are asked, and answer as the
branches of a shell's `case` say. Brokers are real.
"""

from __future__ import annotations

import importlib.util
import io
import os
import subprocess
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from rich.console import Console

from redeliver_mw import connect
from tests.brokers import Broker
from tests.test_demo import DEMO, EIGHT, SUM, ctrl_c_counts, demo, environment, rows

ENGINE = "info*) echo 20.10.24;;"
PLUGIN = f'{ENGINE} "compose version --short") echo 2.24.5;; "compose version") ;;'
ENGINE_ASKED = "docker info --format {{.ServerVersion}}"
NO_ENGINE = "No Docker engine with compose answers"
LOCAL = "Starting the local installation of activemq, which ends with the demo"
Programs = Callable[..., dict[str, str]]


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    """Return a function that puts both programs on the PATH, and returns the environment with them.

    What no branch names fails.
    """

    def install(docker: str = "", compose: str = "") -> dict[str, str]:
        for name, branches in (("docker", docker), ("docker-compose", compose)):
            program, said = tmp_path / name, f'echo "{name} $*" >> "{tmp_path}/said"'
            program.write_text(f'#!/bin/sh\n{said}\ncase "$*" in\n{branches}\n*) exit 1;;\nesac\n')
            program.chmod(0o755)
        return {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}

    return install


def asked(folder: Path) -> list[str]:
    """Return what both programs were asked, without the questions about what there is."""
    lines = (folder / "said").read_text().splitlines()
    return [line for line in lines if line != ENGINE_ASKED and not line.endswith((" version", " --short"))]


class Chosen:
    """Calls `the_broker` of the example, in this process."""

    def __init__(self, path: Path) -> None:
        spec = importlib.util.spec_from_file_location("order_service_where", path)
        assert spec is not None
        assert spec.loader is not None
        self.module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.module)
        self.shown = io.StringIO()

    def __call__(self, kind: str) -> AbstractContextManager[str]:
        found: AbstractContextManager[str] = self.module.the_broker(kind, Console(file=self.shown, width=200))
        return found

    @property
    def said(self) -> list[str]:
        return self.shown.getvalue().splitlines()


@pytest.fixture
def the_broker(monkeypatch: pytest.MonkeyPatch) -> Chosen:
    monkeypatch.delenv("REDELIVER_URL", raising=False)
    return Chosen(Path(DEMO[1]).with_name("where.py"))


def usable(url: str) -> bool:
    connect(url).close()
    return True


@pytest.mark.broker
@pytest.mark.slow
def test_without_an_engine_the_demo_starts_the_local_installation_and_says_so(
    programs: Programs, tmp_path: Path, activemq63: Broker
) -> None:
    done = demo("--fast", "--broker", "activemq", timeout=120, **programs())
    assert done.returncode == 0, done.stderr
    first, second, third, *_, last = done.stdout.splitlines()
    assert (first, second) == (NO_ENGINE, LOCAL)
    assert third.startswith("ActiveMQ ")
    assert sorted(rows(done.stdout)) == EIGHT
    assert last == SUM
    assert (tmp_path / "said").read_text().splitlines() == [ENGINE_ASKED]


@pytest.mark.parametrize("docker", [ENGINE, "info*) exec sleep 60;;"])
def test_an_engine_without_compose_or_without_an_answer_is_as_good_as_none(
    docker: str, the_broker: Chosen, programs: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(the_broker.module, "ANSWERS", 1.0)
    monkeypatch.setenv("PATH", programs(docker=docker)["PATH"])
    assert the_broker.module.compose_command() is None


@pytest.mark.broker
def test_what_compose_cannot_bring_up_is_reported_and_the_local_installation_is_used(
    the_broker: Chosen, programs: Programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, activemq63: Broker
) -> None:
    refused = "*' up '*) echo 'Pulling activemq ...'; echo 'Error: no such host: registry' >&2; exit 18;;"
    monkeypatch.setenv("PATH", programs(docker=f"{PLUGIN} {refused} *' down '*) ;;")["PATH"])
    with the_broker("activemq") as url:
        assert usable(url)
    assert asked(tmp_path) == [
        "docker compose --profile activemq port activemq 61613",
        "docker compose --project-name redeliver-demo --profile activemq up -d --wait activemq",
        "docker compose --project-name redeliver-demo --profile activemq down --volumes",
    ]
    assert the_broker.said[:3] == [
        "docker compose brings activemq up (the first time it fetches the image), and down in the end",
        "docker compose could not: Error: no such host: registry",
        LOCAL,
    ]


@pytest.mark.broker
@pytest.mark.parametrize("program", ["docker compose", "docker-compose"])
def test_where_an_engine_answers_the_broker_is_that_of_compose_up_to_down(
    program: str,
    the_broker: Chosen,
    programs: Programs,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    artemis244: Broker,
) -> None:
    b = artemis244  # in the place of the container
    monkeypatch.setitem(the_broker.module.LOGIN, "artemis", f"{b.user}:{b.password}")
    does = f"*redeliver-demo*' port '*) echo {b.host}:{b.port};; *' up '*|*' down '*) ;;"
    old = "'version --short') echo 1.29.2;; version) ;;"  # knows no --wait
    given = {"docker": f"{PLUGIN} {does}"} if " " in program else {"docker": ENGINE, "compose": f"{old} {does}"}
    monkeypatch.setenv("PATH", programs(**given)["PATH"])
    ours = f"{program} --project-name redeliver-demo --profile artemis"
    up = f"{ours} up -d --wait artemis" if " " in program else f"{ours} up -d artemis"
    before = [f"{program} --profile artemis port artemis 61616", up, f"{ours} port artemis 61616"]
    with the_broker("artemis") as url:
        assert usable(url)
        assert asked(tmp_path) == before
    assert asked(tmp_path) == [*before, f"{ours} down --volumes"]
    assert the_broker.said == [
        f"{program} brings artemis up (the first time it fetches the image), and down in the end"
    ]


@pytest.mark.broker
def test_a_broker_that_compose_has_up_already_is_used_and_stays(
    the_broker: Chosen, programs: Programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, artemis244: Broker
) -> None:
    b = artemis244
    monkeypatch.setitem(the_broker.module.LOGIN, "artemis", f"{b.user}:{b.password}")
    monkeypatch.setenv("PATH", programs(docker=f"{PLUGIN} *' port '*) echo {b.host}:{b.port};;")["PATH"])
    with the_broker("artemis") as url:
        assert usable(url)
    assert asked(tmp_path) == ["docker compose --profile artemis port artemis 61616"]
    assert the_broker.said == ["docker compose has artemis up, and keeps it"]


def test_ctrl_c_while_compose_is_still_at_it_takes_down_what_is_there(programs: Programs, tmp_path: Path) -> None:
    env = environment() | programs(docker=f"{PLUGIN} *' up '*) kill -INT $PPID; sleep 5;; *' down '*) ;;")
    argv = [*DEMO, "--broker", "artemis"]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=30, preexec_fn=ctrl_c_counts)
    assert done.returncode == 130
    assert done.stderr == "interrupted; the broker has again what was under way\n"
    assert asked(tmp_path)[-1] == "docker compose --project-name redeliver-demo --profile artemis down --volumes"
