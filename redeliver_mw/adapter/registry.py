# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Makes an adapter of a broker URL: `rabbitmq://user:password@host:5672/vhost?tls=1`.

The scheme is a broker (`rabbitmq`: its usual driver) or a dialect (`rabbitmq+pika`). Several hosts, separated by
commas, are tried in turn. A third party adds its own adapter through the entry-point group `redeliver_mw.adapters`;
each entry is a function from a `BrokerUrl` to an `Adapter`.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote, urlencode

from ..errors import ConfigError, MissingExtra
from .protocol import Adapter
from .tls_files import read_tls_files

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

GROUP = "redeliver_mw.adapters"
USUAL_DRIVER = {
    "activemq": "activemq+stomp",
    "rabbitmq": "rabbitmq+pika",
    "artemis": "artemis+proton",
    "memory": "memory",
}
# Our own adapters, as in pyproject.toml: their users need no search through all installed packages.
MEMORY = "redeliver_mw.memory"  # by name, like the drivers' adapters, because it is above this layer
OURS = {
    "activemq+stomp": "redeliver_stomp",
    "artemis+proton": "redeliver_proton",
    "rabbitmq+proton": "redeliver_proton.rabbitmq",
    "rabbitmq+pika": "redeliver_pika",
}
EXTRA_OF_DRIVER = {"stomp": "stomp", "pika": "pika", "proton": "proton"}
NOT_BUILT = {"activemq+proton", "rabbitmq+stomp", "artemis+stomp"}
TRUE, FALSE = {"1", "true", "yes", "on"}, {"0", "false", "no", "off"}
# Options of clients that used the URL before us: never the adapter's. Options about redelivery, however they are
# spelled, are read by the policy formats, which also report what is wrong with them; the others are skipped.
CLIENT_OPTIONS = ("JMSJCA.", "jms.")
POLICY_OPTIONS = ("jmsjca.redeliver", "jms.redeliver")


@dataclass(frozen=True, slots=True)
class BrokerUrl:
    """Holds the parts of a broker URL. `text` hides the password; `hosts` are (host, port or None)."""

    text: str
    dialect: str
    hosts: tuple[tuple[str, int | None], ...]
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    path: str | None = None  # after the first slash, decoded; None if there is no slash
    options: Mapping[str, str] = field(default_factory=dict, repr=False)  # may contain a password
    policy: str | None = None  # the whole URL, if it contains a policy

    def flag(self, name: str, default: bool = False) -> bool:
        """Return an option that is on or off. Raises ConfigError for any other value."""
        value = self.options.get(name, "").lower()
        if value in TRUE | FALSE or not value:
            return value in TRUE if value else default
        raise ConfigError(
            f"option {name}={value!r} is neither on nor off",
            where=self.text,
            cure=f"Write {name}=1 or {name}=0",
            code="broker-url-option",
        )

    def tls_context(self) -> ssl.SSLContext | None:
        """Return the TLS settings, with the current contents of the files; None without `tls=1`.

        The broker is verified against the system's roots, or against the file in `ca`. `cert` and `key` name a client
        certificate; `verify=0` switches verification off. Raises ConfigError for a file that cannot be used.
        """
        if not self.flag("tls"):
            return None
        context = read_tls_files(self.options, self.text)
        if not self.flag("verify", True):
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context

    def check_options(self, known: set[str]) -> None:
        """Raise ConfigError if there is an option that this dialect does not have."""
        for name in self.options:
            if name not in known | {"tls", "ca", "cert", "key", "verify"}:
                raise ConfigError(
                    f"option {name!r} is unknown",
                    where=self.text,
                    cure=f"Known are {', '.join(sorted(known | {'tls', 'ca'}))}",
                    code="broker-url-option",
                )


