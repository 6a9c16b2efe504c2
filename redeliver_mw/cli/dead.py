# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Implements `redeliver dead list · show · replay URL DLQ`: looks at dead letters, and replays them.

Without URL and DLQ, `list` and `show` read the store; the commands that only know the store are in `store`.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from ..adapter.registry import adapter_for, parse_url
from ..dead_letters import (
    DeadLetterInfo,
    LetterOutcome,
    Replay,
    ReplayReport,
    ambiguous,
    letter_of,
    missing,
    no_such_letter,
)
from ..errors import ConfigError, DestinationMissing, counted
from ..message import Delivery, Destination
from ..redaction import redact
from ..redelivery.copies import HISTORY
from ..session import Session, connect
from . import collect, diff, letter_states, notes, operations, redirects, store, transfer
from . import replay as from_store
from .arguments import Json, Url, read_url
from .bodies import Body, Decode, Decoder, body_as_json, check_form, decoder_of, print_body
from .help import example
from .logs import quiet_drivers
from .output import (
    cut,
    headers_of,
    history_as_json,
    plain,
    print_history,
    print_json,
    print_table,
    short_ids,
    when,
)
from .selection import OfGroup, OfQueue, Since, SortBy, State, Where, key_of, selection_of, since_us_of
from .signals import ended_by_signals

if TYPE_CHECKING:
    from ..operations.filters.model import Filter

PART, INTERRUPTED = 3, 130
LISTED, SEARCHED = 100, 10_000  # letters that are looked at; and letters that are searched for an id
TOLD_EVERY = 100

