# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Reads docker-compose.yml with a real compose, and tries its health checks on the real brokers.

No image is fetched or built here.
"""

from __future__ import annotations

import json
import os
import re
import runpy
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.brokers import Broker, BrokerMissing, _install
from tests.brokers.skips import not_to_be_had

pytestmark = pytest.mark.broker
REPOSITORY = Path(__file__).parents[1]
PROFILES = ("activemq", "artemis", "rabbitmq")
CURE = "Install Docker's compose plugin, or the package docker-compose"


@pytest.fixture(scope="module")
def compose() -> list[str]:
    """Return the command that reads compose files: Docker's plugin, else the program, which is installed if missing."""
    plugin = ["docker", "compose"]
    if shutil.which("docker") and not subprocess.run([*plugin, "version"], check=False, capture_output=True).returncode:
        return plugin
    if not shutil.which("docker-compose"):
        try:
            _install.apt_install("docker-compose", CURE)
        except BrokerMissing as missing:
            not_to_be_had(missing)
    return ["docker-compose"]


def read(compose: list[str], profile: str) -> dict[str, dict[str, Any]]:
    """Return the services of a profile by name. An invalid file fails the test with what compose says."""
    return _read(tuple(compose), profile)


@cache
def _read(compose: tuple[str, ...], profile: str) -> dict[str, dict[str, Any]]:
    """Ask compose once for each profile: it takes a second of processor time."""
    plugin = compose == ("docker", "compose")
    argv = [*compose, "--profile", profile, "config", *(["--format", "json"] if plugin else [])]
    done = subprocess.run(argv, check=False, cwd=REPOSITORY, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    services: dict[str, dict[str, Any]] = (json.loads(done.stdout) if plugin else _yaml(done.stdout))["services"]
    return {name: service for name, service in services.items() if profile in service["profiles"]}


def _yaml(text: str) -> Any:
    """Return the value of a YAML text, as the system's Python reads it.

    The older compose prints only YAML. It is written in Python, so the system's Python has a reader of YAML.
    """
    code = "import json, sys, yaml; json.dump(yaml.safe_load(sys.stdin), sys.stdout)"
    done = subprocess.run(["/usr/bin/python3", "-c", code], check=True, input=text, capture_output=True, text=True)
    return json.loads(done.stdout)


@pytest.mark.parametrize("profile", PROFILES)
def test_a_profile_is_a_broker_and_a_demo_that_finds_it(compose: list[str], profile: str) -> None:
    services = read(compose, profile)
    assert set(services) == {profile, f"demo-{profile}"}
    demo = services[f"demo-{profile}"]
    url = urlsplit(demo["environment"]["REDELIVER_URL"])
    assert (url.scheme, url.hostname) == (profile, profile)
    assert demo["depends_on"][profile]["condition"] == "service_healthy"
    assert demo["command"] == ["--broker", profile]
    inside = [published(port)[2] for port in services[profile]["ports"]]
    assert url.port in inside


@pytest.mark.parametrize("profile", PROFILES)
def test_every_image_is_pinned_to_a_release(compose: list[str], profile: str) -> None:
    pinned = re.compile(r"[\w./-]+:\d+\.\d+\.\d+[\w.-]*$")
    for service in read(compose, profile).values():
        if "image" in service:
            assert pinned.match(service["image"])
        else:
            dockerfile = (REPOSITORY / service["build"]["dockerfile"]).read_text()
            bases = re.findall(r"(?m)^FROM (\S+)", dockerfile)
            assert bases
            assert all(pinned.match(base) for base in bases)


@pytest.mark.parametrize("profile", PROFILES)
def test_every_service_has_a_health_check_or_says_why_not(compose: list[str], profile: str) -> None:
    for service in read(compose, profile).values():
        check = service["healthcheck"]
        if check.get("disable") or check.get("test") == ["NONE"]:
            assert service["labels"]["why-no-health-check"]
        else:
            assert check["test"][0] == "CMD"
            assert check["retries"] >= 3


@pytest.mark.parametrize("profile", PROFILES)
def test_no_port_is_open_to_other_machines(compose: list[str], profile: str) -> None:
    services = read(compose, profile)
    ports = [published(port) for service in services.values() for port in service.get("ports", [])]
    assert ports
    assert {host for host, _, _ in ports} == {"127.0.0.1"}
    assert not any("network_mode" in service for service in services.values())


def test_all_brokers_can_be_up_at_once(compose: list[str]) -> None:
    outside = [published(port)[1] for name in PROFILES for port in read(compose, name)[name]["ports"]]
    assert len(outside) == len(set(outside))


def published(port: Any) -> tuple[str, int, int]:
    """Return (address, port outside, port inside) of a port as either compose prints it."""
    if isinstance(port, dict):
        return port.get("host_ip", ""), int(port["published"]), int(port["target"])
    address, outside, inside = port.partition("/")[0].rsplit(":", 2)
    return address, int(outside), int(inside)


@pytest.mark.parametrize("profile", PROFILES)
def test_the_demo_on_this_machine_asks_for_the_port_and_with_the_login_of_the_file(
    compose: list[str], profile: str
) -> None:
    services = read(compose, profile)
    url = urlsplit(services[f"demo-{profile}"]["environment"]["REDELIVER_URL"])
    where = runpy.run_path(str(REPOSITORY / "examples/order_service/where.py"))
    assert where["PORT"][profile] == url.port
    assert where["LOGIN"][profile] == f"{url.username}:{url.password}"


def test_a_mounted_file_is_there(compose: list[str]) -> None:
    (volume,) = read(compose, "activemq")["activemq"]["volumes"]
    source = volume["source"] if isinstance(volume, dict) else volume.split(":")[0]
    assert Path(source) == REPOSITORY / "examples/order_service/activemq.xml"
    assert Path(source).is_file()


def test_the_health_check_is_yes_only_when_the_broker_lets_us_in(compose: list[str], jvm_broker: Broker) -> None:
    program, *arguments = read(compose, jvm_broker.kind)[jvm_broker.kind]["healthcheck"]["test"][1:]
    words = [word.replace("$$", "$") for word in arguments]  # as compose hands it to the container

    def healthy(user: str, password: str, port: int) -> bool:
        login = {"login:admin": f"login:{user}", "passcode:admin": f"passcode:{password}"}
        script = words[-1]
        for old, new in login.items():
            assert old in script
            script = script.replace(old, new)
        argv, env = [program, *words[:-1], script], os.environ | {"STOMP_PORT": str(port)}
        return subprocess.run(argv, check=False, env=env, capture_output=True, timeout=10).returncode == 0

    b = jvm_broker
    assert healthy(b.user, b.password, b.stomp_port)
    assert not healthy(b.user, "wrong", b.stomp_port)
    assert not healthy(b.user, b.password, 1)


def test_the_images_context_has_all_that_its_dockerfile_copies() -> None:
    folder = REPOSITORY / "examples/order_service"
    copied: set[str] = set()
    for line in re.findall(r"(?m)^COPY (?!--from)(.*)$", (folder / "Dockerfile").read_text()):
        copied.update(line.split()[:-1])
    allowed = {line[1:] for line in (folder / "Dockerfile.dockerignore").read_text().splitlines() if line[:1] == "!"}
    assert copied == allowed
    assert all((REPOSITORY / name).exists() for name in copied)
