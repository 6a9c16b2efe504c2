# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Makes retry copies and dead letters, and checks that they fit. Pure.

A copy has the body byte for byte, the standard properties and the user's own headers, without those that the broker
would act on again (`Capabilities.strip`), plus ours: strings, in names of identifier characters, within a byte budget
that the broker is known to accept.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..adapter.capabilities import Capabilities
from ..errors import NotCopyable
from ..failure import Failure, trim_utf8
from ..message import Delivery, Destination, Outgoing, Past
from ..redaction import clean
from .headers import (
    PREFIX,
    AttemptHistory,
    avoiding_broker_effects,
    iso,
    read_history_headers,
    written_history,
)
from .identity import copy_id, message_key
from .interop import JMSJCA, jmsjca_dead_letter_headers
from .outbox import QueuedSend

STATE_BYTES = 1024
ERROR_BYTES = 2048  # of an error's text in a header; the journal holds the full text
SHORT_BYTES = 200  # of such a text if foreign headers leave little room
ENTRY_BYTES = 8  # framing of each header
COPY_ID_BYTES = len("redeliver_copy_id") + 32 + ENTRY_BYTES
POLICY_BYTES = 512
HISTORY = "redeliver_history"
TRACE = "redeliver_trace"
UNCOPYABLE = "redeliver_uncopyable"  # on a dead letter in limbo: why its message cannot be copied
DEAD_LETTER_REASONS = ("exhausted", "rejected", "fatal", "expired", "undecodable", "crashed")


@dataclass(frozen=True, slots=True)
class Provenance:
    """Holds who makes the copies, and under which policy.

    The values are constant for one source of one consumer, except for messages that bring a policy of their own, or are
    in an arm.
    """

    source: Destination
    app: str
    host: str
    policy_text: str  # of the policy that decides
    policy_version: str  # of the policy with all arms
    language: str = ""  # the policy's
    arm: str | None = None  # None: the policy has no arms
    propensity: float | None = None  # the probability of that arm


@dataclass(frozen=True, slots=True)
class RetryTerms:
    """Holds the terms of the policy under which a parked message waits, for readers of the limbo's tables."""

    delay: float  # seconds from the last failure to the next attempt
    max_attempts: int  # 0: the policy never gives up
    failure_port: str  # the dead-letter targets, separated by commas; empty: none


@dataclass(frozen=True, slots=True)
class Transfer:
    """Holds a decision that sends copies to `targets`, each after `after` seconds, and then settles the original.

    `outcome` and `reason` are written to the record. `not_before_us` is set on retry copies only; `aside` on copies
    that are parked because an earlier message of their key comes first. A message that is redirected because it expired
    lives for `lives` seconds from `decided_us` on, or for ever, with `priority`.
    """

    outcome: str
    targets: tuple[Destination, ...]
    after: float = 0.0
    parked: bool = False  # the copies go into limbo, which sends them when they are due
    reason: str = ""
    detail: str = ""
    not_before_us: int | None = None
    failure: Failure | None = None
    lives: float | None = None
    priority: int | None = None  # None: the message's own
    decided_us: int = 0
    sends: tuple[QueuedSend, ...] = ()  # messages sent by a successful handler; then there are no copies
    aside: bool = False


def copies_of(
    delivery: Delivery, past: Past, lineage: str, move: Transfer, signature: Provenance, capabilities: Capabilities
) -> list[Outgoing]:
    """Return one copy for each target. Raises NotCopyable if an exact copy cannot be made or does not fit."""
    properties = replace(delivery.properties, user_id=None, expires_at_us=None, ttl_us=None)
    kept, kept_bytes = _kept_headers(delivery, capabilities)
    ours, spare = _common(delivery, past, lineage, move, signature), {}
    if move.not_before_us is None:
        ours |= _dead_letter_headers(move, signature, capabilities)
        if signature.language == "jmsjca":
            spare = jmsjca_dead_letter_headers(delivery, signature.source, past.failures, move.failure, ours)
    else:
        ours["redeliver_not_before"] = iso(move.not_before_us)
        if past.expires_at_us is not None and (expires := iso_or_none(past.expires_at_us)) is not None:
            ours["redeliver_expires_at"] = expires  # a time after the year 9999 counts as never
    ours = _fit(delivery, ours, kept_bytes, capabilities, spare, past.history, past.trace)
    if move.lives is not None:
        ttl_us = round(move.lives * 1e6)
        properties = replace(properties, expires_at_us=move.decided_us + ttl_us, ttl_us=ttl_us)
    if move.priority is not None:
        properties = replace(properties, priority=move.priority)
    outs = []
    for target in move.targets:
        id_of_copy = copy_id(lineage, past.generation, past.hop + 1, target)
        headers = kept | ours | {"redeliver_copy_id": id_of_copy}
        outs.append(Outgoing(target, delivery.body, headers, properties, id_of_copy, delivery))
    return outs


