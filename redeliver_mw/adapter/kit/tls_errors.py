# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Says what a failed TLS handshake means and what to do, and finds ports that speak something else.

A driver wraps the error of Python's `ssl` in errors of its own, some of them as text only. OpenSSL's names of reasons
stand in that text, so they are looked for there.
"""

from __future__ import annotations

import contextlib
import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from typing import NamedTuple

from ...errors import BrokerUnavailable, RedeliverError
from ..registry import BrokerUrl

_EVERY = 0.02  # seconds between two looks at a thread
PROBE_TIMEOUT = 2.0  # seconds for each step of looking what a port speaks
_NAME = re.compile(r"\[(?:SSL|X509)[^\]:]*: ([A-Z][A-Z0-9_]+)\]|SSL routines:[^:]*:([a-z0-9 ]+)")
_DETAIL = re.compile(r"certificate verify failed: ([^()\n]{1,200}?)\.? ?(?:\(_ssl|\Z)")

_RENEW = "Renew it, and check this machine's clock"
_VERSIONS = "Let both sides speak TLS 1.2 or 1.3"
_OUR_CERTIFICATE = "Check cert= and key= in the URL, and which authorities the broker trusts"
_GIVE_CERTIFICATE = "Write cert=FILE and key=FILE in the URL"


class TlsFailed(BrokerUnavailable):
    """Reports that the broker is there, and TLS with it fails: for its certificate, ours, versions, or a wrong port."""

    code = "tls-failed"


class TlsProblem(NamedTuple):
    """Holds the reason for which TLS fails, what to do, and the code of the error."""

    reason: str
    cure: str
    code: str = "tls-failed"


TLS_AT_PLAIN_PORT = TlsProblem(
    "this port does not speak TLS", "Name the broker's TLS port, or leave tls=1 out", code="tls-port"
)
PLAIN_AT_TLS_PORT = TlsProblem(
    "this port speaks TLS", "Write ?tls=1 in the URL, or name the broker's port in clear", code="tls-port"
)

# By OpenSSL's name of the reason: of alerts, the broker has sent it.
_OURS_REFUSED = {
    "TLSV1_ALERT_UNKNOWN_CA": "the broker does not know the authority of our client certificate",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the broker does not accept our client certificate",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the broker refuses our client certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "our client certificate has expired, says the broker",
    "SSLV3_ALERT_CERTIFICATE_REVOKED": "our client certificate is revoked, says the broker",
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": "the broker cannot use our client certificate",
    "TLSV1_ALERT_ACCESS_DENIED": "the broker gives our client certificate no access",
}
_PROBLEMS = {
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": TlsProblem(
        "the broker requires a client certificate", _GIVE_CERTIFICATE, code="tls-client-certificate"
    ),
    "WRONG_VERSION_NUMBER": TLS_AT_PLAIN_PORT,
    "HTTP_REQUEST": TLS_AT_PLAIN_PORT,
    "PACKET_LENGTH_TOO_LONG": TLS_AT_PLAIN_PORT,
    "TLSV1_UNRECOGNIZED_NAME": TlsProblem(
        "the broker has no certificate for this host name",
        "Write the host name that its certificate is for",
        code="tls-broker-certificate",
    ),
    **dict.fromkeys(
        (
            *("TLSV1_ALERT_PROTOCOL_VERSION", "UNSUPPORTED_PROTOCOL", "NO_PROTOCOLS_AVAILABLE"),
            *("VERSION_TOO_LOW", "VERSION_TOO_HIGH", "WRONG_SSL_VERSION"),
        ),
        TlsProblem("the broker and this side have no version of TLS in common", _VERSIONS),
    ),
}


def unavailable(error: BaseException, url: BrokerUrl, text: str) -> RedeliverError:
    """Return what to tell of a broker that could not be connected to; `text` says what happened, in the driver's words.

    TlsFailed, with its reason and cure, where TLS is the reason.
    """
    problem = problem_of(error, client_certificate="cert" in url.options)
    if problem is not None:
        return TlsFailed(problem.reason, where=url.text, cure=problem.cure, code=problem.code)
    cure = "Start it, or check host and port"
    return BrokerUnavailable(f"no broker answers there ({text})", where=url.text, cure=cure)


class WrongPort(ConnectionError):
    """Reports that a port that speaks TLS was spoken to in clear, or the other way round."""

    def __init__(self, problem: TlsProblem) -> None:
        super().__init__(problem.reason)
        self.problem = problem


def problem_of(error: BaseException, *, client_certificate: bool) -> TlsProblem | None:
    """Return why TLS fails by this error; None if it is no error of TLS. Pure.

    `client_certificate`: one was offered to the broker, which says nothing of it where none was.
    """
    for one in _chain(error):
        if isinstance(one, WrongPort):
            return one.problem
        if found := _NAME.search(text := str(one)):
            name = (found[1] or found[2]).upper().replace(" ", "_")
            return _by_name(name, text, client_certificate)
        if isinstance(one, ssl.SSLEOFError | ssl.SSLZeroReturnError):
            return _ENDED
    return None


_ENDED = TlsProblem(
    "the broker ended the TLS handshake without a reason", "Check that this is its TLS port, and the broker's log"
)


def _by_name(name: str, text: str, client_certificate: bool) -> TlsProblem:
    if name == "CERTIFICATE_VERIFY_FAILED":
        found = _DETAIL.search(text)
        return _of_certificate(found[1] if found else "")
    if name in _OURS_REFUSED:
        if client_certificate:
            return TlsProblem(_OURS_REFUSED[name], _OUR_CERTIFICATE, code="tls-client-certificate")
        return _PROBLEMS["TLSV13_ALERT_CERTIFICATE_REQUIRED"]
    if "HANDSHAKE_FAILURE" in name:
        cure = _OUR_CERTIFICATE if client_certificate else f"{_GIVE_CERTIFICATE} if it does"
        reason = "the broker ends the TLS handshake: it may require a client certificate, or other ciphers"
        return TlsProblem(reason, cure)
    if name in ("UNEXPECTED_EOF_WHILE_READING", "EOF_OCCURRED_IN_VIOLATION_OF_PROTOCOL"):
        return _ENDED
    return _PROBLEMS.get(name) or TlsProblem(f"TLS fails ({name})", "Check the TLS settings of both sides")


def _of_certificate(detail: str) -> TlsProblem:
    """Return what is wrong with the broker's certificate, by OpenSSL's words."""
    if "mismatch" in detail:
        cure = "Write the host name that it is for in the URL, or give the broker one for this name"
        return TlsProblem(f"its certificate is for another host ({detail})", cure, code="tls-broker-certificate")
    if "expired" in detail:
        return TlsProblem("its certificate has expired", _RENEW, code="tls-broker-certificate")
    if "not yet valid" in detail:
        return TlsProblem("its certificate is not valid yet", _RENEW, code="tls-broker-certificate")
    if "self-signed" in detail or "self signed" in detail or "issuer" in detail or "first certificate" in detail:
        cure = "Write ca=FILE in the URL, with the certificate of the authority that the broker's certificate is from"
        return TlsProblem(
            f"its certificate is from an authority that is not trusted here ({detail})",
            cure,
            code="tls-broker-certificate",
        )
    return TlsProblem(
        f"its certificate is not valid ({detail})", "Check the broker's certificate", code="tls-broker-certificate"
    )


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and what is wrapped in it, by Python's means and by the drivers'."""
    waiting, seen = [error], set[int]()
    while waiting:
        one = waiting.pop(0)
        if id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        inner = [one.__cause__, getattr(one, "exception", None), *(getattr(one, "exceptions", None) or ()), *one.args]
        waiting += [found for found in inner if isinstance(found, BaseException)]


