# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests broker URLs that cannot be used, through `run` and `dead list`: one line, the place, the cure, no secret."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from redeliver_mw import connect
from redeliver_mw.cli import main
from tests.brokers import Broker
from tests.brokers.skips import not_to_be_had
from tests.cli.running import redeliver
from tests.faults.terminator import needs_openssl
from tests.tls.certificates import Authority, Certificate

SCHEMES = ("rabbitmq", "activemq", "artemis")
SPREAD = [*((scheme, "dead list") for scheme in SCHEMES), ("rabbitmq", "run"), ("artemis", "run")]
each_command = pytest.mark.parametrize("command", ["run", "dead list"])


class Commands:
    """Runs `run` in a process of its own, and `dead list` in this one unless another command has to start it."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._folder, self._capsys = folder, capsys

    def refused(
        self, command: str, url: str, code: int, *parts: str, hidden: Sequence[str] = (), by: Sequence[str] = ()
    ) -> str:
        """Check that the command ends with `code` and one line that has all `parts` and nothing of what is `hidden`."""
        ended, out, err = self._done(command, url, by)
        assert (ended, out) == (code, ""), err
        assert err.startswith("error: ")
        assert err.count("\n") == 1, err
        for part in parts:
            assert part in err
        for secret in hidden:
            assert secret not in err
        return err

    def _done(self, command: str, url: str, by: Sequence[str]) -> tuple[int, str, str]:
        if command == "dead list" and not by:
            self._capsys.readouterr()
            return main.run(["dead", "list", url, "DLQ"]), *self._capsys.readouterr()
        app = f"from redeliver_mw import App\napp = App({url!r})\n@app.handler('orders')\ndef on_order(d): ...\n"
        (self._folder / "shop.py").write_text(app)
        words = ("run", "shop:app") if command == "run" else ("dead", "list", url, "DLQ")
        done = redeliver(self._folder, *words, by=by)
        return done.returncode, done.stdout, done.stderr


@pytest.fixture
def commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Commands:
    return Commands(tmp_path, capsys)


# -- passwords ----------------------------------------------------------------------------------------


RAW = ["me:se/cr3t", "me:se?cr3t", "me:1234/cr3t", "me:1234?cr3t=1", "me:/cr3t", "me:?cr3t", "me:se/c?r3t"]


@pytest.mark.parametrize(("command", "credentials"), [*(("dead list", one) for one in RAW), ("run", RAW[0])])
def test_a_raw_slash_or_question_mark_in_a_password_is_refused_with_the_cure(
    commands: Commands, command: str, credentials: str
) -> None:
    for scheme in SCHEMES if command == "dead list" else SCHEMES[:1]:
        url = f"{scheme}://{credentials}@mq.example.org/"
        cure = "In a user, a password or a path write %2F for /, %3F for ? and %40 for @"
        commands.refused(command, url, 2, f"{scheme}://", cure, hidden=("cr3t", "r3t", "1234"))


@pytest.mark.broker
def test_every_other_character_may_stand_raw_in_a_password(commands: Commands, rabbitmq43: Broker) -> None:
    """The password is used as it is, and not shown: the broker refuses it, for it is the wrong one."""
    place = f"{rabbitmq43.host}:{rabbitmq43.port}"
    for password in ("s#cr3t", "s@cr3t", "s:cr3t", "s&cr3t=1", "s cr3t", "s'cr3t\"", "s%cr3t", "ß€cr3t", "s\\cr3t+"):
        url = f"rabbitmq://guest:{password}@{place}/"
        commands.refused("dead list", url, 1, "refuses this user or password", "Check both", hidden=("cr3t",))


# -- hosts --------------------------------------------------------------------------------------------


@pytest.fixture
def nobody() -> Iterator[int]:
    """Yield a port where nobody listens, and nobody can begin to."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


@pytest.mark.parametrize(("scheme", "command"), SPREAD)
def test_a_cluster_of_which_no_node_answers_names_each_node_with_its_reason(
    commands: Commands, nobody: int, scheme: str, command: str
) -> None:
    url = f"{scheme}://me:hunter2@nowhere.invalid:{nobody},127.0.0.1:{nobody}"
    where = f"{scheme}://me@nowhere.invalid:{nobody},127.0.0.1:{nobody}: no broker answers there"
    said = commands.refused(command, url, 1, where, "Start it, or check host and port", hidden=("hunter2",))
    assert f"(nowhere.invalid:{nobody}: " in said
    assert f"; 127.0.0.1:{nobody}: Connection refused)" in said


