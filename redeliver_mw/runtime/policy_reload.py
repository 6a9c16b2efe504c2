# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Reloads policy files that change while an App runs: checked once a second, refused or applied as a whole.

A new version is treated like the first: the file is parsed, each plan that follows from it is checked, the broker is
asked about everything new in it. Only then does the version apply, to messages that arrive from then on: each delivery
keeps the plan that applied when it arrived. All of this happens on the adapter's thread, except for the parsing, which
may take a while.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from ..adapter.protocol import Adapter, OnAnswer, SupportsLadderExtension, Verdict
from ..clock import Clock
from ..errors import ERROR_CODE, ConfigError, PolicyError, RedeliverError
from ..journal.consumer_info import ConsumerInfo
from ..journal.recorder import Recorder
from ..journal.records import PolicyRecord
from ..message import Destination
from ..policy import PolicyMap, RedeliveryPolicy
from ..policy.policy_file import PolicyFile, Reading
from ..redaction import clean, redact, trim_utf8
from ..redelivery.plan import SourcePlan
from ..telemetry.finding_log import log_findings
from .handler import HandlerSpec
from .policy_checks import check_together, ladder_of, target_refused, targets_of
from .policy_findings import FindingRules

log = logging.getLogger("redeliver_mw")
LOOK_EVERY = 1.0  # seconds
ERROR_BYTES = 4096  # of an error's text in a record
NAMED = 5  # sources that a log line lists

About = Destination | SourcePlan  # a dead-letter target, or a plan whose copies wait longer than before
ReloadQuestion = tuple[About, Callable[[OnAnswer], object]]
ReloadAnswer = tuple[About, Verdict, str]


@dataclass(frozen=True, slots=True)
class ActivePlans:
    """Holds what the start has set up, and a reload changes: `plans` and `ladders` (seconds) by source."""

    plans: dict[Destination, SourcePlan]
    ladders: dict[Destination, float]
    # raises ConfigError for a policy that is not possible here
    plan: Callable[[HandlerSpec, RedeliveryPolicy], SourcePlan]
    declare: bool  # make missing dead-letter targets
    rules: FindingRules


