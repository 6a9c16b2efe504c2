# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Runs Artemis 2.44 and 2.40, their jars by Maven, with a configuration of our own.

REDELIVER_TEST_ARTEMIS_URL, one URL or several with commas between, takes the place of our own: a test takes the
first that reports the version asked for, "2.44" also any other 2.x.
REDELIVER_TEST_ARTEMIS244_URL and REDELIVER_TEST_ARTEMIS240_URL name the broker for one version, whatever it
reports, and come first. The port must speak AMQP 1.0; `?stomp_port=` tells where STOMP is, if not there too.
"""

from __future__ import annotations

import json
import secrets
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.brokers import _amqp10, _maven
from tests.brokers._broker import Broker, GivenBroker, OwnBroker
from tests.brokers._given import given
from tests.brokers._install import BrokerMissing
from tests.brokers._process import BrokerFailed, free_ports, listening, wait_until

VERSIONS = ("2.44", "2.40")
FETCHED = ("2.44",)
_RELEASES = {"2.44": "2.44.0", "2.40": "2.40.0"}
_ARTEFACTS = (
    *(f"org.apache.activemq:artemis-{part}" for part in ("cli", "amqp-protocol", "stomp-protocol")),
    "org.apache.logging.log4j:log4j-slf4j2-impl",
)


def open_broker(version: str, **options: Any) -> Broker:
    """Return a usable Artemis: given by the environment, else our own.

    `options` are those of `Artemis`. With any of them the broker is always our own: a given one is as it is.
    Raises BrokerMissing and BrokerFailed.
    """
    return (None if options else given(GivenArtemis, version)) or _own(version, options)


def fetch(version: str) -> str:
    """Install or cache what `open_broker` needs; return one line about what there is now."""
    if found := given(GivenArtemis, version):
        return found.describe()
    java, jars = _maven.java(_cure(version)), _maven.jars(_jars(version), _cure(version))
    _maven.write_archive(java, jars, lambda path: Artemis(version, writes=path))
    return f"Artemis {_RELEASES[version]} is here (maven cache)"


# --- given by the environment


class GivenArtemis(GivenBroker):
    kind = "artemis"
    title = "Artemis"
    path = ""
    default_port = 5672
    default_user = "admin"

    def __init__(self, url: str, variable: str) -> None:
        super().__init__(url, variable)
        self.amqp_port = self.port
        self.stomp_port = int(parse_qs(urlsplit(url).query).get("stomp_port", [str(self.port)])[0])
        try:
            self.version = _amqp10.server_version(self.host, self.port, self.user, self.password)
        except ConnectionError as error:
            cure = f"Start it, correct {variable}, or unset it"
            raise BrokerMissing(f"the Artemis at {self.host}:{self.port} cannot be used: {error}", cure) from error

    def fits(self, version: str) -> bool:
        return version == VERSIONS[0] or self.version.startswith(f"{version}.")


# --- started here


def _cure(version: str) -> str:
    variable = f"REDELIVER_TEST_ARTEMIS{version.replace('.', '')}_URL"
    return f"Run `python -m tests.brokers fetch`, or set {variable} to a broker of your own"


def _jars(version: str) -> _maven.Jars:
    return _maven.Jars("artemis", "artemis-pom", _RELEASES[version], _ARTEFACTS)


def _own(version: str, options: dict[str, Any]) -> Broker:
    return _maven.started(lambda: Artemis(version, **options))


class Artemis(OwnBroker):
    """Runs one broker on 127.0.0.1, with AMQP 1.0, STOMP and CORE at one port; one user, who may do everything.

    `address_settings`: XML of `<address-setting match="…">` elements, beside the one for `#` that `artemis create`
    writes, unless there is one among them; `acceptors`: XML of further `<acceptor …>` elements; `core`: any other XML
    inside `<core>`; `allow_anonymous`: whoever has no
    or a wrong password is a guest who may do everything too; `tiered`: with the optimising compiler, for measuring.
    Both brokers of a pair have the same `password`, each its `port`, and in `core` what makes it one of a pair;
    `store`, if they share it, is the folder of the messages. `writes`: an archive of the broker's classes.
    """

    kind = "artemis"
    title = "Artemis"
    how = "maven cache"
    path = ""
    user = "tester"

    def __init__(
        self,
        version: str,
        *,
        address_settings: str = "",
        acceptors: str = "",
        core: str = "",
        allow_anonymous: bool = False,
        tiered: bool = False,
        writes: Path | None = None,
        port: int = 0,
        password: str = "",
        store: Path | None = None,
    ) -> None:
        cure = _cure(version)
        java, jars = _maven.java(cure), _maven.jars(_jars(version), cure)
        super().__init__(())
        self.version = _RELEASES[version]
        self.password = password or secrets.token_hex(8)
        self.port = port or free_ports(1)[0]
        self._paired, self._store = bool(port), store or self.data / "data"
        self.stomp_port = self.amqp_port = self.port
        self._log = self.data / "broker.log"
        self._write_files(address_settings, acceptors, core, allow_anonymous)
        properties = {
            "java.security.auth.login.config": self.data / "login.config",
            "artemis.home": self.data,
            "artemis.instance": self.data,
            "artemis.instance.etc": self.data,
            "data.dir": self._store,
        }
        given = [f"-D{name}={value}" for name, value in properties.items()]
        opened = ["--add-opens", "java.base/jdk.internal.misc=ALL-UNNAMED"]
        main = ["org.apache.activemq.artemis.cli.Artemis", "run"]
        self._argv = [*_maven.java_argv(java, jars, self.data, tiered=tiered, writes=writes), *given, *opened, *main]

    def make_queue(self, queue: str) -> None:
        """Make a durable anycast queue at the address of its name, unless it is there already. Raises BrokerFailed."""
        try:
            with _amqp10.connection_to(self.host, self.port, self.user, self.password) as connection:
                _amqp10.Management(connection).make_queue(queue)
        except (ConnectionError, ValueError) as error:
            raise BrokerFailed(f"Artemis, asked to make queue {queue}: {error}") from error

    def ctl(self, *words: str) -> str:
        """Make a management call.

        `ctl("queue.orders", "messageCount")` reads an attribute, further words or a trailing `()` make it an operation:
        `ctl("broker", "getQueueNames()")`, `ctl("broker", "destroyQueue", "orders")`. Words that are JSON are handed on
        as JSON. The answer is text, or JSON where it is not text.
        """
        resource, name, *parameters = words
        try:
            answer = _amqp10.manage(self.host, self.port, self.user, self.password, resource, name, parameters)
        except (ConnectionError, ValueError) as error:
            raise BrokerFailed(f"Artemis, asked {' '.join(words)}: {error}") from error
        return answer if isinstance(answer, str) else json.dumps(answer)

    @property
    def active(self) -> bool:
        """Return whether the broker serves clients: one of a pair waits."""
        return listening(self.port)

    def _launch(self) -> None:
        before = self._log.stat().st_size if self._log.exists() else 0
        process = self._leash.run(self._argv, {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}, self._log)
        logs, what = [self._log], self.describe()
        wait_until(
            lambda: self._usable() or (self._paired and self._waits(before)),
            alive=lambda: process in self.pids(),
            logs=logs,
            what=what,
        )

    def _waits(self, since: int) -> bool:
        """Return whether the log says, from byte `since` on, that the broker waits for the other of its pair to end."""
        said = self._log.read_bytes()[since:].decode(errors="replace")
        return any(word in said for word in _WAITS)

    def _usable(self) -> bool:
        return _amqp10.serves(self.host, self.port, self.user, self.password)

    def _write_files(self, address_settings: str, acceptors: str, core: str, allow_anonymous: bool) -> None:
        guest = _GUEST if allow_anonymous else ""
        if 'match="#"' not in address_settings:
            address_settings = _ANY_ADDRESS + address_settings
        broker = _BROKER.format(
            port=self.port, store=self._store, address_settings=address_settings, acceptors=acceptors, core=core
        )
        files = {
            "broker.xml": broker,
            "bootstrap.xml": _BOOTSTRAP.format(configuration=f"file:{self.data}/broker.xml"),
            "management.xml": '<management-context xmlns="http://activemq.apache.org/schema"/>\n',
            "login.config": _LOGIN.format(control="sufficient" if guest else "required", guest=guest),
            "users.properties": f"{self.user}={self.password}\n",
            "roles.properties": f"all={self.user}\n",
            "log4j2.properties": _maven.LOG4J,
        }
        for name, text in files.items():
            (self.data / name).write_text(text)
        (self.data / "users.properties").chmod(0o600)


#: What a backup logs once it waits: of a shared store, of a replicated one.
_WAITS = ("AMQ221032", "AMQ221024", "AMQ221031")
_LOGIN = """activemq {{
  org.apache.activemq.artemis.spi.core.security.jaas.PropertiesLoginModule {control}
    org.apache.activemq.jaas.properties.user="users.properties"
    org.apache.activemq.jaas.properties.role="roles.properties"
    reload=true;
{guest}}};
"""
_GUEST = """  org.apache.activemq.artemis.spi.core.security.jaas.GuestLoginModule sufficient
    org.apache.activemq.jaas.guest.user="guest"
    org.apache.activemq.jaas.guest.role="all";