def limbo_letter(
    delivery: Delivery,
    past: Past,
    lineage: str,
    move: Transfer,
    signature: Provenance,
    capabilities: Capabilities,
    why: str,
) -> Outgoing:
    """Return the dead letter of a message that cannot be copied, for a limbo, which has no header budget.

    The target of the letter is the source: if a person releases the letter, it goes back there as the original message
    (`as_it_was`). The header `redeliver_uncopyable` holds `why` no copy can be made. The id is unique to this decision:
    the same message may become a letter again.
    """
    source = signature.source
    ours = _common(delivery, past, lineage, move, signature) | {
        "redeliver_reason": move.reason,
        "redeliver_host": signature.host,
        "redeliver_app": signature.app,
        UNCOPYABLE: trim_utf8(clean(why), ERROR_BYTES),
    }
    if text := written_history(past.history, STATE_BYTES):
        ours[HISTORY] = text
    if past.trace:
        ours[TRACE] = past.trace
    salted = f"{lineage} uncopyable {move.decided_us}"
    id_of_copy = copy_id(salted, past.generation, past.hop + 1, source)
    headers = avoiding_broker_effects(delivery.headers, capabilities) | ours | {"redeliver_copy_id": id_of_copy}
    properties = replace(delivery.properties, user_id=None, expires_at_us=None, ttl_us=None)
    return Outgoing(source, delivery.body, headers, properties, id_of_copy, delivery)


def as_it_was(out: Outgoing) -> Outgoing:
    """Return a parked message as it will be published.

    A letter of a message that cannot be copied loses our headers.
    """
    if UNCOPYABLE not in out.headers:
        return out
    return replace(out, headers={name: value for name, value in out.headers.items() if not name.startswith(PREFIX)})


def release_annotations(
    delivery: Delivery, past: Past, lineage: str, move: Transfer, signature: Provenance, capabilities: Capabilities
) -> dict[str, str]:
    """Return the headers for a message that is released with a delay.

    They are those of a retry copy, though the message is the same.

    Raises NotCopyable if they do not fit.
    """
    ours = _common(delivery, past, lineage, move, signature) | {"redeliver_hop": str(past.hop)}
    if move.not_before_us is not None:
        ours["redeliver_not_before"] = iso(move.not_before_us)
    _, kept_bytes = _kept_headers(delivery, capabilities)
    return _fit(delivery, ours, kept_bytes, capabilities, {}, trace=past.trace)


def replay_copy(
    delivery: Delivery,
    source: Destination,
    capabilities: Capabilities,
    *,
    replay_id: str,
    lineage: str,
    known_as: str | None = None,
    without: Collection[str] = (),
) -> Outgoing:
    """Return a dead letter as it is replayed to `source`, from which it was consumed.

    The copy is a new generation, without history.

    `lineage` is for a letter without a lineage and without anything to derive one from. `known_as` is the message's key
    at its source, for a letter from which the key can no longer be derived because it goes elsewhere now, or has
    another body. `without`: names of headers that the copy does not take over. Raises NotCopyable as for other copies.
    """
    here = Delivery(source, delivery.generation, delivery.tag, delivery.redelivered, delivery.native, delivery.reader)
    past, ours = read_history_headers(here), "redeliver_reason" in delivery.headers
    known = known_as or message_key(here, past) or lineage
    past.generation += not ours  # for a letter of ours, reading has already raised it
    if ours and not past.original:
        past.original = {n: str(v) for n, v in delivery.headers.items() if n.startswith("redeliver_original_")}
    id_of_copy = copy_id(known, past.generation, past.hop + 1, source)
    headers = _originals(delivery, past, source, routed=False) | {
        "redeliver_lineage": known,
        "redeliver_copy_id": id_of_copy,
        "redeliver_hop": str(past.hop + 1),
        "redeliver_generation": str(past.generation),
        "redeliver_replay_id": replay_id,
    }
    kept, kept_bytes = _kept_headers(delivery, capabilities, without, JMSJCA if ours else ())
    headers = _fit(delivery, headers, kept_bytes, capabilities, {}, trace=past.trace)
    properties = replace(delivery.properties, user_id=None, expires_at_us=None, ttl_us=None)
    return Outgoing(source, delivery.body, kept | headers, properties, id_of_copy, delivery)