def parse_url(url: str) -> BrokerUrl:
    """Return the parts of a broker URL. Raises ConfigError, without the password, if the text is not a broker URL."""
    shown = repr(_safe(url)) if isinstance(url, str) else f"a value of the type {type(url).__name__}"
    scheme, mark, rest = url.partition("://") if isinstance(url, str) else ("", "", "")
    if not mark or not scheme:
        raise ConfigError(
            f"{shown} is no broker URL",
            cure="Write one like rabbitmq://user:password@host:5672/ or memory://",
            code="broker-url-syntax",
        )
    before, _, query = rest.partition("?")
    authority, slash, path = before.partition("/")
    if "@" in path or any("@" in value and not _is_url(value) for value in query.split("&")):
        # This may be the end of a password, which must not be shown, nor be taken for a host.
        raise ConfigError(
            "an @ behind the first / or ?",
            where=f"{scheme:.40}://...",
            cure="In a user, a password or a path write %2F for /, %3F for ? and %40 for @",
            code="broker-url-syntax",
        )
    credentials, at, hosts = authority.rpartition("@")
    user, colon, password = credentials.partition(":")
    safe = f"{scheme}://{user + '@' if at else ''}{hosts}{slash}{path}"
    pairs = parse_qsl(query, keep_blank_values=True)
    options = {name: value for name, value in pairs if not name.startswith(CLIENT_OPTIONS)}
    return BrokerUrl(
        text=safe,
        dialect=USUAL_DRIVER.get(scheme, scheme),
        hosts=tuple(_host(item, scheme) for item in hosts.split(",")),
        user=unquote(user) if at else None,
        password=unquote(password) if colon else None,
        path=unquote(path) if slash else None,
        options=options,
        policy=url if any(_about_a_policy(name.lower()) for name, _ in pairs) else None,
    )


def _about_a_policy(option: str) -> bool:
    # An option with text before this name, or without its beginning, is a mistake that the policy's reader reports.
    return option.startswith(POLICY_OPTIONS) or "redeliverypolicy." in option


def adapter_for(url: str | BrokerUrl) -> Adapter:
    """Return the adapter for a URL, not connected yet. Raises ConfigError, MissingExtra."""
    parsed = parse_url(url) if isinstance(url, str) else url
    if parsed.dialect == "memory":
        text = parsed.text + (f"?{urlencode(parsed.options)}" if parsed.options else "")
        found: Adapter = import_module(MEMORY).adapter_from_url(text)
        return found
    return _load(parsed)(parsed)


def dialects() -> list[str]:
    """Return every dialect that is built in or plugged in, sorted; the driver need not be installed."""
    return sorted({"memory", *OURS} | _plugged_in().names)


def _load(url: BrokerUrl) -> Callable[[BrokerUrl], Adapter]:
    if (module := OURS.get(url.dialect)) is not None:
        return _loaded(lambda: import_module(module).adapter_from_url, url)
    found = _plugged_in().select(name=url.dialect)
    if not found:
        if url.dialect in NOT_BUILT:
            raise ConfigError(
                f"{url.dialect} is not built yet",
                where=url.text,
                cure=f"Built are {', '.join(dialects())}",
                code="broker-url-syntax",
            )
        raise ConfigError(
            f"scheme {url.dialect!r} is unknown",
            where=url.text,
            cure=f"Known are {', '.join(dialects())}",
            code="broker-url-syntax",
        )
    return _loaded(next(iter(found)).load, url)


def _plugged_in() -> EntryPoints:
    from importlib.metadata import entry_points

    return entry_points(group=GROUP)


def _loaded(load: Callable[[], Callable[[BrokerUrl], Adapter]], url: BrokerUrl) -> Callable[[BrokerUrl], Adapter]:
    """Return the adapter's factory.

    Raises MissingExtra with the extra to install if the driver is missing; passes on any other error.
    """
    driver = url.dialect.partition("+")[2]
    try:
        return load()
    except ModuleNotFoundError as missing:
        if missing.name != driver:
            raise
        extra = EXTRA_OF_DRIVER.get(driver, driver)
        raise MissingExtra(
            f"the driver {driver!r} is not installed", where=url.text, cure=f"Run: pip install 'redeliver-mw[{extra}]'"
        ) from None


def _is_url(option: str) -> bool:
    """Return whether an option is `name=http://...`: the address of a management may have its own user and password."""
    return option.partition("=")[2].startswith(("http://", "https://"))


def _host(item: str, scheme: str) -> tuple[str, int | None]:
    host, colon, port = item.rpartition(":") if not item.endswith("]") else (item, "", "")
    if not colon:
        return item.strip("[]"), None
    if not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        # The port is not shown: if the host was forgotten, this is a password.
        raise ConfigError(
            "its port is no number from 1 to 65535",
            where=f"{scheme}://{host:.100}",
            cure="Write HOST:PORT",
            code="broker-url-syntax",
        )
    return host.strip("[]"), int(port)


def _safe(url: str) -> str:
    return url.rpartition("@")[2][:100]