@pytest.mark.broker
@pytest.mark.parametrize("there", ["rabbitmq43", "activemq63", "artemis244"])
def test_an_unknown_host_in_a_list_is_passed_over(request: pytest.FixtureRequest, there: str) -> None:
    one: Broker = request.getfixturevalue(there)
    place = f"{one.host}:{one.port}"
    with connect(one.url.replace(place, f"nowhere.invalid,{place}")) as session:
        assert session.capabilities.broker_kind == one.kind


# -- files of certificates ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    authority = Authority(folder)
    authority.give("client")
    authority.give("second")
    (folder / "notes.txt").write_text("not a certificate\n")
    (folder / "folder").mkdir()
    os.mkfifo(folder / "pipe")
    return folder


NOT_USABLE = {
    "ca=missing.pem": ("ca=", "missing.pem cannot be read: No such file", "Check its name"),
    "ca=folder": ("ca=", "folder is no file", "Name a PEM file"),
    "ca=pipe": ("ca=", "pipe is no file", "Name a PEM file"),
    "ca=notes.txt": ("ca=", "notes.txt is no file of certificates", "Check ca="),
    "ca=client.key": ("ca=", "client.key is no file of certificates", "Check ca="),
    "cert=notes.txt&key=client.key": ("cert=", "notes.txt is no PEM file of a certificate", "Check cert="),
    "cert=client.key&key=client.pem": ("cert=", "client.key is no PEM file of a certificate", "Check cert="),
    "cert=client.pem&key=notes.txt": ("key=", "notes.txt is no PEM file of a private key", "Check key="),
    "cert=client.pem": ("key=", "client.pem is no PEM file of a private key", "Check key="),
    "cert=client.pem&key=second.key": ("key=", "second.key is not the key of cert=", "Name the key that"),
    "key=client.key": ("key= without cert=", "Name the certificate too: cert=FILE"),
}


def url_of(scheme: str, files: Path, options: str) -> str:
    placed = "&".join(f"{name}={files}/{file}" for name, _, file in (one.partition("=") for one in options.split("&")))
    return f"{scheme}://me:hunter2@127.0.0.1:1/?tls=1&{placed}"


@needs_openssl
@pytest.mark.parametrize("options", NOT_USABLE)
def test_a_file_that_cannot_be_used_is_named_with_its_option(commands: Commands, files: Path, options: str) -> None:
    for scheme, command in (("rabbitmq", "dead list"), ("artemis", "dead list")):
        url, place = url_of(scheme, files, options), f"{scheme}://me@127.0.0.1:1/: "
        commands.refused(command, url, 2, place, *NOT_USABLE[options], hidden=("hunter2",))


@needs_openssl
@pytest.mark.parametrize(("scheme", "command"), SPREAD)
def test_a_file_of_something_else_is_refused_whatever_the_broker(
    commands: Commands, files: Path, scheme: str, command: str
) -> None:
    options = "ca=notes.txt"
    commands.refused(command, url_of(scheme, files, options), 2, *NOT_USABLE[options], hidden=("hunter2",))


def bound_by_permissions() -> list[str]:
    """Return the command that takes from root what lets root read everything; nothing for other users.

    Skips the test where the command is not there.
    """
    if os.geteuid():
        return []
    words = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
    if shutil.which("setpriv") is None or subprocess.run([*words, "true"], check=False, capture_output=True).returncode:
        not_to_be_had("setpriv cannot take from root what lets it read every file: install util-linux")
    return words


@needs_openssl
@each_command
def test_a_client_key_without_permission_to_read_it(
    commands: Commands, tmp_path: Path, files: Path, command: str
) -> None:
    by = bound_by_permissions()
    closed = tmp_path / "closed.key"
    closed.write_bytes((files / "client.key").read_bytes())
    closed.chmod(0)
    url = f"rabbitmq://me:hunter2@127.0.0.1:1/?tls=1&cert={files}/client.pem&key={closed}"
    said = f"key={closed} cannot be read: Permission denied"
    commands.refused(command, url, 2, said, "Let this user read it", hidden=("hunter2",), by=by)


@needs_openssl
@each_command
def test_a_key_with_a_passphrase_is_refused_and_not_asked_for(
    commands: Commands, tmp_path: Path, files: Path, command: str
) -> None:
    client, locked = Certificate(files / "client.pem", files / "client.key"), tmp_path / "locked.key"
    words = ["openssl", "pkey", "-in", str(client.key), "-aes256", "-passout", "pass:hunter3", "-out", str(locked)]
    subprocess.run(words, check=True, capture_output=True)
    url = f"artemis://me:hunter2@127.0.0.1:1/?tls=1&cert={client.cert}&key={locked}"
    said = f"key={locked} has a passphrase"
    commands.refused(command, url, 2, said, "Give it without one", hidden=("hunter2", "hunter3"))
