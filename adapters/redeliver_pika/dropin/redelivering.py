# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Provides `redelivering`, which an application calls to wrap a channel of pika's, or one callback."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, Unpack, overload

from pika.adapters.blocking_connection import BlockingChannel
from pika.channel import Channel

from redeliver_mw.dropin import DropinKeywords, DropinOptions
from redeliver_mw.errors import ConfigError
from redeliver_pika.dropin.copies import PikaCompanion
from redeliver_pika.dropin.wrapped_channel import is_channel, wrap_channel
from redeliver_pika.dropin.wrapper import Callback, Redelivering

AnyChannel = TypeVar("AnyChannel", BlockingChannel, Channel)

# A reconnecting consumer wraps a channel for each connection: journals, limbos and companions are those of the first.
_options: dict[tuple[Any, ...], DropinOptions] = {}  # by keywords
_companions: dict[str, PikaCompanion] = {}  # by URL


@overload
def redelivering(
    callback: AnyChannel, *, publisher: str | None = None, **options: Unpack[DropinKeywords]
) -> AnyChannel: ...
@overload
def redelivering(
    callback: None = None, *, queue: str | None = None, publisher: str | None = None, **options: Unpack[DropinKeywords]
) -> Callable[[Callback], Redelivering]: ...
@overload
def redelivering(
    callback: Callback, *, queue: str | None = None, publisher: str | None = None, **options: Unpack[DropinKeywords]
) -> Redelivering: ...
def redelivering(
    callback: Any = None,
    *,
    queue: str | None = None,
    publisher: str | None = None,
    **options: Unpack[DropinKeywords],
) -> Any:
    """Wrap a channel of pika's, or one callback for `basic_consume`; or decorate a callback.

    A channel, blocking or not, is taken over in place and returned: `channel = redelivering(channel, policy=p)`, before
    its first consumer and before `tx_select`. Every consumer on it has the policy, or that of its queue in a PolicyMap.
    A callback is `(channel, method, properties, body)`.

    - `queue`: with a callback, the queue that is consumed; needed only when messages come through an exchange.
    - `publisher`: a URL for a companion connection on which copies go out.
    - `policy`: any policy text, a RedeliveryPolicy or PolicyMap; else the callback's `@redeliver` mark, else
      the default policy.
    - `delay`: `auto`, `hold`, `schedule`, or with a limbo `park`.
    - `limbo`: the URL of a database for messages that wait longer than here or at the broker; needs `publisher`.
    - `journal`: a folder, or a Journal, for an AttemptRecord of each attempt.
    - `journal_healthy`: `all`, or with `counts` messages that go well at once are counted, not recorded one by one.
    - `traces`: True for spans by OpenTelemetry's global tracer provider, a TracerProvider, or a Traces with options.
    - `notify`, `notify_secret`: the URL of a webhook and what signs for it, or a function, for a notification of an
      outage and one of its end; or a Notify with options.
    - `app_name`: for records and dead letters; the program's name by default.
    - `settle`: by default, and with `callback`, the callback's own `basic_ack`, `basic_nack` or `basic_reject` settles
      the message, whenever it comes, also from `add_callback_threadsafe`; returning alone settles nothing. With
      `return`, returning is success.
    - `hold_max`: deliveries (>= 1) that may be held here at once, each for ten seconds at most.

    ConfigError for what cannot be; PolicyError for a policy that cannot be read.
    """
    if is_channel(callback):
        if queue is not None:
            raise ConfigError(
                "queue= is for a callback: a wrapped channel knows the queue of each consumer",
                where=repr(callback),
                cure="Leave queue out, or wrap the callback",
                code="option-value",
            )
        return wrap_channel(callback, _options_of(publisher, options), _companion_of(publisher))
    terms = DropinOptions(publisher=publisher, **options)

    def wrap(callback: Callback) -> Redelivering:
        if not callable(callback):
            raise ConfigError(
                f"{callback!r:.200} is no callback",
                cure="Give a function of pika's four arguments",
                code="callback-not-usable",
            )
        return Redelivering(callback, terms, queue, publisher)

    return wrap if callback is None else wrap(callback)


def _options_of(publisher: str | None, options: DropinKeywords) -> DropinOptions:
    """Return checked options, the same for the same keywords."""
    key = (publisher, *sorted(options.items(), key=lambda item: item[0]))
    try:
        found = _options.get(key)
    except TypeError:  # something without a hash is among them
        return DropinOptions(publisher=publisher, **options)
    if found is None:
        found = _options[key] = DropinOptions(publisher=publisher, **options)
    return found


def _companion_of(publisher: str | None) -> PikaCompanion | None:
    if publisher is None:
        return None
    found = _companions.get(publisher)
    if found is None:
        found = _companions[publisher] = PikaCompanion(publisher)
    return found
