# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Runs RabbitMQ 3.10 from the Debian 12 package, and 4.3 from a Debian forky unpacked into the cache folder.

REDELIVER_TEST_RABBITMQ_URL, one URL or several with commas between, takes the place of both: of the given
brokers a test for "3.10" takes the first that reports 3.x, one for "4.3" the first that reports 4.x.
REDELIVER_TEST_RABBITMQ310_URL and REDELIVER_TEST_RABBITMQ43_URL name the broker for one version, whatever it
reports, and come first.
"""

from __future__ import annotations

import secrets
import subprocess
import time
from base64 import b64decode
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.brokers import _install
from tests.brokers._amqp import server_version, serves
from tests.brokers._broker import Broker, GivenBroker, How, OwnBroker
from tests.brokers._given import given
from tests.brokers._install import BrokerMissing
from tests.brokers._process import BrokerFailed, free_ports, listening, wait_until

VERSIONS = ("3.10", "4.3")
_BIN = "/usr/lib/rabbitmq/bin"
# Run by root in a mount namespace of its own: the broker's data appears at /mnt; the cache stays as it is.
_ENTER = """
root=$1 data=$2; shift 2
mount -t proc proc "$root/proc" && mount --bind "$data" "$root/mnt" && exec chroot "$root" "$@"
"""


def open_broker(version: str) -> Broker:
    """Return a usable RabbitMQ: given by the environment, else our own. Raises BrokerMissing and BrokerFailed."""
    return given(GivenRabbitMQ, version) or _own(version)


def fetch(version: str) -> str:
    """Install or cache what `open_broker` needs; return one line about what there is now."""
    if found := given(GivenRabbitMQ, version):
        return found.describe()
    here = installed(version)
    return f"RabbitMQ {here.version} is here ({here.how})"


# --- given by the environment


class GivenRabbitMQ(GivenBroker):
    kind = "rabbitmq"
    title = "RabbitMQ"

    def __init__(self, url: str, variable: str) -> None:
        super().__init__(url, variable)
        try:
            self.version = server_version(self.host, self.port, self.user, self.password, self.path)
        except ConnectionError as error:
            cure = f"Start it, correct {variable}, or unset it"
            raise BrokerMissing(f"the RabbitMQ at {self.host}:{self.port} cannot be used: {error}", cure) from error

    def fits(self, version: str) -> bool:
        return self.version.partition(".")[0] == version.partition(".")[0]


# --- installed here


@dataclass(frozen=True)
class Installed:
    """Describes a RabbitMQ on this machine: `root` is "/" or the folder of the Debian system that it lives in."""

    version: str
    how: How
    root: Path
    prefix: Sequence[str] = ()

    def seen(self, data: Path) -> str:
        """Return the data folder as the broker sees it."""
        return str(data) if self.root == Path("/") else "/mnt"

    def argv(self, data: Path, *words: str) -> list[str]:
        """Return the command line that runs `words` where the broker is."""
        if self.root == Path("/"):
            return list(words)
        return [*_install.OWN_MOUNTS, "sh", "-c", _ENTER, "enter", str(self.root), str(data), *words]


def installed(version: str) -> Installed:
    """Return the RabbitMQ of this version, installed now if it is not here yet. Raises BrokerMissing."""
    cure = (
        "Run `python -m tests.brokers fetch` as root, or set "
        f"REDELIVER_TEST_RABBITMQ{version.replace('.', '')}_URL to a broker of your own"
    )
    return _package(cure) if version == "3.10" else _unpacked(cure)


def _package(cure: str) -> Installed:
    if not _version_in(Path("/")):
        _install.apt_install("rabbitmq-server", cure, service="rabbitmq-server.service")
    found = _version_in(Path("/"))
    if not found.startswith("3.10."):
        raise BrokerMissing(f"this system's rabbitmq-server is {found or 'of an unknown version'}, not 3.10", cure)
    return Installed(found, "debian package", Path("/"))


def _unpacked(cure: str) -> Installed:
    root = _install.debian_system("rabbitmq-4.3-forky", "forky", "rabbitmq-server", cure)
    prefix = _install.root_prefix("starting RabbitMQ 4.3 by chroot", cure)
    if subprocess.run([*prefix, *_install.OWN_MOUNTS, "true"], check=False, capture_output=True).returncode:
        raise BrokerMissing("mounts are forbidden here even to root, so RabbitMQ 4.3 cannot run by chroot", cure)
    return Installed(_version_in(root), "debootstrap cache", root, prefix)


def _version_in(root: Path) -> str:
    found = sorted((root / "usr/lib/rabbitmq/lib").glob("rabbitmq_server-*"))
    return found[-1].name.removeprefix("rabbitmq_server-") if found else ""


# --- started here


def _own(version: str) -> Broker:
    here = installed(version)
    for again in (True, False):
        broker = RabbitMQ(here)
        try:
            broker.start()
        except BaseException as error:
            broker.stop()
            if again and "eaddrinuse" in str(error):
                continue  # somebody took one of the ports in between
            raise
        break
    return broker


@dataclass(frozen=True)
class Member:
    """Holds what makes a node one of a cluster: its name, what all nodes share, and more lines of its configuration.

    `epmd` is the port of a port mapper, run by whoever makes the cluster: a killed node does not take it along.
    """

    node: str
    epmd: int
    cookie: str
    settings: Sequence[str]
    advanced: str = ""


class RabbitMQ(OwnBroker):
    """Runs one node on 127.0.0.1 with everything its own: name, ports, epmd, cookie, home and data."""

    kind = "rabbitmq"
    title = "RabbitMQ"
    user = password = "guest"

    def __init__(self, installed: Installed, member: Member | None = None) -> None:
        super().__init__(installed.prefix)
        self._installed, self._member = installed, member
        self.version, self.how = installed.version, installed.how
        self.port, self._management, self._dist, self._epmd = free_ports(4)
        self.node = f"redeliver-{self.port}@localhost"
        if member is not None:
            self.node, self._epmd = member.node, member.epmd
        self.management_url = f"http://guest:guest@127.0.0.1:{self._management}/"
        self._logs = [self.data / name for name in ("epmd.out", "node.out", "node.log")]
        self._write_files()
        self._env = self._environment(installed.seen(self.data))

    def ctl(self, *words: str) -> str:
        """Run `rabbitmqctl -q` with these words, which takes about a second."""
        command = self._installed.argv(self.data, f"{_BIN}/rabbitmqctl", "-q", *words)
        env = [f"{name}={value}" for name, value in self._env.items()]  # sudo would not pass it on
        argv = [*self._installed.prefix, "env", "-i", *env, *command]
        # On a machine with much else to do, one second of work has taken a minute.
        done = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=240, cwd="/")
        if done.returncode:
            raise BrokerFailed(f"rabbitmqctl {' '.join(words)}: {(done.stderr or done.stdout).strip()}")
        return done.stdout

    def evaluate(self, expressions: str) -> str:
        """Let the node evaluate Erlang expressions, and return the value of the last one.

        Commas are between the expressions, and a full stop is behind the last one. Raises BrokerFailed if one fails.
        `erl_call` is a small program of C, where `rabbitmqctl eval` starts an Erlang of its own, which takes half a
        second of processor time. It reads the cookie from the node's home, so that no list of processes shows it.
        """
        call = self._installed.argv(self.data, "/usr/bin/erl_call", "-sname", self.node, "-e")
        env = [f"{name}={self._env[name]}" for name in ("HOME", "ERL_EPMD_PORT")]
        argv = [*self._installed.prefix, "env", *env, *call]
        done = subprocess.run(
            argv, check=False, capture_output=True, text=True, timeout=240, cwd="/", input=expressions + "\n"
        )
        value = done.stdout.strip()
        if done.returncode or not value.startswith("{ok, "):
            raise BrokerFailed(f"{expressions}: {(done.stderr or value).strip()}")
        return value.removeprefix("{ok, ").removesuffix("}")

    def depths(self) -> dict[str, int]:
        """Return how many messages each queue holds, also those that a consumer has. A queue that is down is left out.

        The host is "/".
        """
        listed = (
            "binary_to_list(base64:encode(iolist_to_binary([[N, 9, integer_to_binary(M), 10] || "
            "[{name, {resource, _, _, N}}, {messages, M}] <- "
            'rabbit_amqqueue:info_all(<<"/">>, [name, messages]), is_integer(M)]))).'
        )
        text = b64decode(self.evaluate(listed).strip('[]"')).decode()  # an empty text is an empty list
        rows = [line.rpartition("\t") for line in text.split("\n") if line]
        return {name: int(count) for name, _, count in rows}

    def raise_memory_alarm(self) -> None:
        """Leave the node nearly no memory: it blocks all that publish."""
        self.evaluate("vm_memory_monitor:set_vm_memory_high_watermark(0.00001).")

    def lift_memory_alarm(self) -> None:
        """Let the node use its memory again, and wait until the node has noticed, which takes it a moment."""
        self.evaluate("vm_memory_monitor:set_vm_memory_high_watermark(0.4).")
        while "resource_limit" in self.evaluate("rabbit_alarm:get_alarms()."):
            time.sleep(0.05)

    def sync(self) -> None:
        """Write what was declared to the disk, as happens by itself after some seconds: a kill would undo it."""
        self.evaluate("mnesia:sync_log().")

    def _ask_to_end(self) -> None:
        self.ctl("stop")

    def _launch(self) -> None:
        if self._member is None:
            self._run("epmd.out", "epmd", "-port", str(self._epmd), "-address", "127.0.0.1")
        everything, what = self._logs, self.describe()
        wait_until(lambda: listening(self._epmd), alive=lambda: bool(self.pids()), logs=everything, what=what)
        node = self._run("node.out", f"{_BIN}/rabbitmq-server")
        wait_until(self._usable, alive=lambda: node in self.pids(), logs=everything, what=what)

    def _run(self, log: str, *words: str) -> int:
        return self._leash.run(self._installed.argv(self.data, *words), self._env, self.data / log)

    def _usable(self) -> bool:
        if not (listening(self.port) and listening(self._management)):
            return False
        return serves(self.host, self.port, self.user, self.password)

    def _write_files(self) -> None:
        config = [
            f"listeners.tcp.1 = 127.0.0.1:{self.port}",
            "management.tcp.ip = 127.0.0.1",
            f"management.tcp.port = {self._management}",
            *(self._member.settings if self._member is not None else ()),
        ]
        if self._member is not None and self._member.advanced:
            (self.data / "advanced.config").write_text(self._member.advanced)
        (self.data / "rabbitmq.conf").write_text("\n".join(config) + "\n")
        (self.data / "enabled_plugins").write_text("[rabbitmq_management].\n")
        for folder in ("home", "conf.d"):
            (self.data / folder).mkdir()
        cookie = self.data / "home" / ".erlang.cookie"
        cookie.write_text(self._member.cookie if self._member is not None else secrets.token_hex(16))
        cookie.chmod(0o400)  # Erlang refuses one that others could read

    def _advanced(self) -> str:
        return "advanced.config" if self._member is not None and self._member.advanced else "none.config"

    def _environment(self, data: str) -> dict[str, str]:
        """Return all that the node and rabbitmqctl are told, and nothing of the caller's own environment."""
        return {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "LANG": "C.UTF-8",
            "HOME": f"{data}/home",
            "ERL_EPMD_PORT": str(self._epmd),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            # No Erlang here starts an epmd that would outlive it, or listens to other machines.
            "ERL_ZFLAGS": "-start_epmd false -kernel inet_dist_use_interface {127,0,0,1}",
            "ERL_CRASH_DUMP_SECONDS": "0",
            "RUNNING_UNDER_SYSTEMD": "true",  # the start script becomes the node instead of waiting beside it
            # Without work a scheduler sleeps at once, instead of looking for some while others need the processor: a
            # start of 3.10 takes a fifth less of its time, a confirmed message a tenth.
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+sbwt none +sbwtdcpu none +sbwtdio none",
            "RABBITMQ_NODENAME": self.node,
            "RABBITMQ_DIST_PORT": str(self._dist),
            "RABBITMQ_MNESIA_BASE": f"{data}/mnesia",
            "RABBITMQ_LOG_BASE": data,
            "RABBITMQ_LOGS": f"{data}/node.log",
            "RABBITMQ_CONF_ENV_FILE": f"{data}/none",
            "RABBITMQ_CONFIG_FILE": f"{data}/rabbitmq.conf",
            "RABBITMQ_CONFIG_FILES": f"{data}/conf.d",
            "RABBITMQ_ADVANCED_CONFIG_FILE": f"{data}/{self._advanced()}",
            "RABBITMQ_GENERATED_CONFIG_DIR": f"{data}/config",
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{data}/enabled_plugins",
        }
