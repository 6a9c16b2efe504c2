# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Runs one round of hostile messages from one seed.

The messages go through a consumer, the commands, the journal and the drain's rows.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from redeliver_mw import App, Delivery, RedeliveryPolicy
from redeliver_mw.adapter.registry import adapter_for
from redeliver_mw.dead_letters import pack, unpack
from redeliver_mw.dead_letters.broker_client import BrokerClient
from redeliver_mw.errors import NotCopyable
from redeliver_mw.journal import Journal
from redeliver_mw.limbo import LimboAdmin
from redeliver_mw.message import Destination
from redeliver_mw.pipeline.draining.rows import LetterRows, run_of
from tests.hostile.carrier import Carrier, Found, Limits, Made
from tests.hostile.failing import fail
from tests.hostile.outputs import Listener, command, faults_in, journal_faults
from tests.hostile.texts import CASE

MESSAGES = 30
PATIENCE = 40.0  # seconds until a healthy message is handled and each hostile one has gone where it has to go
PARKED_FOR = 3600.0
READ = (
    *("headers", "message_id", "correlation_id", "failures", "delivery_count", "redelivered", "first_failed_at"),
    *("last_error", "state", "properties", "destination"),
)


@dataclass
class Round:
    """Tells what one round did, and what it found."""

    seed: int
    face: str
    messages: int = 0  # that the broker took
    refused: Counter[str] = field(default_factory=Counter)  # by the broker, by what they were about
    unread: int = 0  # by the bare driver, and so not given to its drop-in
    kept: int = 0  # by the product where they were, with a line in the log that says so
    lines: int = 0  # of the journal
    faults: list[str] = field(default_factory=list)


class Handler:
    """Fails for hostile messages, but for those in `spared`, and notes what it saw. The consumer calls it."""

    def __init__(self, seed: int, spared: set[str], last: str) -> None:
        self._seed, self._spared, self._last = seed, spared, last
        self.calls: Counter[str] = Counter()
        self.handled: set[str] = set()
        self.healthy = threading.Event()
        self.faults: list[str] = []

    def __call__(self, seen: bytes) -> None:
        found = CASE.search(seen)
        case = found[1].decode() if found else "?"
        self.calls[case] += 1
        if case == self._last:
            self.healthy.set()
        if case == self._last or case in self._spared:
            self.handled.add(case)
            return
        fail(Random(f"{self._seed}/{case}/{self.calls[case]}"))

    def delivery(self, delivery: Delivery) -> None:
        """Do the same for an App: read all that a handler may read."""
        seen = delivery.body
        for name in READ:
            try:
                repr(getattr(delivery, name))
            except Exception as error:
                self.faults.append(f"reading {name} of a delivery raised {error!r}: {seen[:60]!r}")
        with contextlib.suppress(Exception):
            seen += str(delivery.headers.get("case", "")).encode("utf-8", "replace")
        self(seen)


def run(carrier: Carrier, seed: int, limits: Limits, messages: int = MESSAGES) -> Round:
    """Make the round of a seed. Queues are made for the round, and deleted."""
    rng = Random(seed)
    face = rng.choice(("app", "app", "schedule", "park", "dropin", "dropin"))
    if face == "dropin" and not carrier.has_dropin:
        face = "app"
    done = Round(seed, face)
    name = f"hostile.{seed}.{time.time_ns():x}"
    queues = {word: f"{name}.{word}" for word in ("source", "dead", "control", "strangers")}
    try:
        for queue in queues.values():
            carrier.make(queue, Random(seed))  # all of one kind: kinds differ in what they make of numbers
        with tempfile.TemporaryDirectory(prefix="redeliver-hostile-") as folder, Listener() as listener:
            _play(carrier, rng, done, queues, Path(folder), listener, limits, messages)
            done.faults += listener.faults
    finally:
        for queue in queues.values():
            with contextlib.suppress(Exception):
                carrier.delete(queue)
    return done


