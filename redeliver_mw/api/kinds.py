# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Plans and runs operations: for each kind the permission that it needs, how it is planned and how it is run."""

from __future__ import annotations

import base64
import binascii
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Protocol

from ..dead_letters.edits.letter import Transform
from ..errors import DestinationMissing
from ..operations import Operation, Selection, Store
from ..operations.archive import plan_archive, plan_restore, run_archive, run_restore
from ..operations.collect import run_collect
from ..operations.discard import plan_discard, run_discard
from ..operations.expire import plan_expire, run_expire
from ..operations.replay import run_replay
from ..operations.replay_plan import LetterEdit, StoreReplayOptions, plan_replay
from .answers import EditWished, OperationPlanned, ReplayWished
from .permissions import Permission
from .problems import ApiError

Plan = Callable[["Resources", Store, Selection, OperationPlanned, str], Operation]
Run = Callable[[Store, "RunSignals"], object]
Prepare = Callable[["Resources", Operation, str | None], Run]
"""Returns what runs an operation, perhaps on a named broker. It raises ApiError if the request cannot be meant so,
before anything runs."""


class Resources(Protocol):
    """Is what planning and running know of the server."""

    @property
    def transforms(self) -> Mapping[str, Transform]:
        """Return the transforms by name."""

    @property
    def brokers(self) -> Mapping[str, str]:
        """Return the URLs of the brokers by name."""


@dataclass(frozen=True, slots=True)
class RunSignals:
    """Holds who runs an operation, what ends it after the batch in hand, and what is called when it has progressed."""

    who: str
    stop: threading.Event
    progress: Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationKind:
    """Describes a kind of operations. Without `plan` it is begun elsewhere, and can only be looked at and ended here.

    `state`: the state of the letters that are meant if the request names none; None leaves it to the plan.
    """

    permission: Permission
    plan: Plan | None = None
    prepare: Prepare | None = None
    state: Any = "waiting"


def kind_of(name: str) -> OperationKind:
    """Return a kind; one that no table names needs the permission to control everything else."""
    return KINDS.get(name, _OTHER)


# -- replay -----------------------------------------------------------------------------------------


def _plan_replay(server: Resources, store: Store, selection: Selection, asked: OperationPlanned, who: str) -> Operation:
    wished = asked.replay or ReplayWished()
    if wished.transform is not None:
        _named(server.transforms, wished.transform, "transform", "body replay transform")
    options = StoreReplayOptions(
        rate=wished.rate,
        canary=wished.canary,
        stop_at=wished.stop_at,
        wait=wished.wait_s,
        settles_within=wished.settles_within_s,
        transform=wished.transform or "",
        other_broker=wished.other_broker,
    )
    edit = None if wished.edit is None else _edit(wished.edit, selection)
    return plan_replay(store, selection, to=wished.to, options=options, edit=edit, most=asked.most, who=who)


def _edit(wished: EditWished, selection: Selection) -> LetterEdit:
    if list(selection.ids) != [wished.id]:
        raise ApiError(
            400,
            "an edit is of one letter, and these are others",
            where="body selection ids",
            cure="Select the edited letter alone, by its id",
            code="api-request",
        )
    if wished.body is not None and wished.body_base64 is not None:
        raise ApiError(
            400, "there are two bodies", where="body replay edit", cure="Send one of them", code="api-request"
        )
    body = None if wished.body is None else wished.body.encode()
    if wished.body_base64 is not None:
        try:
            body = base64.b64decode(wished.body_base64, validate=True)
        except (binascii.Error, ValueError):
            raise ApiError(
                400,
                "it is no base64",
                where="body replay edit body_base64",
                cure="Encode the bytes as base64, on one line",
                code="api-request",
            ) from None
    return LetterEdit(wished.id, wished.digest, body, dict(wished.headers))


def _prepare_replay(server: Resources, operation: Operation, broker: str | None) -> Run:
    url = server.brokers[broker_named(server, broker)]
    wanted = str(operation.options.get("transform") or "")
    transform = _named(server.transforms, wanted, "transform", "operation") if wanted else None

    def run(store: Store, signals: RunSignals) -> None:
        done = run_replay(store, operation.operation_id, url, transform=transform, **_common(signals))
        if done.error is not None:
            raise done.error

    return run


def broker_named(server: Resources, name: str | None) -> str:
    """Return the name of the broker that a request means: the only one if it names none. Raises ApiError."""
    found = name or (next(iter(server.brokers)) if len(server.brokers) == 1 else "")
    _named(server.brokers, found, "broker", "body broker")
    return found


