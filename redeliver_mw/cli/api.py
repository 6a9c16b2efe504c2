# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Implements `redeliver api`: serves the operations on a store over HTTP; and its tokens: add, list, revoke."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import re
import socket
import sys
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from ..adapter.tls_files import read_tls_files
from ..errors import ConfigError, MissingExtra, RedeliverError
from .arguments import Json, read_url
from .help import example
from .logs import LogFormat, show_logs
from .output import plain, print_json, print_table, when
from .signals import ended_by_signals
from .store import StoreUrl, opened

if TYPE_CHECKING:
    from ..api import Api
    from ..operations.tokens import ApiToken

LISTEN = "127.0.0.1:8600"
GRACE_S = 30  # seconds that requests in hand have to end
_NAMED = re.compile(r"([A-Za-z0-9_.-]{1,64})=(.+)", re.DOTALL)
_LENGTH = re.compile(r"([0-9]{1,9})([smhd])")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}

Listen = Annotated[str, typer.Option("--listen", metavar="HOST:PORT", help="The address to serve at")]
Hosts = Annotated[
    list[str] | None,
    typer.Option("--host", metavar="NAME", help="A name under which clients reach it; may be repeated"),
]
Certfile = Annotated[Path | None, typer.Option("--certfile", metavar="FILE", help="The server's certificate, as PEM")]
Keyfile = Annotated[Path | None, typer.Option("--keyfile", metavar="FILE", help="The certificate's key, as PEM")]
BehindProxy = Annotated[
    bool, typer.Option("--behind-proxy", help="A proxy in front of it does TLS: serve without, off loopback too")
]
Brokers = Annotated[
    list[str] | None,
    typer.Option(
        "--broker",
        metavar="[NAME=]URL",
        help="A broker for collects and replays, or env:NAME for the variable that holds its URL; may be repeated",
    ),
]
KeepBodies = Annotated[
    str | None,
    typer.Option(
        "--keep-bodies",
        metavar="TIME",
        help="Remove bodies of letters that were replayed, archived or discarded so long ago, such as 30d",
    ),
]
Format = Annotated[LogFormat, typer.Option(help="How log lines look on stderr")]
TokenName = Annotated[str, typer.Argument(metavar="NAME", help="Who, or which program, the token is for")]
TokenRole = Annotated[
    str, typer.Option("--role", metavar="ROLE", help="viewer, reader, operator or admin; each may do more")
]
Expires = Annotated[str, typer.Option("--expires", metavar="TIME", help="When it ends, such as 12h or 90d")]
TokenOrName = Annotated[str, typer.Argument(metavar="NAME", help="The name of a token, or its id")]


class ListenAddress(NamedTuple):
    """Names the address to serve at."""

    host: str
    port: int

    @property
    def on_loopback(self) -> bool:
        """Return whether only this machine can reach it."""
        with contextlib.suppress(ValueError):
            return ipaddress.ip_address(self.host).is_loopback
        return self.host == "localhost"

    @property
    def everywhere(self) -> bool:
        """Return whether it is every address of this machine, and so no name for clients."""
        with contextlib.suppress(ValueError):
            return ipaddress.ip_address(self.host).is_unspecified
        return False

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def register(app: typer.Typer) -> None:
    """Add the commands."""
    api = typer.Typer(rich_markup_mode=None)
    api.callback(invoke_without_command=True, epilog=example("redeliver api --store sqlite:///store.db"))(serve)
    token = typer.Typer(help="Tokens of the HTTP API.", no_args_is_help=True, rich_markup_mode=None)
    token.command("add", epilog=example("redeliver api token add anna --role operator --expires 90d"))(add)
    token.command("list", epilog=example("redeliver api token list"))(list_)
    token.command("revoke", epilog=example("redeliver api token revoke anna"))(revoke)
    api.add_typer(token, name="token")
    app.add_typer(api, name="api")


