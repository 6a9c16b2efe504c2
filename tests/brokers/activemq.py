# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Runs ActiveMQ Classic 6.3 and 5.18, their jars by Maven, with the configuration that docker-compose uses too.

REDELIVER_TEST_ACTIVEMQ_URL, one URL or several with commas between, takes the place of both: of the given
brokers a test for "5.18" takes the first that reports 5.x, one for "6.3" the first that reports 6.x.
REDELIVER_TEST_ACTIVEMQ518_URL and REDELIVER_TEST_ACTIVEMQ63_URL name the broker for one version, whatever it
reports, and come first. The port is STOMP's; `?amqp_port=` tells where AMQP 1.0 is, if not at 5672.
"""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.brokers import _maven, _stomp
from tests.brokers._broker import Broker, GivenBroker, OwnBroker
from tests.brokers._given import given
from tests.brokers._install import BrokerMissing
from tests.brokers._process import BrokerFailed, free_ports, listening, wait_until

VERSIONS = ("6.3", "5.18")
FETCHED = VERSIONS
_RELEASES = {"6.3": "6.3.1", "5.18": "5.18.3"}
_WAITS = "now in slave mode"  # what a broker logs that waits for another one's store
_CONFIGURATION = Path(__file__).parents[2] / "examples/order_service/activemq.xml"
_ARTEFACTS = (
    *(f"org.apache.activemq:activemq-{part}" for part in ("broker", "console", "jaas", "kahadb-store", "spring")),
    *(f"org.apache.activemq:activemq-{protocol}" for protocol in ("amqp", "stomp")),
    "org.springframework:spring-context",
    "org.apache.xbean:xbean-spring",
    "org.apache.logging.log4j:log4j-slf4j2-impl",
)


def open_broker(version: str, **options: Any) -> Broker:
    """Return a usable ActiveMQ: given by the environment, else our own.

    `options` are those of `ActiveMQ`. With any of them the broker is always our own: a given one is as it is.
    Raises BrokerMissing and BrokerFailed.
    """
    return (None if options else given(GivenActiveMQ, version)) or _own(version, options)


def fetch(version: str) -> str:
    """Install or cache what `open_broker` needs; return one line about what there is now."""
    if found := given(GivenActiveMQ, version):
        return found.describe()
    java, jars = _maven.java(_cure(version)), _maven.jars(_jars(version), _cure(version))
    _maven.write_archive(java, jars, lambda path: ActiveMQ(version, writes=path))
    return f"ActiveMQ {_RELEASES[version]} is here (maven cache)"


def jars(version: str) -> Path:
    """Return the folder with the broker's jars, fetched if need be, whatever broker is given. Raises BrokerMissing."""
    return _maven.jars(_jars(version), _cure(version))


class GivenActiveMQ(GivenBroker):
    kind = "activemq"
    title = "ActiveMQ"
    path = ""
    default_port = 61613
    default_user = "admin"

    def __init__(self, url: str, variable: str) -> None:
        super().__init__(url, variable)
        self.stomp_port = self.port
        self.amqp_port = int(parse_qs(urlsplit(url).query).get("amqp_port", ["5672"])[0])
        try:
            self.version = _stomp.server_version(self.host, self.port, self.user, self.password)[1]
        except ConnectionError as error:
            cure = f"Start it, correct {variable}, or unset it"
            raise BrokerMissing(f"the ActiveMQ at {self.host}:{self.port} cannot be used: {error}", cure) from error

    def fits(self, version: str) -> bool:
        return self.version.partition(".")[0] == version.partition(".")[0]


def _cure(version: str) -> str:
    variable = f"REDELIVER_TEST_ACTIVEMQ{version.replace('.', '')}_URL"
    return f"Run `python -m tests.brokers fetch`, or set {variable} to a broker of your own"


def _jars(version: str) -> _maven.Jars:
    release = _RELEASES[version]
    return _maven.Jars("activemq", "activemq-parent", release, _ARTEFACTS)


def _own(version: str, options: dict[str, Any]) -> Broker:
    return _maven.started(lambda: ActiveMQ(version, **options))