def copy_ids(past: Past, lineage: str, targets: Sequence[Destination]) -> list[str]:
    """Return the ids that `copies_of` gives to the copies for `targets`."""
    return [copy_id(lineage, past.generation, past.hop + 1, target) for target in targets]


def _kept_headers(
    delivery: Delivery, capabilities: Capabilities, without: Collection[str] = (), prefixes: tuple[str, ...] = ()
) -> tuple[dict[str, Any], int]:
    """Return the user's own headers, and their bytes on the wire.

    Our headers of the previous hop are left out, and so are those that the broker would act on again, those in
    `without`, and those whose names begin with one of the `prefixes`.
    """
    headers = delivery.headers
    kept = avoiding_broker_effects(headers, capabilities)
    if without or prefixes:
        kept = {name: value for name, value in kept.items() if name not in without and not name.startswith(prefixes)}
    dropped = sum(_size(name, value) for name, value in headers.items() if name not in kept)
    return kept, delivery.reader.headers_bytes(delivery.native) - dropped


def _common(delivery: Delivery, past: Past, lineage: str, move: Transfer, signature: Provenance) -> dict[str, str]:
    """Return the headers that retry copies and dead letters share."""
    original = _originals(delivery, past, signature.source)
    policy_text, replay_id = trim_utf8(signature.policy_text, POLICY_BYTES), trim_utf8(past.replay_id or "", 128)
    if move.failure is not None:
        error = {
            "redeliver_error_type": trim_utf8(move.failure.type, 256),
            "redeliver_error_message": trim_utf8(move.failure.message, ERROR_BYTES),
            "redeliver_error_fingerprint": move.failure.fingerprint,
        }
    else:
        error = _last_error(delivery)
    ours = original | {
        "redeliver_failures": str(past.failures),
        "redeliver_failures_for": signature.source.full_name,
        "redeliver_lineage": lineage,
        "redeliver_hop": str(past.hop + 1),
        "redeliver_generation": str(past.generation),
        "redeliver_policy": policy_text,
        "redeliver_policy_version": signature.policy_version,
    }
    if past.state:
        ours["redeliver_state"] = _state(past.state)
    for name, us in (
        ("first_attempt", past.first_attempt_us),
        ("first_failed", past.first_failed_us),
        ("last_failed", past.last_failed_us),
    ):
        if us is not None:
            ours[f"redeliver_{name}_at"] = iso(us)
    if replay_id:
        ours["redeliver_replay_id"] = replay_id
    return ours | error


def _last_error(delivery: Delivery) -> dict[str, str]:
    """Return the error that the previous hop carried, so that an early copy that is moved on keeps it."""
    names = ("redeliver_error_type", "redeliver_error_message", "redeliver_error_fingerprint")
    if not delivery.past.failures:
        return {}
    return {name: str(delivery.headers[name]) for name in names if name in delivery.headers}


def _originals(delivery: Delivery, past: Past, source: Destination, *, routed: bool = True) -> dict[str, str]:
    """Return where the message was first seen, and its first properties; kept over any number of hops.

    Without `routed`, the routing is not the message's own, but that of the broker that dead-lettered it.
    """
    original = dict(past.original)
    if not original:
        route = delivery.reader.route(delivery.native) if routed else {}
        route = {name: value for name, value in route.items() if value}
        properties = delivery.properties
        first_seen: dict[str, Any] = {
            "message_id": delivery.message_id,
            "correlation_id": delivery.correlation_id,
            "timestamp": None if properties.timestamp_us is None else iso_or_none(properties.timestamp_us),
            "user_id": properties.user_id,
            **route,
        }
        for name, value in first_seen.items():
            if value is not None:
                original[f"redeliver_original_{name}"] = trim_utf8(str(value), 1024)
    return original | {"redeliver_original_destination": source.name, "redeliver_original_kind": source.kind}