def serve(
    context: typer.Context,
    store: StoreUrl = None,
    listen: Listen = LISTEN,
    host: Hosts = None,
    certfile: Certfile = None,
    keyfile: Keyfile = None,
    behind_proxy: BehindProxy = False,
    broker: Brokers = None,
    keep_bodies: KeepBodies = None,
    log_format: Format = LogFormat.console,
) -> None:
    """Serve the operations on a store over HTTP until Ctrl-C. Operations that run are then paused."""
    if context.invoked_subcommand is not None:
        return
    address = listen_address(listen)
    check_transport(address, certfile, keyfile, behind_proxy=behind_proxy)
    hosts = hosts_of(address, host or [])
    brokers = brokers_of(broker or [])
    keep = None if keep_bodies is None else length_of_time(keep_bodies, "--keep-bodies")
    try:
        import uvicorn

        from ..api import create_app
    except ModuleNotFoundError as missing:
        raise MissingExtra(
            f"the HTTP API needs {missing.name}, which is not installed", cure="pip install 'redeliver-mw[api]'"
        ) from None
    from ..operations import Store, location

    show_logs(log_format)
    there = Store(location(None if store is None else read_url(store)), create=False)
    app = create_app(there, hosts=hosts, brokers=brokers, keep_bodies=keep)
    check_tokens(app)
    listener = listener_at(address)
    config = uvicorn.Config(
        app,
        http="h11",
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        limit_concurrency=1000,
        timeout_graceful_shutdown=GRACE_S,
        ssl_certfile=certfile,
        ssl_keyfile=keyfile,
    )

    class StreamsEndFirst(uvicorn.Server):
        """Ends streams of events before it waits for what is in hand; the command listens to signals."""

        @contextlib.contextmanager
        def capture_signals(self) -> Generator[None]:
            """Leave the signals alone."""
            yield

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            """End in good order."""
            app.end_streams()
            await super().shutdown(sockets)

    server = StreamsEndFirst(config)
    scheme = "http" if certfile is None else "https"
    print(f"serving {scheme}://{address}/api/v1 until Ctrl-C", file=sys.stderr, flush=True)

    def stop() -> None:
        server.should_exit = True

    with listener, ended_by_signals(stop):
        server.run(sockets=[listener])


def add(
    name: TokenName, role: TokenRole, store: StoreUrl = None, expires: Expires = "90d", as_json: Json = False
) -> None:
    """Make a token, and print it on stdout. This is the only time: the store keeps a hash of it."""
    from ..operations.tokens import add_token

    seconds = length_of_time(expires, "--expires")
    with opened(store) as there:
        made, text = add_token(there, name, role, expires_s=seconds)
    if as_json:
        print_json(_as_json(made) | {"token": text})
        return
    print(text)
    print(
        f"token {made.name} ({made.role}) is valid until {when(made.expires_us / 1e6)}; it is not shown again",
        file=sys.stderr,
    )


def list_(store: StoreUrl = None, as_json: Json = False) -> None:
    """List the tokens, the newest first, without their secrets."""
    from ..operations.operation import now_us
    from ..operations.tokens import all_tokens

    with opened(store) as there:
        found = all_tokens(there)
    if as_json:
        print_json([_as_json(one) for one in found])
        return
    at = now_us()
    rows = [
        (
            one.name,
            one.role,
            one.state(at),
            when(one.expires_us / 1e6),
            when(one.made_us / 1e6),
            plain(one.made_by),
            one.token_id,
        )
        for one in found
    ]
    print_table(("name", "role", "state", "expires", "made", "by", "id"), rows)


def revoke(name: TokenOrName, store: StoreUrl = None) -> None:
    """End a token at once."""
    from ..operations.tokens import revoke_token

    with opened(store) as there:
        found = revoke_token(there, name)
    print(f"token {found.name} ({found.role}) is revoked")


# -- input ------------------------------------------------------------------------------------------


def listen_address(text: str) -> ListenAddress:
    """Return the address that --listen names. Raises ConfigError."""
    host, colon, port = text.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    if not colon or not bare or (":" in bare and bare == host) or not (port.isascii() and port.isdigit()):
        raise _no_address(f"{text!r} is no HOST:PORT")
    if not 0 < int(port[:6]) < 65536:
        raise _no_address(f"{port[:20]} is no port from 1 to 65535")
    return ListenAddress(bare, int(port))