LetterLimit = Annotated[int | None, typer.Option("--limit", help="At most so many letters, from 1 on")]
UrlOrNone = Annotated[
    str | None,
    typer.Argument(metavar="URL", help="The broker's, or env:NAME for the variable that holds it; else the store"),
]
DlqOrNone = Annotated[str | None, typer.Argument(metavar="DLQ", help="The dead-letter queue")]
GroupOrKey = Annotated[
    str | None,
    typer.Option(
        "--group",
        metavar="BY[=VALUE]",
        help="Of a store: groups by fingerprint, source, error, app or day; with a value, the letters of one group",
    ),
]
LetterIds = Annotated[
    list[str] | None,
    typer.Option("--id", help="This letter only; the beginning of its id is enough. Of a store: may be repeated"),
]
LetterId = Annotated[str | None, typer.Option("--id", help="This letter only; the beginning of its id is enough")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    dead = typer.Typer(
        help="Dead letters: look at them, and send them back.", no_args_is_help=True, rich_markup_mode=None
    )
    dead.command("list", epilog=example("redeliver dead list env:BROKER dlq.orders"))(list_)
    dead.command("groups", epilog=example("redeliver dead groups --store sqlite:///store.db --by error"))(store.groups)
    dead.command("show", epilog=example("redeliver dead show env:BROKER dlq.orders"))(show)
    dead.command("collect", epilog=example("redeliver dead collect env:BROKER dlq.orders --store sqlite:///store.db"))(
        collect.collect
    )
    dead.command("replay", epilog=example("redeliver dead replay env:BROKER dlq.orders --limit 5"))(replay)
    at = "--store sqlite:///store.db"
    for name, command, words in (
        ("diff", diff.diff, f"5b0c7d1e 9f31aa02 {at}"),
        ("note", notes.note, f"'a wrong price, see ticket 12' --group error=KeyError {at}"),
        ("archive", letter_states.archive, f"--where 'error = KeyError' {at}"),
        ("restore", letter_states.restore, f"--id 5b0c7d1e {at}"),
        ("discard", letter_states.discard, f"--where 'age > 30d' {at}"),
        ("expire", letter_states.expire, f"--older-than 30d {at}"),
        ("export", transfer.export_, f"letters.jsonl --group error=KeyError {at}"),
        ("import", transfer.import_, f"letters.jsonl {at}"),
        ("operations", operations.operations, at),
        ("pause", operations.pause, f"20261126-031544 {at}"),
        ("cancel", operations.cancel, f"20261126-031544 {at}"),
        ("audit", operations.audit, at),
    ):
        dead.command(name, epilog=example(f"redeliver dead {name} {words}"))(command)
    redirects.register(dead)
    app.add_typer(dead, name="dead")


def list_(
    url: UrlOrNone = None,
    dlq: DlqOrNone = None,
    limit: LetterLimit = None,
    id_: LetterId = None,
    where: Where = None,
    since: Since = None,
    store_url: store.StoreUrl = None,
    queue: OfQueue = None,
    state: State = None,
    group: GroupOrKey = None,
    sort: SortBy = None,
    cursor: store.Cursor = None,
    as_json: Json = False,
) -> None:
    """List dead letters, and leave them where they are: in a queue, or without URL and DLQ in a store."""
    if url is None:
        if id_ is not None:
            raise _only("a queue", "--id", "Write `redeliver dead show --id` for a letter of the store")
        if group is not None and "=" not in group:
            for option, given in (("--sort", sort), ("--cursor", cursor)):
                if given is not None:
                    raise _only("a list", option, "Leave it out: groups are listed the largest first")
            chosen = selection_of(queue=queue, where=where, since=since, state=state)
            return store.list_groups(store_url, key_of(group, "--group"), chosen, limit, as_json)
        chosen = selection_of(queue=queue, where=where, since=since, state=state, group=group)
        return store.list_store(store_url, chosen, sort, limit, cursor, as_json)
    _refuse_options_of_a_store(
        store_url, **{"--queue": queue, "--state": state, "--group": group, "--sort": sort, "--cursor": cursor}
    )
    if dlq is None:
        raise _no_dlq()
    letters = [letter for _, letter in _look(url, dlq, limit, id_, LISTED, QueueFilter.of(where, since))]
    if as_json:
        print_json([_as_json(letter) for letter in letters])
        return None
    ids = short_ids([letter.id for letter in letters])
    foreign = any(letter.framework for letter in letters)
    rows = [
        (
            ids[letter.id],
            *((_framework(letter),) if foreign else ()),
            _from(letter),
            plain(redact(letter.reason)),
            str(letter.failures),
            _error(letter),
            when(letter.since),
            str(letter.body_bytes),
        )
        for letter in letters
    ]
    names = ("id", *(("framework",) if foreign else ()), "from", "reason", "failures", "error", "since", "bytes")
    print_table(names, rows, right={names.index("failures"), names.index("bytes")})
    return None


def show(
    url: UrlOrNone = None,
    dlq: DlqOrNone = None,
    limit: LetterLimit = None,
    id_: LetterId = None,
    where: Where = None,
    since: Since = None,
    body: Body = None,
    decode: Decode = None,
    store_url: store.StoreUrl = None,
    queue: OfQueue = None,
    state: State = None,
    group: OfGroup = None,
    sort: SortBy = None,
    as_json: Json = False,
) -> None:
    """Show the headers and the body of a dead letter, by default of the first one, in a store the newest."""
    if url is None:
        if limit is not None:
            raise _only("a queue", "--limit", "Name one letter with --id")
        chosen = selection_of(queue=queue, where=where, since=since, state=state, group=group)
        return store.show_store(store_url, id_, chosen, sort, body, decode, as_json)
    _refuse_options_of_a_store(store_url, **{"--queue": queue, "--state": state, "--group": group, "--sort": sort})
    if dlq is None:
        raise _no_dlq()
    check_form(body)
    decoder = decoder_of(decode)
    found = _look(url, dlq, limit, id_, 1, QueueFilter.of(where, since))
    if as_json:
        shown = [
            _as_json(letter)
            | {"history": history_as_json(letter.history), "headers": headers_of(d), **body_as_json(d.body, decoder)}
            for d, letter in found
        ]
        print_json(shown)
        whole = not any("decode_error" in one for one in shown)
    else:
        printed = [_print_letter(*pair, number, body, decoder) for number, pair in enumerate(found)]
        whole = all(printed)
    if not whole:
        raise typer.Exit(PART)
    return None


def _print_letter(
    delivery: Delivery, letter: DeadLetterInfo, number: int, form: str | None, decoder: Decoder | None
) -> bool:
    """Print one letter of a queue. Return whether a function that decodes bodies, if there is one, has not failed."""
    print("\n" if number else "", end="")
    by = f", {_framework(letter)}" if letter.framework else ""
    print(f"letter {plain(letter.id)}, from {_from(letter)}, {counted(letter.body_bytes, 'byte')}{by}")
    for name, value in sorted(headers_of(delivery).items()):
        if name != HISTORY or not letter.history:
            print(f"  {plain(name)}: {plain(str(value))}")
    print_history(letter.history)
    return print_body(delivery.body, form, decoder)


def replay(
    url: Url,
    dlq: DlqOrNone = None,
    limit: LetterLimit = None,
    ids: LetterIds = None,
    where: Where = None,
    since: Since = None,
    store_url: store.StoreUrl = None,
    queue: OfQueue = None,
    state: State = None,
    group: OfGroup = None,
    everything: from_store.Everything = False,
    to: from_store.To = None,
    rate: from_store.Rate = None,
    canary: from_store.Canary = None,
    stop_at: from_store.StopAt = None,
    wait: from_store.Wait = None,
    settles_within: from_store.SettlesWithin = None,
    policy: from_store.OfPolicy = None,
    transform: from_store.TransformName = None,
    edit: from_store.Edit = False,
    yes: from_store.Yes = False,
    resume: from_store.Resume = None,
    other_broker: from_store.OtherBroker = False,
    as_json: Json = False,
) -> None:
    """Send dead letters back to where they were consumed from.

    With DLQ, the letters of that queue: each is removed there once its source has it. Without DLQ, letters of the
    store, which --id, --where, --group or --all choose: what would be sent is shown first.
    """
    asked = from_store.StoreAsked(
        url=url,
        store=store_url,
        ids=ids or (),
        where=where,
        since=since,
        queue=queue,
        state=state,
        group=group,
        everything=everything,
        limit=limit,
        to=to,
        rate=rate,
        canary=canary,
        stop_at=stop_at,
        wait=wait,
        settles_within=settles_within,
        policy=policy,
        transform=transform,
        edit=edit,
        yes=yes,
        resume=resume,
        other_broker=other_broker,
        as_json=as_json,
    )
    if dlq is None:
        return from_store.replay_from_store(asked)
    for option in asked.of_a_store():
        raise _only("a store", option, "Leave it out, or leave DLQ out")
    if len(asked.ids) > 1:
        raise ConfigError(
            "several ids, and a queue is searched for one", where="--id", cure="Name one", code="option-value"
        )
    return _replay_queue(url, dlq, limit, asked.ids[0] if asked.ids else None, as_json)


def _replay_queue(url: str, dlq: str, limit: int | None, id_: str | None, as_json: bool) -> None:
    address, queue = _given(url, dlq, limit, id_)
    done = 0

    def tell(outcome: LetterOutcome) -> None:
        nonlocal done
        done += outcome.fate == "replayed"
        if done % TOLD_EVERY == 0 and outcome.fate == "replayed" and sys.stderr.isatty():
            print(f"{done} replayed", file=sys.stderr)

    one = Replay(adapter_for(address), queue, limit=limit, only=id_ or "", tell=tell)
    with ended_by_signals(one.stop):
        report = one.run()
        if as_json:
            print_json(_report_as_json(report))
        else:
            _print_report(report)
        for line in _remarks(report, queue):
            print(line, file=sys.stderr)
    if report.interrupted:
        raise typer.Exit(INTERRUPTED)
    if not report.whole:
        raise typer.Exit(PART)


# -- input ------------------------------------------------------------------------------------------


def _only(place: str, option: str, cure: str) -> ConfigError:
    return ConfigError(f"this option is for letters in {place}", where=option, cure=cure, code="option-value")


def _refuse_options_of_a_store(store_url: str | None, **given: str | None) -> None:
    for option, value in ({"--store": store_url} | given).items():
        if value is not None:
            raise _only("a store", option, "Leave it out, or leave URL and DLQ out")


def _no_dlq() -> typer.BadParameter:
    return typer.BadParameter("name the dead-letter queue of this broker after URL", param_hint="'DLQ'")


def _given(url: str, dlq: str, limit: int | None, id_: str | None) -> tuple[str, Destination]:
    """Return the URL and the queue. Raises ConfigError for invalid options before any connection is made."""
    quiet_drivers()
    address = read_url(url)
    if parse_url(address).dialect == "memory":
        raise ConfigError(
            "a memory broker lives in one process, and this is another",
            where="memory://",
            cure="Use TestApp: test.dead_letters(source), test.replay(source)",
            code="memory-broker-elsewhere",
        )
    if limit is not None and limit < 1:
        raise ConfigError(
            f"{limit} is no number from 1 on", where="--limit", cure="Leave it out for all", code="option-value"
        )
    if id_ is not None and not id_.strip():
        raise ConfigError("an empty id", where="--id", cure="Take one from `redeliver dead list`", code="option-value")
    queue = Destination.parse(dlq)
    if queue.kind == "topic" and not queue.subscription:
        raise ConfigError(
            f"{queue} is no queue",
            cure="Name the queue, or topic:NAME::SUBSCRIPTION, of the letters",
            code="destination-kind",
        )
    return address, queue


class QueueFilter(NamedTuple):
    """Says which letters of a queue are meant: the condition, and the first microsecond of death; each may be None."""

    condition: Filter | None
    since_us: int | None

    @classmethod
    def of(cls, where: str | None, since: str | None) -> QueueFilter | None:
        """Return what --where and --since say; None without them. Raises ConfigError."""
        if where is None and since is None:
            return None
        from ..operations.filters.parser import parse_filter

        return cls(None if where is None else parse_filter(where), since_us_of(since))

    def means(self, delivery: Delivery, queue: Destination, session: Session) -> bool:
        """Return whether a letter is meant. A letter whose time of death nobody knows died at no time."""
        from ..operations.filters.matching import matches
        from ..operations.letters import Shelf, subject_of
        from ..operations.operation import now_us

        subject = subject_of(delivery, Shelf(session.broker, queue, session.capabilities))
        if self.since_us is not None and (subject.died_us is None or subject.died_us < self.since_us):
            return False
        return self.condition is None or matches(self.condition, subject, now_us())


def _look(
    url: str, dlq: str, limit: int | None, id_: str | None, usual: int, chosen: QueueFilter | None = None
) -> list[tuple[Delivery, DeadLetterInfo]]:
    """Return the letters that are asked for; with an id, the letter whose id equals it or begins with it."""
    address, queue = _given(url, dlq, limit, id_)
    with connect(address) as session:
        looked_at = max(limit or 0, SEARCHED) if id_ or chosen else limit or usual
        deliveries = _browse(session, queue, looked_at)
        meant = [one for one in deliveries if chosen is None or chosen.means(one, queue, session)]
        letters = [(delivery, letter_of(delivery, session.capabilities)) for delivery in meant]
    if chosen is not None:
        all_of_it = "all letters" if len(deliveries) < looked_at else f"the first {looked_at} letters only"
        print(f"note: looked at {len(deliveries)} of {queue}, {all_of_it}: {len(letters)} are meant", file=sys.stderr)
    if not id_:
        return letters[: limit or usual] if chosen else letters
    found = [pair for pair in letters if pair[1].id == id_] or [p for p in letters if p[1].id.startswith(id_)]
    if not found:
        raise no_such_letter(id_, queue, len(letters))
    if len({letter.id for _, letter in found}) > 1:
        raise ambiguous(id_, len(found))
    return found[:limit]


def _browse(session: Session, queue: Destination, limit: int) -> Sequence[Delivery]:
    capabilities = session.capabilities
    if capabilities.browse == "none":
        raise ConfigError(
            f"{capabilities.dialect} cannot look without taking",
            cure="Move the letters into a store with `redeliver dead collect`, and look at them there",
            code="browse-not-supported",
        )
    try:
        if capabilities.depth:
            session.depth(queue)  # gives the best error message if the queue does not exist
        deliveries = session.browse(queue, limit)
    except DestinationMissing:
        raise missing(queue, session.broker) from None
    if deliveries and capabilities.browse == "requeue":
        print(f"note: looking marks the messages as redelivered on {capabilities.broker_kind}", file=sys.stderr)
    return deliveries


# -- output -----------------------------------------------------------------------------------------


def _as_json(letter: DeadLetterInfo) -> dict[str, Any]:
    return {
        "id": letter.id,
        "from": _name_of(letter.source) or None,
        "evidence": letter.evidence or None,
        "problem": redact(letter.problem) or None,
        "reason": redact(letter.reason) or None,
        "framework": letter.framework or None,
        "task": redact(letter.task) or None,
        "failures": letter.failures,
        "error_type": redact(letter.error_type) or None,
        "error_message": redact(letter.error_message) or None,
        "fingerprint": redact(letter.fingerprint) or None,
        "since_s": letter.since,
        "original_message_id": letter.original_message_id and redact(letter.original_message_id),
        "generation": letter.generation,
        "replay_id": redact(letter.replay_id) or None,
        "bytes": letter.body_bytes,
    }


def _report_as_json(report: ReplayReport) -> dict[str, Any]:
    words = {word: report.count(word) for word in ("replayed", "refused", "skipped")}
    letters = [
        {
            "id": o.letter.id,
            "to": _name_of(o.letter.source) or None,
            "outcome": o.fate,
            "why": redact(o.why) or None,
        }
        for o in report.outcomes
    ]
    return words | {
        "replay_id": report.replay_id,
        "died_again": report.died_again,
        "interrupted": report.interrupted,
        "letters": letters,
    }


def _print_report(report: ReplayReport) -> None:
    """Print a line for each kind of outcome, because there may be many thousands of letters."""
    same = Counter((o.fate, _name_of(o.letter.source), o.why) for o in report.outcomes)
    rows = [(str(n), word, plain(to), plain(redact(why))) for (word, to, why), n in same.items()]
    if rows:
        print_table(("letters", "outcome", "to", "why"), rows, right={0})
    print(f"{report.count('replayed')} of {len(report.outcomes)} replayed, replay id {report.replay_id}")


def _remarks(report: ReplayReport, queue: Destination) -> Iterator[str]:
    if report.count("refused"):
        yield f"note: refused letters are still in {queue}: is their source there, and not full?"
    if report.died_again:
        yield f"note: {report.died_again} of the replayed died again meanwhile; they lie in {queue}"
    if report.interrupted:
        yield f"interrupted: the other letters are still in {queue}"
    if report.rest:
        yield f"ended early: {report.rest}; the other letters are still in {queue}"


def _from(letter: DeadLetterInfo) -> str:
    return plain(_name_of(letter.source) or redact(letter.problem))


def _framework(letter: DeadLetterInfo) -> str:
    """Return the framework, and the name of the task or the type of the message: `Celery shop.tasks.charge`."""
    return cut(plain(redact(f"{letter.framework} {letter.task}".strip())))


def _name_of(source: Destination | None) -> str:
    """Return a source as text; empty for None.

    Another program may have written the name, with a secret in it.
    """
    if source is None:
        return ""
    return str(replace(source, name=redact(source.name), subscription=redact(source.subscription)))


def _error(letter: DeadLetterInfo) -> str:
    text = f"{letter.error_type}: {letter.error_message}" if letter.error_type else ""
    return cut(plain(redact(text)))
