# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Makes deliveries without a broker, for calling a handler directly.

`make_delivery` returns such a delivery, and `sent` the messages that the handler sent.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..adapter.capabilities import Capabilities
from ..message import Delivery, Destination, Outgoing, Past, Properties
from ..redelivery.outbox import Outbox, SendRules, close_outbox

_tags = itertools.count(1)
_RULES = SendRules(Capabilities(dialect="testing", broker_kind="testing"), limbo=True)


@dataclass(frozen=True, slots=True)
class _Native:
    body: bytes
    headers: dict[str, Any]
    properties: Properties


class _Reader:
    def body(self, native: _Native, /) -> bytes:
        return native.body

    def headers(self, native: _Native, /) -> dict[str, Any]:
        return dict(native.headers)

    def headers_bytes(self, native: _Native, /) -> int:
        return sum(len(name.encode()) + len(str(value).encode()) for name, value in native.headers.items())

    def properties(self, native: _Native, /) -> Properties:
        return native.properties

    def route(self, native: _Native, /) -> Mapping[str, str]:
        return {}

    def marked(self, native: _Native, /) -> bool:
        return any(name.startswith("redeliver_") for name in native.headers)

    def death(self, native: _Native, /) -> None:
        return None


def make_delivery(
    body: bytes | str,
    headers: Mapping[str, Any] | None = None,
    failures: int = 0,
    destination: str | Destination = "orders",
    **properties: Any,
) -> Delivery:
    """Return a delivery whose handler failed `failures` times before this run.

    Text is encoded as UTF-8; `properties` as in `Properties` (`message_id=`, `content_type=`, …). The generation is 0:
    no adapter will settle the delivery. The messages that its handler sends are kept for `sent`.
    """
    data = body.encode() if isinstance(body, str) else bytes(body)
    native = _Native(data, dict(headers or {}), Properties(**properties))
    source = Destination.parse(destination)
    delivery = Delivery(source, 0, next(_tags), failures > 0, native, _Reader())
    delivery.failures = failures
    delivery.past = Past(failures=failures)
    delivery.outbox = Outbox(_RULES)
    return delivery


def sent(delivery: Delivery) -> list[Outgoing]:
    """Return what a handler has sent with `delivery.send`, as if it had succeeded now.

    Nothing can be sent afterwards.
    """
    return [sending.out for sending in close_outbox(delivery)]