def _play(
    carrier: Carrier,
    rng: Random,
    done: Round,
    queues: dict[str, str],
    folder: Path,
    listener: Listener,
    limits: Limits,
    messages: int,
) -> None:
    sent: dict[str, Made] = {}
    for number in range(messages):
        made = carrier.message(rng, f"{done.seed:x}.{number}", limits)
        if done.face == "dropin" and not carrier.readable(made):
            done.unread += 1
        elif carrier.send(queues["control"], made) or carrier.send(queues["source"], made):
            done.refused[made.about] += 1
        else:
            sent[made.case] = made
    last = carrier.healthy(f"{done.seed:x}.{messages}")
    if why := carrier.send(queues["source"], last):
        raise AssertionError(f"a healthy message is refused: {why}")
    control = {found.case: found for found in carrier.take(queues["control"])}
    done.messages = len(control)
    for case in [case for case in sent if case not in control]:
        made = sent.pop(case)  # the broker took it, and does not give it to a bare client either
        done.refused[f"{made.about}, dropped by the broker"] += 1
    spared = {case for case in sent if rng.random() < 0.1}
    handler = Handler(done.seed, spared, last.case)
    expected = len(sent) - len(spared)
    limbo = f"sqlite:///{folder}/limbo.db"
    with _consumer(carrier, done, queues, folder, handler, limbo):
        if not handler.healthy.wait(PATIENCE):
            done.faults.append(f"the healthy message behind {len(sent)} others was not handled within {PATIENCE:g} s")

        def all_there() -> bool:
            there = carrier.depth(queues["dead"]) + (_parked(limbo) if done.face == "park" else 0)
            return there >= expected and handler.handled >= spared

        _wait(all_there, 5.0 if done.faults else PATIENCE)
    done.faults += handler.faults
    done.lines, wrong = journal_faults(folder / "journal")
    done.faults += wrong
    if done.lines < expected:
        done.faults.append(f"{done.lines} lines in the journal for {expected} failures")
    if done.face == "park":
        _look_into_limbo(carrier, done, queues, limbo, sent, control, handler)
    else:
        _look_at_letters(carrier, done, queues, sent, control, handler, listener)
    _look_at_strangers(carrier, rng, done, queues, sent)


@contextlib.contextmanager
def _consumer(
    carrier: Carrier, done: Round, queues: dict[str, str], folder: Path, handler: Handler, limbo: str
) -> Iterator[None]:
    dead = f"queue:{queues['dead']}"
    delay = {"schedule": 1.0, "park": PARKED_FOR}.get(done.face, 0.05)
    policy = RedeliveryPolicy(2, delay, dead)
    options: dict[str, Any] = {"journal": folder / "journal", "app_name": "hostile"}
    if done.face == "dropin":
        journal = Journal(folder / "journal")
        try:
            with carrier.dropin(
                queues["source"], handler, {"journal": journal, "app_name": "hostile", "policy": policy}
            ):
                yield
        finally:
            journal.close()
        return
    if done.face == "park":
        options |= {"limbo": limbo, "delay": "park"}
    app = App(carrier.url, policy=policy, **options)
    app.handler(queues["source"], workers=4)(handler.delivery)
    app.start()
    try:
        yield
    finally:
        report = app.stop(10.0)
        if not report.clean:
            done.faults.append(f"the App's stop was not clean: {report}")


def _wait(true: Callable[[], bool], seconds: float) -> None:
    """Wait until `true()` holds, or the time is over: later checks tell what is missing then."""
    end = time.monotonic() + seconds
    while not true() and time.monotonic() < end:
        time.sleep(0.1)


# -- what came of them


def _look_at_letters(
    carrier: Carrier,
    done: Round,
    queues: dict[str, str],
    sent: dict[str, Made],
    control: dict[str, Found],
    handler: Handler,
    listener: Listener,
) -> None:
    """Check that each message was handled, is a dead letter, or is still at the broker with a line in the log.

    A replay brings the dead letters back.
    """
    for words in (("list",), ("list", "--json"), ("show", "--limit", "100"), ("show", "--json", "--limit", "100")):
        code, _, found = command("dead", *words, carrier.url, queues["dead"])
        done.faults += found
        if code:
            done.faults.append(f"`dead {words[0]}` of our own letters ended with {code}")
    left = {found.case: found for found in carrier.take(queues["source"])}
    code, _, found = command("dead", "replay", carrier.url, queues["dead"])
    done.faults += found
    letters = carrier.take(queues["dead"])
    back = carrier.take(queues["source"])
    if code and not letters:
        done.faults.append(f"`dead replay` ended with {code}, and no letter stayed")
    counts = Counter(one.case for one in [*letters, *back])
    for case, made in sent.items():
        there = counts[case] + (case in left)
        if case in handler.handled:
            there += 1
        if there != 1:
            done.faults.append(f"{case} ({made.about}) is there {there} times, {handler.calls[case]} calls")
    for one in [*letters, *back]:
        if one.case in sent:
            reads = carrier.as_the_driver_reads if done.face == "dropin" else bytes
            done.faults += _differences(sent[one.case], control[one.case], one, reads)
        elif one.case in handler.handled:
            done.faults.append(f"{one.case or ascii(one.body[:60])} was handled, and is a dead letter")
        for key, value in one.headers:
            if (key.startswith(b"redeliver_") and not key.startswith(b"redeliver_original_")) or key in (
                b"dlqDeliveryFailureCause",
                b"x-first-death-reason",
            ):
                told = value.decode("utf-8", "replace")
                done.faults += [f for f in faults_in(f"header {key.decode()!a}", told) if f.startswith("a secret")]
    done.kept = len(left)
    if left and not any("cannot" in line or "not cop" in line for line in listener.lines):
        done.faults.append(f"{len(left)} stay in their source, and the log says nothing")


