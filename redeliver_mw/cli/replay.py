# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Implements `redeliver dead replay URL` for letters of a store: preview, confirmation, run, and how to go on."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import ConfigError, RedeliverError, counted
from ..redaction import redact
from .arguments import read_policies, read_url
from .check import whole_policies
from .logs import quiet_drivers, show_audit
from .output import cut, plain, print_json, print_table
from .progress import told
from .selection import selection_of
from .signals import ended_by_signals
from .store import opened

if TYPE_CHECKING:
    from ..dead_letters.edits.letter import Transform
    from ..operations import Operation, Selection, Store
    from ..operations.became import BecameCounts
    from ..operations.editing import OpenedLetter
    from ..operations.replay import CanaryEnd, StoreReplayed
    from ..operations.replay_plan import LetterEdit, ReplayPreview, StoreReplayOptions

PART, INTERRUPTED = 3, 130
NO_CANARY = "none"
WHYS = 20  # different reasons that are printed

To = Annotated[
    str | None, typer.Option("--to", metavar="QUEUE", help="Of a store: send all of them there, not to their sources")
]
Everything = Annotated[bool, typer.Option("--all", help="Of a store: every letter that waits")]
Rate = Annotated[float | None, typer.Option("--rate", metavar="N", help="Of a store: so many messages a second")]
Canary = Annotated[
    str | None,
    typer.Option(
        "--canary", metavar="N|P%", help="Of a store: send so many first, and wait for what becomes of them; or none"
    ),
]
StopAt = Annotated[
    str | None,
    typer.Option("--stop-at", metavar="P%", help="Of a store: stop when more than this share fails again (20%)"),
]
Wait = Annotated[
    float | None, typer.Option("--wait", metavar="S", help="Of a store: seconds to wait for the canary, at most (60)")
]
SettlesWithin = Annotated[
    float | None,
    typer.Option(
        "--settles-within",
        metavar="S",
        help="Of a store: seconds after which a message whose end is not known counts as unknown (86400)",
    ),
]
OfPolicy = Annotated[
    str | None,
    typer.Option("--policy", metavar="POLICY", help="Of a store: the consumers' policy, in place of --settles-within"),
]
TransformName = Annotated[
    str | None,
    typer.Option("--transform", metavar="MODULE:FUNCTION", help="Of a store: gives each letter back, changed or not"),
]
Edit = Annotated[bool, typer.Option("--edit", help="Of a store: change the one letter of --id in $EDITOR first")]
Yes = Annotated[bool, typer.Option("--yes", help="Of a store: send them without a question")]
Resume = Annotated[
    str | None, typer.Option("--resume", metavar="ID", help="Of a store: go on with this replay, or run a planned one")
]
OtherBroker = Annotated[
    bool, typer.Option("--other-broker", help="Of a store: also letters that were collected at another address")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreAsked:
    """Holds the options of a replay from the store, as given."""

    url: str
    store: str | None = None
    ids: Sequence[str] = ()
    where: str | None = None
    since: str | None = None
    queue: str | None = None
    state: str | None = None
    group: str | None = None
    everything: bool = False
    limit: int | None = None
    to: str | None = None
    rate: float | None = None
    canary: str | None = None
    stop_at: str | None = None
    wait: float | None = None
    settles_within: float | None = None
    policy: str | None = None
    transform: str | None = None
    edit: bool = False
    yes: bool = False
    resume: str | None = None
    other_broker: bool = False
    as_json: bool = False

    @property
    def chooses(self) -> bool:
        """Return whether letters are chosen by an option."""
        chosen = (self.where, self.since, self.queue, self.state, self.group)
        return bool(self.ids) or self.everything or any(one is not None for one in chosen)

    def of_a_store(self) -> dict[str, Any]:
        """Return the options that only a replay from a store has, by name: those that were given."""
        given = {
            "--store": self.store,
            "--where": self.where,
            "--since": self.since,
            "--queue": self.queue,
            "--state": self.state,
            "--group": self.group,
            "--all": self.everything,
            "--to": self.to,
            "--rate": self.rate,
            "--canary": self.canary,
            "--stop-at": self.stop_at,
            "--wait": self.wait,
            "--settles-within": self.settles_within,
            "--policy": self.policy,
            "--transform": self.transform,
            "--edit": self.edit,
            "--yes": self.yes,
            "--resume": self.resume,
            "--other-broker": self.other_broker,
        }
        return {name: value for name, value in given.items() if value not in (None, False)}


def replay_from_store(asked: StoreAsked) -> None:
    """Plan and run a replay from the store, or go on with one."""
    quiet_drivers()
    show_audit(None)
    address = read_url(asked.url)
    _check(asked)
    transform = _transform(asked.transform)
    with opened(asked.store) as store:
        if asked.resume is not None:
            kept = _Kept()
            operation, options = _resumed(asked, store)
        else:
            options = _options(asked)
            selection = _selection(asked, store)
            kept = _edited(asked, store, selection, address) if asked.edit else _Kept()
            operation = _planned(asked, store, selection, options, kept)
        _run(asked, store, operation, options, transform, address, kept)


# -- what is meant ----------------------------------------------------------------------------------


def _check(asked: StoreAsked) -> None:
    if asked.resume is not None:
        if asked.chooses or asked.edit or asked.limit is not None or asked.to is not None:
            raise _refused("a replay that goes on has its letters and its target already", "--resume", "Leave it alone")
        return
    if not asked.chooses:
        raise _refused(
            "it is not said which letters are meant",
            "URL",
            "Name the dead-letter queue after it; or choose letters of the store by --id, --where, --group or --all",
        )
    if asked.everything and (asked.ids or asked.where is not None or asked.group is not None):
        raise _refused("all letters, and some of them", "--all", "Leave out --all, or the options that choose")
    if asked.limit is not None and asked.limit < 1:
        raise _refused(f"{asked.limit} is no number from 1 on", "--limit", "Leave it out for all")
    if asked.edit and len(asked.ids) != 1:
        raise _refused("one letter is edited at a time", "--edit", "Name it with --id")
    if asked.policy is not None and asked.settles_within is not None:
        raise _refused("both say how long a message may take", "--policy", "Leave out --settles-within")


def _refused(what: str, where: str, cure: str) -> ConfigError:
    return ConfigError(what, where=where, cure=cure, code="option-value")


def _selection(asked: StoreAsked, store: Store) -> Selection:
    from ..operations import show

    ids = [show(store, one).letter.dl_id for one in asked.ids]  # the beginning of an id is enough
    return selection_of(
        queue=asked.queue, where=asked.where, since=asked.since, state=asked.state, group=asked.group, ids=ids
    )


def _options(asked: StoreAsked, before: StoreReplayOptions | None = None) -> StoreReplayOptions:
    """Return the options as given; what was not given is as it was planned."""
    from ..operations.replay_plan import StoreReplayOptions

    changes: dict[str, Any] = {
        "rate": asked.rate,
        "canary": asked.canary,
        "stop_at": asked.stop_at,
        "wait": asked.wait,
        "settles_within": asked.settles_within if asked.policy is None else _longest(asked.policy),
        "transform": asked.transform,
        "other_broker": asked.other_broker or None,
    }
    given = {name: value for name, value in changes.items() if value is not None}
    if asked.canary == NO_CANARY:
        given["canary"] = None
    return replace(before or StoreReplayOptions(), **given)


def _resumed(asked: StoreAsked, store: Store) -> tuple[Operation, StoreReplayOptions]:
    """Return the replay to go on with. A canary that has passed is not sent a second time, unless asked for."""
    from ..operations.replay_plan import StoreReplayOptions, find_replay

    operation = find_replay(store, asked.resume or "")
    before = StoreReplayOptions.of(operation)
    if before.transform and asked.transform != before.transform:
        raise _refused(
            f"this replay changes its letters with {before.transform}",
            "--transform",
            f"Say it again: --transform {before.transform}",
        )
    if operation.options.get("canary_passed") and asked.canary is None:
        before = replace(before, canary=None)
    return operation, _options(asked, before)


def _longest(policy: str) -> float | None:
    """Return the longest time in seconds that a message may take; None if a policy goes on for ever."""
    from ..policy import Keep, Redeliver
    from .timeline import timeline

    given = read_policies(policy, None, False)
    found = [given.default, *(one for _, one in whole_policies(given))]
    longest = 0.0
    for one in (*found, *(arm.policy for policy in found for arm in policy.arms)):
        if one.goes_on:
            return None
        delays = (row.decision for row in timeline(one))
        longest = max(longest, sum(delay.high for delay in delays if isinstance(delay, Redeliver | Keep)))
    return max(60.0, longest)


def _transform(name: str | None) -> Transform | None:
    if name is None:
        return None
    from ..dead_letters.edits.user_functions import load_function

    sys.path.insert(0, os.getcwd())
    found: Transform | None = load_function(name, "--transform")
    return found


# -- the editor -------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Kept:
    """Keeps an edit and the file with the edited text, until the edit is sent."""

    edit: LetterEdit | None = None
    path: str = ""

    def forget(self) -> None:
        """Remove the file."""
        if self.path:
            with suppress(OSError):
                os.unlink(self.path)

    def tell(self) -> None:
        """Say where the text is."""
        if self.path:
            print(f"your text is kept in {self.path}", file=sys.stderr)


def _edited(asked: StoreAsked, store: Store, selection: Selection, address: str) -> _Kept:
    """Let the user edit the letter. Raises ConfigError for a text that is no letter; its file is kept and named."""
    from ..adapter.registry import adapter_for
    from ..operations import show
    from ..operations.editing import is_json_no_longer, open_letter, read_edit

    shown = show(store, selection.ids[0])
    one = open_letter(shown, adapter_for(address).reader)
    path = _with_editor(one)
    with open(path, "rb") as file:
        text = file.read()
    if text == one.text:
        os.unlink(path)
        raise typer.Exit(_nothing("nothing was changed, and nothing is sent"))
    edit = read_edit(one, text, path)
    if edit is None:
        os.unlink(path)
        raise typer.Exit(_nothing("nothing was changed, and nothing is sent"))
    if is_json_no_longer(one, edit):
        print("note: the body was JSON, and is none after your edit", file=sys.stderr)
    return _Kept(edit, path)


def _nothing(text: str) -> int:
    print(text, file=sys.stderr)
    return 0


def _with_editor(one: OpenedLetter) -> str:
    """Return the file with the edited text, which only this user can read."""
    handle, path = tempfile.mkstemp(prefix="redeliver-letter-", suffix=".txt")
    with os.fdopen(handle, "wb") as file:
        file.write(one.text)
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    try:
        code = subprocess.run([*shlex.split(editor), path], check=False).returncode
    except (OSError, ValueError) as error:
        os.unlink(path)
        raise _refused(f"the editor {editor!r} cannot be run: {error}", "EDITOR", "Set EDITOR to your editor") from None
    if code:
        raise _refused(
            f"the editor ended with {code}; nothing was sent, and the text is in {path}", "EDITOR", "Try again"
        )
    return path


# -- plan and run -----------------------------------------------------------------------------------


def _planned(
    asked: StoreAsked, store: Store, selection: Selection, options: StoreReplayOptions, kept: _Kept
) -> Operation:
    from ..operations.replay_plan import plan_replay

    try:
        return plan_replay(store, selection, to=asked.to, options=options, edit=kept.edit, most=asked.limit)
    except RedeliverError:
        kept.tell()
        raise


def _run(
    asked: StoreAsked,
    store: Store,
    operation: Operation,
    options: StoreReplayOptions,
    transform: Transform | None,
    address: str,
    kept: _Kept,
) -> None:
    from ..operations import cancel_operation
    from ..operations.replay import run_replay
    from ..operations.replay_plan import preview_of

    preview = preview_of(store, operation.operation_id)
    go_on = _command(asked, store, operation)
    if not asked.yes and not _confirmed(preview):
        if asked.as_json:
            print_json({"sent": None, **_preview_as_json(preview)})
        else:
            _print_preview(preview, sys.stdout)
        if sys.stdin.isatty() and sys.stderr.isatty():
            if operation.state == "planned":
                cancel_operation(store, operation.operation_id)
            print("nothing was sent", file=sys.stderr)
        elif preview.letters:
            print(f"nothing was sent. To send them: {go_on} --yes", file=sys.stderr)
        kept.tell()
        return
    stop = threading.Event()
    with ended_by_signals(stop.set):
        try:
            with told("replaying") as tell:
                done = run_replay(
                    store,
                    operation.operation_id,
                    address,
                    options=options,
                    transform=transform,
                    stop=stop,
                    progress=tell,
                )
        except RedeliverError:
            kept.tell()
            raise
        if asked.as_json:
            print_json(_done_as_json(done))
        else:
            _print_done(done)
        for line in _remarks(done, go_on):
            print(line, file=sys.stderr)
        if kept.edit is not None and done.operation.done:
            kept.forget()
        else:
            kept.tell()
    if done.error is not None:
        raise done.error
    if done.interrupted:
        raise typer.Exit(INTERRUPTED)
    if not done.whole:
        raise typer.Exit(PART)


def _confirmed(preview: ReplayPreview) -> bool:
    """Ask for the exact number on a terminal, after the preview; elsewhere nothing is confirmed."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()) or not preview.going:
        return False
    _print_preview(preview, sys.stderr)
    print(f"type {preview.going} to send them: ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip() == str(preview.going)


def _command(asked: StoreAsked, store: Store, operation: Operation) -> str:
    """Return the command that goes on with a replay. URLs with a password are not written out."""
    words = ["redeliver", "dead", "replay", asked.url if asked.url.startswith("env:") else redact(asked.url)]
    if asked.store is not None:
        words += ["--store", asked.store if asked.store.startswith("env:") else store.where]
    words += ["--resume", operation.operation_id]
    if name := asked.transform or operation.options.get("transform"):
        words += ["--transform", str(name)]
    return plain(shlex.join(words))


# -- output -----------------------------------------------------------------------------------------


def _print_preview(preview: ReplayPreview, to: Any) -> None:
    rows = [
        (
            str(one.letters),
            plain(redact(one.source or "unknown")),
            plain(redact(one.target)) + (" (redirect)" if one.redirected else ""),
            "",
        )
        for one in preview.routes
    ]
    rows += [(str(one.letters), "", "stay", cut(plain(redact(one.why)))) for one in preview.stay[:WHYS]]
    if rows and to is sys.stdout:
        print_table(("letters", "from", "to", "why"), rows, right={0})
    elif rows:
        for row in rows:
            print("  ".join(cell for cell in row if cell), file=to)
    print(
        f"{preview.going} of {counted(preview.letters, 'letter')} would be sent, operation "
        f"{preview.operation.operation_id}",
        file=to,
    )
    if preview.in_doubt:
        print(f"note: {preview.in_doubt} of them were sent before without an answer, as the same copies", file=to)
    if preview.doubtful_elsewhere:
        print(
            f"note: {preview.doubtful_elsewhere} of them were sent by another replay without an answer, and may arrive "
            "twice",
            file=to,
        )


def _print_done(done: StoreReplayed) -> None:
    rows = [(str(one.letters), cut(plain(redact(one.why)))) for one in done.problems[:WHYS]]
    if rows:
        print_table(("letters", "not sent, because"), rows, right={0})
    operation = done.operation
    print(f"{operation.done} of {operation.total} replayed, replay id {operation.operation_id}")


def _remarks(done: StoreReplayed, go_on: str) -> Iterator[str]:
    if done.sent:
        yield f"{done.sent} sent in {done.seconds:.1f} s, {done.rate:.0f} messages/s"
    if done.again:
        yield f"note: {done.again} of them were sent before without an answer, as the same copies"
    if done.canary is not None:
        yield _canary_line(done.canary)
    if done.became.failed_again:
        yield f"note: {done.became.failed_again} of the replayed failed again"
    if done.in_doubt:
        yield f"note: of {done.in_doubt} it is not known whether the broker has them; the same replay sends them again"
    if done.operation.state == "paused":
        why = "interrupted" if done.interrupted else f"stopped: {plain(redact(done.stopped))}"
        yield f"{why}; {done.left} not sent. To go on: {go_on} --yes"
    elif done.operation.state == "cancelled":
        yield f"cancelled by another program; {done.left} not sent, and wait"


def _canary_line(one: CanaryEnd) -> str:
    known = f"{one.recovered} recovered, {one.failed_again} failed again"
    return f"canary of {one.sent}: {one.verdict}, {known}, after {one.waited:.0f} s"


def _preview_as_json(preview: ReplayPreview) -> dict[str, Any]:
    return {
        "operation": preview.operation.operation_id,
        "letters": preview.letters,
        "going": preview.going,
        "routes": [
            {
                "from": redact(one.source or "") or None,
                "to": redact(one.target),
                "letters": one.letters,
                "redirected": one.redirected,
            }
            for one in preview.routes
        ],
        "stay": [{"why": redact(one.why), "letters": one.letters} for one in preview.stay],
        "in_doubt": preview.in_doubt,
        "doubtful_elsewhere": preview.doubtful_elsewhere,
    }


def _done_as_json(done: StoreReplayed) -> dict[str, Any]:
    operation, canary = done.operation, done.canary
    return {
        "operation": operation.operation_id,
        "replay_id": operation.operation_id,
        "state": operation.state,
        "letters": operation.total,
        "replayed": operation.done,
        "failed": operation.failed,
        "skipped": operation.skipped,
        "sent": done.sent,
        "again": done.again,
        "in_doubt": done.in_doubt,
        "left": done.left,
        "problems": [{"why": redact(one.why), "letters": one.letters} for one in done.problems],
        "canary": None
        if canary is None
        else {
            "letters": canary.sent,
            "recovered": canary.recovered,
            "failed_again": canary.failed_again,
            "waited_s": canary.waited,
            "verdict": canary.verdict,
        },
        "became": became_as_json(done.became),
        "stopped": redact(done.stopped) or None,
        "interrupted": done.interrupted,
        "seconds": round(done.seconds, 3),
    }


def became_as_json(counts: BecameCounts) -> Mapping[str, int]:
    """Return what became of the messages of a replay as JSON."""
    return {
        "recovered": counts.recovered,
        "failed_again": counts.failed_again,
        "in_flight": counts.in_flight,
        "unknown": counts.unknown,
    }