def check_transport(address: ListenAddress, certfile: Path | None, keyfile: Path | None, *, behind_proxy: bool) -> None:
    """Raise ConfigError if tokens would go over a network in the clear, or if the files of TLS cannot be used."""
    if certfile is None and keyfile is not None:
        raise ConfigError(
            "there is a key without a certificate",
            where="--keyfile",
            cure="Name the certificate too: --certfile FILE",
            code="tls-file-not-usable",
        )
    if certfile is not None:
        files = {"cert": str(certfile)} | ({} if keyfile is None else {"key": str(keyfile)})
        read_tls_files(files, "--certfile")
    elif not address.on_loopback and not behind_proxy:
        raise ConfigError(
            "tokens would cross the network in the clear",
            where=f"--listen {address}",
            cure="Name --certfile and --keyfile, or say --behind-proxy if a proxy does TLS",
            code="api-tls-required",
        )


def hosts_of(address: ListenAddress, given: Sequence[str]) -> list[str]:
    """Return the names under which clients reach the server. Raises ConfigError if there would be none."""
    names = [one.strip().lower() for one in given]
    if wrong := [one for one in names if not one or re.search(r"[\s/:@*]", one.strip("[]").replace(":", ""))]:
        raise ConfigError(
            f"{wrong[0]!r} is no name of a host",
            where="--host",
            cure="Write it without scheme and port, such as dead.example",
            code="option-value",
        )
    if address.on_loopback:
        return [*names, address.host, "localhost", "127.0.0.1", "::1"]
    if address.everywhere and not names:
        raise ConfigError(
            f"{address.host} is no name under which clients reach it",
            where=f"--listen {address}",
            cure="Name it: --host dead.example",
            code="option-value",
        )
    return names if address.everywhere else [*names, address.host]


def brokers_of(given: Sequence[str]) -> dict[str, str]:
    """Return the URLs of brokers by their names; one without a name is called `broker`. Raises ConfigError."""
    found: dict[str, str] = {}
    for one in given:
        named = _NAMED.fullmatch(one)
        name, text = (named[1], named[2]) if named else ("broker", one)
        if name in found:
            raise ConfigError(
                f"there are two brokers of the name {name!r}",
                where="--broker",
                cure="Give each a name of its own: NAME=URL",
                code="option-value",
            )
        found[name] = read_url(text)
    return found


def check_tokens(app: Api) -> None:
    """Warn if nobody can use the server. Raises ConfigError, StoreError if the store cannot be opened."""
    from ..operations.operation import now_us
    from ..operations.tokens import all_tokens

    with app.connections.lend() as store:
        found = all_tokens(store)
    if not any(one.state(now_us()) == "valid" for one in found):
        print(
            "warning: there is no valid token, so every request is refused. "
            "Make one with `redeliver api token add NAME --role ROLE`",
            file=sys.stderr,
        )


def listener_at(address: ListenAddress) -> socket.socket:
    """Return a socket that listens. Raises ConfigError for a host that is not here, RedeliverError for a taken port."""
    where = f"--listen {address}"
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(
            *address, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP, flags=socket.AI_PASSIVE
        )[0]
    except (socket.gaierror, UnicodeError):
        raise _no_address("there is no such host", where) from None
    # With the protocol named, asyncio turns off the delay of small packets.
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(place)
        listener.listen(128)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            cure = "End what listens there, or name another port"
            raise RedeliverError("this port is taken", where=where, cure=cure, code="port-taken") from None
        if error.errno == errno.EADDRNOTAVAIL:
            raise _no_address("this is no address of this machine", where) from None
        raise _no_address(f"it cannot be listened at: {error.strerror}", where) from None
    return listener


def length_of_time(text: str, where: str) -> float:
    """Return the seconds of a length of time such as 12h. Raises ConfigError."""
    found = _LENGTH.fullmatch(text)
    if found is None:
        raise ConfigError(
            f"{text!r} is no length of time",
            where=where,
            cure="Write a whole number with s, m, h or d, as in 90d",
            code="option-value",
        )
    return float(int(found[1]) * _UNITS[found[2]])


def _no_address(what: str, where: str = "--listen") -> ConfigError:
    cure = "Write HOST:PORT, such as 127.0.0.1:8600"
    return ConfigError(what, where=where, cure=cure, code="api-address")


def _as_json(token: ApiToken) -> dict[str, Any]:
    from ..operations.operation import now_us

    return {
        "id": token.token_id,
        "name": token.name,
        "role": token.role,
        "state": token.state(now_us()),
        "made_s": token.made_us / 1e6,
        "made_by": token.made_by,
        "expires_s": token.expires_us / 1e6,
    }