def _named(known: Mapping[str, Any], name: str, noun: str, where: str) -> Any:
    if name in known:
        return known[name]
    raise ApiError(
        400,
        f"the server has no {noun} {name!r}" if name else f"it is not said which {noun} is meant",
        where=where,
        cure=f"Name one of: {', '.join(sorted(known)) or 'none'}",
        code="api-name",
    )


# -- collect ----------------------------------------------------------------------------------------


def _prepare_collect(server: Resources, operation: Operation, broker: str | None) -> Run:
    own = str(operation.options.get("broker") or "")
    if own and broker and own != broker:
        raise ApiError(
            400,
            f"this collect is of the broker {own!r}",
            where="body broker",
            cure="Leave it out, or begin another collect",
            code="api-name",
        )
    url = server.brokers[broker_named(server, own or broker)]

    def run(store: Store, signals: RunSignals) -> None:
        def tell(queue: str, taken: int, of: int | None) -> None:
            signals.progress(taken, of or 0)

        try:
            run_collect(store, operation.operation_id, url, stop=signals.stop, progress=tell, who=signals.who)
        except DestinationMissing as error:  # which the request has named
            raise ApiError(404, error.what, where="body queues", cure=error.cure, code=error.code) from None

    return run


# -- the other kinds --------------------------------------------------------------------------------


def _plan_archive(_: Resources, store: Store, selection: Selection, asked: OperationPlanned, who: str) -> Operation:
    return plan_archive(store, selection, who=who)


def _prepare_archive(_: Resources, operation: Operation, broker: str | None) -> Run:
    return lambda store, signals: run_archive(store, operation.operation_id, **_common(signals))


def _plan_restore(_: Resources, store: Store, selection: Selection, asked: OperationPlanned, who: str) -> Operation:
    return plan_restore(store, selection, who=who)


def _prepare_restore(_: Resources, operation: Operation, broker: str | None) -> Run:
    return lambda store, signals: run_restore(store, operation.operation_id, **_common(signals))


def _plan_discard(_: Resources, store: Store, selection: Selection, asked: OperationPlanned, who: str) -> Operation:
    return plan_discard(store, selection, file=None, who=who)  # the letters stay in the store, as discarded


def _prepare_discard(_: Resources, operation: Operation, broker: str | None) -> Run:
    if operation.options.get("file") is not None:
        raise ApiError(
            409,
            "this operation writes its letters to a file, and the server writes none",
            cure="Resume it where it was planned, with `redeliver dead discard --resume ID`",
            code="api-file",
        )
    return lambda store, signals: run_discard(store, operation.operation_id, **_common(signals))


def _plan_expire(_: Resources, store: Store, selection: Selection, asked: OperationPlanned, who: str) -> Operation:
    wished = asked.expire
    if wished is None:
        raise ApiError(400, "'expire' is missing", where="body", cure="Say how old the letters are", code="api-request")
    return plan_expire(
        store,
        wished.older_than_s,
        selection,
        only_bodies=wished.only_bodies,
        waiting=wished.waiting,
        who=who,
    )


def _prepare_expire(_: Resources, operation: Operation, broker: str | None) -> Run:
    return lambda store, signals: run_expire(store, operation.operation_id, **_common(signals))


def _common(signals: RunSignals) -> dict[str, Any]:
    return {"stop": signals.stop, "progress": signals.progress, "who": signals.who}


KINDS: Final[Mapping[str, OperationKind]] = MappingProxyType(
    {
        "collect": OperationKind(permission="letters:collect", prepare=_prepare_collect),
        "replay": OperationKind(permission="letters:replay", plan=_plan_replay, prepare=_prepare_replay),
        "archive": OperationKind(permission="letters:archive", plan=_plan_archive, prepare=_prepare_archive),
        "restore": OperationKind(
            permission="letters:archive", plan=_plan_restore, prepare=_prepare_restore, state=None
        ),
        "discard": OperationKind(permission="letters:discard", plan=_plan_discard, prepare=_prepare_discard),
        "expire": OperationKind(permission="letters:expire", plan=_plan_expire, prepare=_prepare_expire, state=None),
    }
)
_OTHER: Final = OperationKind(permission="apps:control")
PLANNED_HERE: Final[Sequence[str]] = tuple(name for name, kind in KINDS.items() if kind.plan is not None)