def iso_or_none(us: int) -> str | None:
    """Return the time as ISO 8601, or None: a producer may write any number as its timestamp."""
    try:
        return iso(us)
    except (ValueError, OverflowError, OSError):
        return None


def _dead_letter_headers(move: Transfer, signature: Provenance, capabilities: Capabilities) -> dict[str, str]:
    source = signature.source
    cause = f"{move.failure.type}: {move.failure.message}" if move.failure else move.detail or move.reason
    cause, address = trim_utf8(cause, ERROR_BYTES), capabilities.address(source)
    words = {
        "name": source.name,
        "address": address,
        "kind": source.kind,
        "mark": capabilities.death_reasons.get(move.reason, move.reason),
        "cause": cause,
    }
    marks = {name: _fill(template, words) for name, template in capabilities.death_marks.items()}
    return marks | {
        "original-destination": address,
        "redeliver_reason": move.reason,
        "redeliver_host": signature.host,
        "redeliver_app": signature.app,
    }


def _fill(template: str, words: Mapping[str, str]) -> str:
    """Fill in a template. `str.format` is not used, because a cause or a name may contain braces."""
    return re.sub(r"\{(\w+)\}", lambda found: words.get(found[1], found[0]), template)


def _state(state: Mapping[str, str]) -> str:
    """Return the handler's strings as JSON within their budget; those that do not fit are left out, newest first."""
    kept: dict[str, str] = {}
    size = 0
    for key, value in state.items():
        size += len(json.dumps({str(key): str(value)}))  # the braces count for the comma and the space
        if size > STATE_BYTES:
            break
        kept[str(key)] = str(value)
    return json.dumps(kept)


def _fit(
    delivery: Delivery,
    ours: Mapping[str, str],
    kept_bytes: int,
    capabilities: Capabilities,
    spare: Mapping[str, str],
    attempts: AttemptHistory = (),
    trace: str = "",
) -> dict[str, str]:
    """Return our headers within what the broker accepts beside the `kept_bytes` of the user's; if needed, cut shorter.

    The headers in `spare` are added if there is room for all of them, and then the last `attempts` if there is room
    left. The `trace` is added only if there is room for it beside everything else at its full length.
    """
    room = capabilities.header_bytes - kept_bytes - COPY_ID_BYTES
    texts = {"redeliver_error_message", "redeliver_policy", *capabilities.death_marks, *spare}
    whole = True
    for carried, limit in itertools.product(({**ours, **spare}, ours), (capabilities.value_bytes, SHORT_BYTES)):
        fitting = {name: trim_utf8(value, limit) if name in texts else value for name, value in carried.items()}
        if (need := sum(_size(name, value) + ENTRY_BYTES for name, value in fitting.items())) <= room:
            left = min(room - need - len(HISTORY) - ENTRY_BYTES, capabilities.value_bytes)
            text = written_history(attempts, left) if whole else ""
            if text:
                fitting[HISTORY] = text
            if trace and whole and text == written_history(attempts):
                need += _size(HISTORY, text) + ENTRY_BYTES if text else 0
                if need + _size(TRACE, trace) + ENTRY_BYTES <= room:
                    fitting[TRACE] = trace
            return fitting
        whole = False
    raise NotCopyable(
        f"its headers need {need - room + capabilities.header_bytes} bytes with ours, "
        f"{capabilities.dialect} takes {capabilities.header_bytes}",
        where=repr(delivery),
        cure="Let the producer send less in headers",
        code="headers-too-large",
    )


def _size(name: str, value: object) -> int:
    """Return the bytes of a header's name and text, never more than on the wire; 0 for a number or a table."""
    if isinstance(value, bytes):
        return len(name) + len(value)
    return len(name) + len(value.encode("utf-8", "replace")) if isinstance(value, str) else 0