def _differences(made: Made, was: Found, now: Found, reads: Callable[[bytes], object]) -> list[str]:
    """Return the differences in the body, and in the user's own headers."""
    found = []
    if was.body != now.body:
        found.append(f"{made.case} ({made.about}): the body of {len(was.body)} bytes came out as {len(now.body)}")
    before, after = ([(k, reads(v)) for k, v in one.of_the_user(made.user)] for one in (was, now))
    if reads is not bytes:  # a driver's table has one value for a name
        kept = dict(after)
        before = [pair for pair in before if kept.get(pair[0]) == pair[1] or pair[0] not in kept]
        before, after = sorted(dict(before).items()), sorted(kept.items())
    if before != after:
        odd = [pair for pair in before if pair not in after][:2] or [pair for pair in after if pair not in before][:2]
        found.append(f"{made.case} ({made.about}): headers differ at {ascii(odd)[:300]}, {len(before)} were")
    return found


def _look_into_limbo(
    carrier: Carrier,
    done: Round,
    queues: dict[str, str],
    limbo: str,
    sent: dict[str, Made],
    control: dict[str, Found],
    handler: Handler,
) -> None:
    """Check that each message was handled, is parked, or was rejected and is a dead letter.

    A message that cannot be copied is held, and the broker has it again.
    """
    for words in (("list",), ("list", "--json"), ("show", "--limit", "100"), ("show", "--json", "--limit", "100")):
        code, _, found = command("limbo", *words, limbo)
        done.faults += found
        if code:
            done.faults.append(f"`limbo {words[0]}` ended with {code}")
    with LimboAdmin(limbo) as desk:
        rows = desk.show(10_000, None)
    bodies: Counter[bytes] = Counter(carrier.parked(row).body for row in rows)
    gone = handler.handled | {found.case for found in carrier.take(queues["dead"])}
    left = {found.case for found in carrier.take(queues["source"])}
    held = {case for case in left if case in sent and sent[case].about == "too large"}
    done.kept = len(held)
    for case, made in sent.items():
        if case not in gone | held and not bodies[control[case].body]:
            done.faults.append(f"{case} ({made.about}) is not in limbo, {handler.calls[case]} calls")


def _parked(limbo: str) -> int:
    with contextlib.suppress(Exception), LimboAdmin(limbo) as desk:
        return sum(desk.counts().values())
    return 0


def _look_at_strangers(
    carrier: Carrier, rng: Random, done: Round, queues: dict[str, str], sent: dict[str, Made]
) -> None:
    """Take the messages as they were sent for dead letters: look at them, make rows of them, and replay them.

    The messages go into a queue of their own. In the control's queue Artemis has seen their duplicate ids, and would
    drop them; the messages that have one id in common it has dropped there before.
    """
    queue, there = queues["strangers"], 0
    for made in sent.values():
        there += not carrier.send(queue, made)
    for words in (("list",), ("list", "--json"), ("show", "--limit", "100"), ("show", "--json", "--limit", "100")):
        code, out, found = command("dead", *words, carrier.url, queue)
        done.faults += found
        if code:
            done.faults.append(f"`dead {words[0]}` of strangers' messages ended with {code}")
    done.faults += _rows_of(carrier, queue)
    _, out, found = command("dead", "replay", "--json", carrier.url, queue)
    done.faults += found
    with contextlib.suppress(ValueError):  # a forged letter may name any queue that there is
        gone = [letter["to"] for letter in json.loads(out)["letters"] if letter["outcome"] == "replayed"]
        there -= sum(to not in [f"queue:{name}" for name in queues.values()] for to in gone)
    left = len(carrier.take(queue)) + sum(len(carrier.take(queues[word])) for word in ("source", "control", "dead"))
    if left < there:
        done.faults.append(f"{there} strangers' messages should be left by a replay, and {left} are")


def _rows_of(carrier: Carrier, queue: str) -> list[str]:
    """Run the part of a drain that reads letters, without Spark, and return what is wrong with it."""
    found: list[str] = []
    with BrokerClient(adapter_for(carrier.url)) as client:
        letters = client.browse(Destination(queue), 1000)
        rows = LetterRows(run_of(client._adapter, "run", Destination(queue), "broker"))
        for letter in letters:
            try:
                rows.add(letter)
                again = unpack(pack(letter), client._adapter.reader)
                if again.body != letter.body:
                    found.append(f"a letter's body differs after it was packed: {letter.body[:60]!r}")
            except NotCopyable:
                continue  # it stays in its queue, and the drain counts it
            except Exception as error:
                found.append(f"a row of the drain cannot be made: {error!r} for {letter.body[:60]!r}")
        try:
            rows.table()
        except Exception as error:
            found.append(f"rows of the drain are no table: {error!r}")
    return found