class PolicyReloader:
    """Watches the files among the policies of `specs`.

    `aside`: files are read on a separate thread, otherwise at once.
    """

    def __init__(
        self,
        adapter: Adapter,
        specs: Iterable[HandlerSpec],
        stage: ActivePlans,
        recorder: Recorder,
        consumer_info: ConsumerInfo,
        clock: Clock,
        *,
        aside: bool,
    ) -> None:
        self._adapter, self._stage, self._aside = adapter, stage, aside
        self._recorder, self._consumer_info, self._clock = recorder, consumer_info, clock
        self._files: dict[PolicyFile, list[HandlerSpec]] = {}
        for spec in specs:
            if isinstance(spec.policy, PolicyFile):
                self._files.setdefault(spec.policy, []).append(spec)
        self._busy: set[PolicyFile] = set()  # being read, or checked with the broker
        self._unasked: dict[PolicyFile, Reading] = {}  # the broker did not answer
        self._refused: dict[PolicyFile, str] = {}  # the content that was refused last
        self._stopped = False

    def start(self) -> None:
        if self._files:
            self._adapter.call_later(LOOK_EVERY, self._look)

    def stop(self) -> None:
        """Stop reloading; a file that is being read is ignored. Thread-safe."""
        self._stopped = True

    # -- checking a file, and what follows: on the adapter's thread ------------------------------------

    def _look(self) -> None:
        if self._stopped:
            return
        try:
            for file in [file for file in self._files if file not in self._busy]:
                self._look_at(file)
        finally:
            self._adapter.call_later(LOOK_EVERY, self._look)

    def _look_at(self, file: PolicyFile) -> None:
        match file.look():
            case "changed":
                self._read(file)
            case "gone":
                log.warning("%s: the policy file is not there any more; its last version still holds", file)
            case "same" if file in self._unasked:
                self._consider(file, self._unasked.pop(file))

    def _read(self, file: PolicyFile) -> None:
        if not self._aside:
            return self._was_read(file, file.read())

        def read() -> None:
            reading = file.read()
            if not self._stopped:
                self._adapter.call_later(0.0, partial(self._was_read, file, reading))

        self._busy.add(file)
        try:
            threading.Thread(target=read, name="redeliver-policy-file", daemon=True).start()
        except RuntimeError as error:  # no more threads are available: the next check tries again
            self._busy.discard(file)
            log.debug("%s: %s", file, error)

    def _was_read(self, file: PolicyFile, reading: Reading) -> None:
        self._busy.discard(file)
        if self._stopped or reading.stamp is None:
            return
        file.noted(reading)
        self._unasked.pop(file, None)
        if reading.content == file.content:
            self._refused.pop(file, None)
        elif reading.content != self._refused.get(file):
            self._consider(file, reading)

    def _consider(self, file: PolicyFile, reading: Reading, *, asked: bool = False) -> None:
        try:
            found = self._findings(file, reading)
            fresh = self._fresh(file, reading)
            check_together(self._stage.plans | fresh)
        except ConfigError as error:
            self._refused[file] = reading.content
            return self._refuse(file, reading, error)
        questions = [] if asked else self._questions(fresh)
        if questions:
            self._ask(file, reading, questions)
        else:
            log_findings(found)
            self._apply(file, reading, fresh)

    def _findings(self, file: PolicyFile, reading: Reading) -> list[str]:
        """Return what is to be logged about a new version. Raises ConfigError if it cannot be read, or is refused."""
        sources = [spec.source for spec in self._files[file]]
        return self._stage.rules.check(_policies_in(reading), sources, str(file))

    def _fresh(self, file: PolicyFile, reading: Reading) -> dict[Destination, SourcePlan]:
        """Return a plan for each source whose policy changes. Raises ConfigError about all that are not possible."""
        policies = _policies_in(reading)
        fresh: dict[Destination, SourcePlan] = {}
        wrong: list[RedeliverError] = []
        for spec in self._files[file]:
            policy = policies.resolve(spec.source.name, spec.source.kind)
            if policy == self._stage.plans[spec.source].policy:
                continue
            try:
                plan = self._stage.plan(spec, policy)
                self._check_ladder(plan)
                fresh[spec.source] = plan
            except ConfigError as error:
                wrong.append(error)
        if wrong:
            raise _all_of(wrong)
        return fresh

    # -- what the broker is asked -------------------------------------------------------------------

    def _too_short(self, plan: SourcePlan) -> bool:
        """Return whether its copies would wait in helper queues that do not exist yet."""
        rungs = plan.ways.schedule.rungs if plan.ways.schedule is not None else ()
        return bool(rungs) and rungs[-1] > self._stage.ladders[plan.source]

    def _check_ladder(self, plan: SourcePlan) -> None:
        if self._too_short(plan) and not isinstance(self._adapter, SupportsLadderExtension):
            longest = self._stage.ladders[plan.source]
            raise PolicyError(
                f"delays up to {ladder_of(plan):g} s need helper queues that only a start makes",
                where=str(plan.source),
                cure=f"Restart the app, or keep the delays within {longest:g} s",
                code="reload-needs-restart",
            )

    def _questions(self, fresh: dict[Destination, SourcePlan]) -> list[ReloadQuestion]:
        """Return questions about new dead-letter targets, and about plans whose delays need more helper queues."""
        questions: list[ReloadQuestion] = [
            (target, partial(self._adapter.check, target, declare=self._stage.declare))
            for target in targets_of(fresh.values()) - targets_of(self._stage.plans.values())
        ]
        for plan in fresh.values():
            if self._too_short(plan) and isinstance(self._adapter, SupportsLadderExtension):
                questions.append((plan, partial(self._adapter.prolong, plan.source, ladder_of(plan))))
        return questions

    def _ask(self, file: PolicyFile, reading: Reading, questions: list[ReloadQuestion]) -> None:
        answers: list[ReloadAnswer] = []

        def answered(about: About, verdict: Verdict, why: str) -> None:
            answers.append((about, verdict, why))
            if isinstance(about, SourcePlan) and verdict == "ok":
                self._stage.ladders[about.source] = ladder_of(about)
            if len(answers) == len(questions):
                self._busy.discard(file)
                self._answered(file, reading, answers)

        self._busy.add(file)
        for about, ask in questions:
            ask(partial(answered, about))

    def _answered(self, file: PolicyFile, reading: Reading, answers: list[ReloadAnswer]) -> None:
        wrong = [self._why(about, why) for about, verdict, why in answers if verdict == "refused"]
        if self._stopped:
            return
        if wrong:
            self._refuse(file, reading, _all_of(wrong))
        elif any(verdict == "silent" for _, verdict, _ in answers):
            self._unasked[file] = reading  # the next check asks again
        else:
            self._consider(file, reading, asked=True)

    def _why(self, about: About, why: str) -> RedeliverError:
        if isinstance(about, Destination):
            return target_refused(about, why, self._adapter.broker)
        return PolicyError(
            f"the helper queues for delays up to {ladder_of(about):g} s cannot be had: {why}",
            where=str(about.source),
            cure="Restart the app once they can, or shorten the delays",
            code="reload-needs-restart",
        )

    # -- the outcome ---------------------------------------------------------------------------------

    def _apply(self, file: PolicyFile, reading: Reading, fresh: dict[Destination, SourcePlan]) -> None:
        old = {source: self._stage.plans[source].policy.version for source in fresh}
        new = {source: plan.policy.version for source, plan in fresh.items()}
        self._stage.plans.update(fresh)
        file.take(reading)
        self._refused.pop(file, None)
        if not fresh:
            return log.debug("%s: what it says of the sources here is the same as before", file)
        changes = [f"{source} {old[source]} -> {new[source]}" for source in fresh]
        more = f" and {len(changes) - NAMED} more" if len(changes) > NAMED else ""
        log.info("%s: the new version holds for what arrives from now on: %s%s", file, ", ".join(changes[:NAMED]), more)
        self._note(file, reading, old, new)

    def _refuse(self, file: PolicyFile, reading: Reading, error: RedeliverError) -> None:
        if not error.where.startswith(str(file)):
            error.where = f"{file}: {error.where}" if error.where else str(file)
        text = trim_utf8(redact(clean(str(error))), ERROR_BYTES)
        what = "the new version of a policy file is refused whole, the version before still holds: %s"
        log.error(what, text, extra={ERROR_CODE: error.code})
        old = {spec.source: self._stage.plans[spec.source].policy.version for spec in self._files[file]}
        self._note(file, reading, old, error=text)

    def _note(
        self,
        file: PolicyFile,
        reading: Reading,
        old: dict[Destination, str],
        new: dict[Destination, str] | None = None,
        error: str | None = None,
    ) -> None:
        consumer_info = self._consumer_info
        self._recorder.note(
            PolicyRecord(
                ts_us=self._clock.now().us,
                app=consumer_info.app,
                host=consumer_info.host,
                broker=consumer_info.broker,
                broker_kind=consumer_info.broker_kind,
                file=str(file),
                content=reading.content or None,
                outcome="refused" if new is None else "applied",
                sources=[str(source) for source in old],
                old_versions=list(old.values()),
                new_versions=None if new is None else list(new.values()),
                error=error,
            )
        )


def _policies_in(reading: Reading) -> PolicyMap:
    """Return the policies of a new version. Raises ConfigError if it could not be read."""
    if reading.policies is None:
        raise reading.error or PolicyError("it cannot be read", code="policy-file")
    return reading.policies


def _all_of(errors: list[RedeliverError]) -> RedeliverError:
    """Return one error that reports all of them."""
    return (
        errors[0]
        if len(errors) == 1
        else PolicyError("; ".join(str(error) for error in errors), code="policy-problems")
    )
