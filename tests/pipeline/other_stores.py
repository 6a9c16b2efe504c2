# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Starts object stores of others on this machine: Adobe's S3Mock by Maven, s3rver and Microsoft's Azurite by npm.

The stores are kept in the cache folder of the brokers. S3Mock looks at a condition and writes in two steps, as moto
does, where a store does both in one; so a proxy before S3Mock lets puts come one at a time. S3Mock's second port, which
nothing here uses, listens on every address: no setting of S3Mock changes that.
"""

from __future__ import annotations

import http.client
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.brokers import _install
from tests.brokers._maven import _maven, java
from tests.pipeline.s3_server import proxy_to

S3MOCK, S3RVER, AZURITE = "4.11.0", "3.7.1", "3.35.0"
PATIENCE = 120.0
_CURE = "Install Maven and Java 17, or let the tests install them as root"
_NODE = "Install Node.js with npm"


@contextmanager
def s3mock() -> Iterator[str]:
    """Yield the URL of a running S3Mock."""
    final = _install.cache_folder() / f"s3mock-{S3MOCK}"
    jar = final / f"s3mock-{S3MOCK}-exec.jar"
    with _install.only_one(final.name):
        if not jar.is_file():
            copy = f"-Dartifact=com.adobe.testing:s3mock:{S3MOCK}:jar:exec"
            command = [
                _maven(_CURE),
                "-B",
                "-Dstyle.color=never",
                "dependency:copy",
                copy,
                f"-DoutputDirectory={final}",
            ]
            _install.run(command, f"fetching S3Mock {S3MOCK} with Maven", _CURE, True, ("[FATAL]", "[ERROR]"))
    port = _free()
    options = ["--server.ssl.enabled=false", "--server.address=127.0.0.1", f"--server.port={port}"]
    argv = [java(_CURE), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-jar", str(jar), *options]
    argv.append("--com.adobe.testing.s3mock.httpPort=0")
    with _running(argv, port), proxy_to(f"http://127.0.0.1:{port}", puts_alone=True) as proxy:
        yield proxy.url


@contextmanager
def s3rver(folder: Path) -> Iterator[str]:
    """Yield the URL of a running s3rver, which keeps its objects in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    place, port = _npm("s3rver", S3RVER), _free()
    script = place / "node_modules/s3rver/bin/s3rver.js"
    argv = ["node", str(script), "--silent", "-a", "127.0.0.1", "-p", str(port), "-d", str(folder)]
    with _running(argv, port):
        yield f"http://127.0.0.1:{port}"


@contextmanager
def azurite(folder: Path) -> Iterator[str]:
    """Yield the URL of the blob service of a running Azurite, which keeps its objects in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    place, port = _npm("azurite", AZURITE), _free()
    script = place / "node_modules/azurite/dist/src/blob/main.js"
    options = ["--blobHost", "127.0.0.1", "--blobPort", str(port), "--location", str(folder), "--silent"]
    with _running(["node", str(script), *options, "--skipApiVersionCheck", "--disableTelemetry"], port):
        yield f"http://127.0.0.1:{port}"


def make_bucket(url: str, name: str) -> None:
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=30)
    try:
        connection.request("PUT", f"/{name}", b"", {"Content-Length": "0"})
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
    finally:
        connection.close()


def _npm(name: str, version: str) -> Path:
    if not shutil.which("node") or not shutil.which("npm"):
        raise _install.BrokerMissing("Node.js or npm is not here", _NODE)
    final = _install.cache_folder() / f"{name}-{version}"
    with _install.only_one(final.name):
        if not final.is_dir():
            building = final.with_name(f"{final.name}.building-{os.getpid()}")
            try:
                building.mkdir()
                (building / "package.json").write_text("{}")
                command = ["npm", "install", "--prefix", str(building), "--no-audit", "--no-fund", f"{name}@{version}"]
                _install.run(command, f"fetching {name} {version} with npm", _NODE, True, ("npm error",))
                os.rename(building, final)
            finally:
                shutil.rmtree(building, ignore_errors=True)
    return final


def _free() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@contextmanager
def _running(argv: Sequence[str], port: int) -> Iterator[None]:
    with subprocess.Popen(
        argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL
    ) as server:
        try:
            end = time.monotonic() + PATIENCE
            while not _answers(port):
                assert server.poll() is None, f"{argv[0]} ended with {server.returncode}"
                assert time.monotonic() < end, f"{argv[0]} does not answer"
                time.sleep(0.2)
            yield
        finally:
            server.kill()


def _answers(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/")
        connection.getresponse().read()
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
    return True