"""
_BOOTSTRAP = """<broker xmlns="http://activemq.apache.org/schema">
  <jaas-security domain="activemq"/>
  <server configuration="{configuration}"/>
</broker>
"""
_PERMISSIONS = "\n".join(
    f'        <permission type="{kind}" roles="all"/>'
    for kind in (
        *("createAddress", "deleteAddress", "createDurableQueue", "deleteDurableQueue"),
        *("createNonDurableQueue", "deleteNonDurableQueue", "send", "consume", "browse", "manage"),
    )
)
_ANY_ADDRESS = """<address-setting match="#">
        <dead-letter-address>DLQ</dead-letter-address>
        <expiry-address>ExpiryQueue</expiry-address>
        <address-full-policy>PAGE</address-full-policy>
        <auto-delete-queues>false</auto-delete-queues>
        <auto-delete-addresses>false</auto-delete-addresses>
      </address-setting>
      """
#: What `artemis create` writes, as far as it is not Artemis's default anyway, without its further ports, and with
#: expired messages looked for more often.
_BROKER = f"""<configuration xmlns="urn:activemq">
  <core xmlns="urn:activemq:core">
    <name>redeliver</name>
    <journal-type>NIO</journal-type>
    <paging-directory>{{store}}/paging</paging-directory>
    <bindings-directory>{{store}}/bindings</bindings-directory>
    <journal-directory>{{store}}/journal</journal-directory>
    <large-messages-directory>{{store}}/large-messages</large-messages-directory>
    <journal-pool-files>10</journal-pool-files>
    <max-disk-usage>99</max-disk-usage>
    <message-expiry-scan-period>300</message-expiry-scan-period>
    <acceptors>
      <acceptor name="all">tcp://127.0.0.1:{{port}}?protocols=CORE,AMQP,STOMP</acceptor>
      {{acceptors}}
    </acceptors>
    <security-settings>
      <security-setting match="#">
{_PERMISSIONS}
      </security-setting>
    </security-settings>
    <address-settings>
      {{address_settings}}
    </address-settings>
    <addresses>
      <address name="DLQ"><anycast><queue name="DLQ"/></anycast></address>
      <address name="ExpiryQueue"><anycast><queue name="ExpiryQueue"/></anycast></address>
    </addresses>
    {{core}}
  </core>
</configuration>
"""
