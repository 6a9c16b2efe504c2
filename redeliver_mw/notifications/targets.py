# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Sends one notification to its target: a webhook, or a function of the user's.

A webhook gets a POST with the notification as JSON, and with the headers of Standard Webhooks:

    webhook-id: 5f0c…                      the same at each try
    webhook-timestamp: 1767225600          when it was sent, in seconds since 1970
    webhook-signature: v1,K5oZfzN95Z9UVu…  HMAC-SHA256 of `ID.TIMESTAMP.BODY`, in base64; only with a secret
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import SplitResult, urlsplit

from ..callables import is_async
from ..errors import ConfigError, RedeliverError
from ..redaction import redact, trim_utf8
from .notification import Notification

if TYPE_CHECKING:
    from urllib.request import OpenerDirector

OPTION: Final = "notify"
SECRET_OPTION: Final = "notify_secret"
VARIABLE: Final = "REDELIVER_NOTIFY_SECRET"
TIMEOUT: Final = 10.0  # seconds that a webhook may take to answer
STANDARD_PREFIX: Final = "whsec_"  # a secret of Standard Webhooks: the rest is base64
SHOWN: Final = 200  # bytes of an error


class NotificationTarget(Protocol):
    """Receives notifications. `send` may block; it raises an exception if the notification did not arrive.

    `name` is for messages and holds no secret. `retries`: whether a notification that did not arrive is sent again.
    """

    name: str
    retries: bool

    def send(self, notification: Notification, /) -> None: ...


class NotifyFunction:
    """Hands notifications to a function."""

    retries = False

    def __init__(self, fn: Callable[[Notification], object]) -> None:
        """Take the function. Raises ConfigError for a coroutine function."""
        if is_async(fn):
            raise ConfigError(
                "a coroutine function would never be awaited",
                where=OPTION,
                cure="Give a plain function; it is called on a thread of its own",
                code="notify-target",
            )
        self.name = f"{OPTION}={getattr(fn, '__qualname__', type(fn).__qualname__)}"
        self._fn = fn

    def send(self, notification: Notification, /) -> None:
        self._fn(notification)


class Webhook:
    """Posts notifications to a URL."""

    retries = True

    def __init__(self, url: str, secret: str | None) -> None:
        """Take the URL, and the secret that signs, if any. Raises ConfigError for one that cannot be used."""
        parts = check_webhook(url)
        self.name = f"{parts.scheme}://{parts.netloc}"  # the path of a webhook is often a secret
        self._url = url
        self._key = _key(secret) if secret else None
        self._opener: OpenerDirector | None = None

    def send(self, notification: Notification, /) -> None:
        """Post a notification. Raises RedeliverError unless the answer is 2xx."""
        from urllib.error import HTTPError
        from urllib.request import Request

        body = notification.body()
        request = Request(self._url, body, self.headers(notification.id, body, int(time.time())), method="POST")
        try:
            with self._opened().open(request, timeout=TIMEOUT):
                return
        except HTTPError as error:
            error.close()
            raise self._failed(f"it answers {error.code}") from None
        except TimeoutError:
            raise self._failed(f"it does not answer within {TIMEOUT:g} s") from None
        except Exception as error:  # whatever a server may do to an HTTP client
            cause = getattr(error, "reason", error)
            if isinstance(cause, TimeoutError):
                raise self._failed(f"it does not answer within {TIMEOUT:g} s") from None
            text = " ".join(str(cause).replace(self._url, self.name).split()) or type(cause).__name__
            raise self._failed(f"it cannot be reached: {trim_utf8(redact(text), SHOWN)}") from None

    def headers(self, notification_id: str, body: bytes, at: int) -> dict[str, str]:
        """Return the headers of a request that is sent at a time, in seconds since 1970."""
        found = {
            "Content-Type": "application/json",
            "User-Agent": "redeliver-mw",
            "webhook-id": notification_id,
            "webhook-timestamp": str(at),
        }
        if self._key is not None:
            signed = f"{notification_id}.{at}.".encode() + body
            signature = base64.b64encode(hmac.digest(self._key, signed, hashlib.sha256)).decode()
            found["webhook-signature"] = f"v1,{signature}"
        return found

    def _failed(self, what: str) -> RedeliverError:
        return RedeliverError(what, where=self.name, code="notify-failed")

    def _opened(self) -> OpenerDirector:
        if self._opener is None:
            from urllib.request import HTTPRedirectHandler, build_opener

            class RefuseRedirect(HTTPRedirectHandler):
                """Leaves a redirect as the answer: the notification was signed for this URL and no other."""

                def redirect_request(self, *args: Any) -> None:
                    return None

            self._opener = build_opener(RefuseRedirect)
        return self._opener


def check_webhook(url: str) -> SplitResult:
    """Return the parts of a webhook's URL. Raises ConfigError if it cannot be one."""
    cure = "Write https://HOST/PATH, or give a function"
    try:
        parts = urlsplit(url)
        port_is_right = parts.port != 0
    except ValueError:
        raise ConfigError("it is no URL", where=OPTION, cure=cure, code="notify-target") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or not port_is_right:
        raise ConfigError("it is no http or https URL", where=OPTION, cure=cure, code="notify-target")
    if not url.isascii() or not url.isprintable() or " " in url:
        raise ConfigError(
            "the URL has characters that must be percent-encoded", where=OPTION, cure=cure, code="notify-target"
        )
    if parts.username is not None or parts.password is not None:
        raise ConfigError(
            "the URL has a user or a password, which are not sent",
            where=OPTION,
            cure="Leave them out: the receiver checks the signature",
            code="notify-target",
        )
    return parts


def _key(secret: str) -> bytes:
    """Return the key for HMAC. Raises ConfigError for a secret that cannot be one."""
    if not secret.startswith(STANDARD_PREFIX):
        return secret.encode()
    try:
        key = base64.b64decode(secret.removeprefix(STANDARD_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not key:
        raise ConfigError(
            f"a secret that begins with {STANDARD_PREFIX} goes on in base64, and this one does not",
            where=SECRET_OPTION,
            cure="Copy the whole secret",
            code="notify-secret",
        )
    return key