# -- what a port speaks ---------------------------------------------------------------------------


class WrongPortCheck:
    """Finds out once for each host whether its port speaks TLS where we do not, or the other way round.

    The looking is done on a thread of its own; the answers come by `call_later`, on the caller's loop.
    """

    def __init__(
        self, url: BrokerUrl, call_later: Callable[[float, Callable[[], None]], object], greeting: bytes = b""
    ) -> None:
        self._tls, self._greeting, self._call_later = url.flag("tls"), greeting, call_later
        self._checked: dict[tuple[str, int], WrongPort | None] = {}  # None also while it is looked at

    def begin(self, host: str, port: int, answer: Callable[[WrongPort | None], None]) -> None:
        """Look, and answer within some seconds, or what was found before; None: nothing is known."""
        key = (host, port)
        if key in self._checked or (self._tls and not self._greeting):
            return answer(self._checked.get(key))
        self._checked[key] = None
        found: list[WrongPort | None] = []
        thread = threading.Thread(target=lambda: found.append(self._look(host, port)), daemon=True)

        def wait() -> None:
            if thread.is_alive():
                self._call_later(_EVERY, wait)
            else:
                self._checked[key] = found[0] if found else None
                answer(self._checked[key])

        thread.start()
        self._call_later(_EVERY, wait)
        return None

    def _look(self, host: str, port: int) -> WrongPort | None:
        if self._tls:
            return WrongPort(TLS_AT_PLAIN_PORT) if speaks_in_clear(host, port, self._greeting) else None
        return WrongPort(PLAIN_AT_TLS_PORT) if speaks_tls(host, port) else None


def speaks_tls(host: str, port: int) -> bool:
    """Return whether a port answers a TLS handshake, be it with a refusal. Blocks for some seconds at most."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with socket.create_connection((host, port), PROBE_TIMEOUT) as plain, context.wrap_socket(plain):
            return True
    except ssl.SSLError as error:
        return "ALERT" in str(error)
    except OSError:
        return False


def speaks_in_clear(host: str, port: int, greeting: bytes) -> bool:
    """Return whether a port answers `greeting` with the same four first bytes. Blocks for some seconds at most."""
    with contextlib.suppress(OSError), socket.create_connection((host, port), PROBE_TIMEOUT) as plain:
        plain.sendall(greeting)
        return plain.recv(8)[:4] == greeting[:4]
    return False