class ActiveMQ(OwnBroker):
    """Runs one broker on 127.0.0.1, with STOMP at `port` and AMQP 1.0 at `amqp_port`; one user, nobody else gets in.

    With `scheduler` off delay headers are ignored, as ActiveMQ does by default. `policy_entries`: XML of
    `<policyEntry …>` elements, for dead-letter strategies per destination; `plugins`: XML beside the
    authentication plugin; `tls`: XML of the `<sslContext>`, and `connectors`: XML of further `<transportConnector …>`
    elements; `users`: XML of further `<authenticationUser …>` elements; `tiered`: with the optimising compiler, for
    measuring. Both brokers of a pair have the same `user`, `password` and `store`, the folder of the messages: the one
    that comes second waits for the other's end. `store_limit` is what may lie in that folder. `writes`: an archive of
    the broker's classes.
    """

    kind = "activemq"
    title = "ActiveMQ"
    how = "maven cache"
    path = ""

    def __init__(
        self,
        version: str,
        *,
        scheduler: bool = True,
        policy_entries: str = "",
        plugins: str = "",
        tls: str = "",
        connectors: str = "",
        users: str = "",
        tiered: bool = False,
        writes: Path | None = None,
        store: Path | None = None,
        user: str = "tester",
        password: str = "",
        store_limit: str = "2 gb",
    ) -> None:
        cure = _cure(version)
        java, jars = _maven.java(cure), _maven.jars(_jars(version), cure)
        super().__init__(())
        self.version = _RELEASES[version]
        self.user, self.password = user, password or secrets.token_hex(8)
        self._paired = store is not None
        self.port, self.amqp_port = free_ports(2)
        self.stomp_port = self.port
        self._log = self.data / "broker.log"
        configuration = self.data / "activemq.xml"
        text = _CONFIGURATION.read_text()
        for old, new in (
            ("</policyEntries>", f"{policy_entries}</policyEntries>"),
            ("</plugins>", f"{plugins}</plugins>{tls}"),
            ("</users>", f"{users}</users>"),
            ("</transportConnectors>", f"{connectors}</transportConnectors>"),
        ):
            text = text.replace(old, new)
        if store is not None:  # of which room comes back soon
            text = text.replace('storeUsage limit="2 gb"', f'storeUsage limit="{store_limit}"')
            text = text.replace('/kahadb"/>', '/kahadb" journalMaxFileLength="4mb" cleanupInterval="1000"/>')
        configuration.write_text(text)
        (self.data / "log4j2.properties").write_text(_maven.LOG4J)
        settings = {
            **{f"activemq.{name}": str(self.data) for name in ("home", "base", "conf")},
            "activemq.data": str(store or self.data / "data"),
            "redeliver.scheduler": str(scheduler).lower(),
            "redeliver.user": self.user,
            "redeliver.password": self.password,
            "redeliver.stomp": f"127.0.0.1:{self.port}",
            "redeliver.amqp": f"127.0.0.1:{self.amqp_port}",
        }
        given = [f"-D{name}={value}" for name, value in settings.items()]
        main = ["org.apache.activemq.console.Main", "start", f"xbean:file:{configuration}"]
        self._argv = [*_maven.java_argv(java, jars, self.data, tiered=tiered, writes=writes), *given, *main]

    def set_password(self, password: str) -> None:
        """Use this password from the next start on."""
        old, self.password = self.password, password
        self._argv = [
            word.replace(f"-Dredeliver.password={old}", f"-Dredeliver.password={password}") for word in self._argv
        ]

    def ctl(self, *words: str) -> str:
        """Raise BrokerFailed, always: ActiveMQ's own commands need JMX, which is not open here."""
        raise BrokerFailed(f"ActiveMQ cannot be asked {' '.join(words)!r}: it has no JMX port here")

    @property
    def active(self) -> bool:
        """Return whether the broker serves clients: one of a pair waits."""
        return listening(self.port)

    def _launch(self) -> None:
        before = self._log.stat().st_size if self._log.exists() else 0
        process = self._leash.run(self._argv, {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}, self._log)
        logs, what = [self._log], self.describe()
        wait_until(
            lambda: self._usable() or (self._paired and _WAITS in self._log.read_text()[before:]),
            alive=lambda: process in self.pids(),
            logs=logs,
            what=what,
        )

    def _usable(self) -> bool:
        return listening(self.amqp_port) and _stomp.serves(self.host, self.port, self.user, self.password)
