# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""tenacity's objects mean here what they mean there; tenacity itself is the measure."""

from __future__ import annotations

import random
import subprocess
import sys
from datetime import timedelta
from typing import Any

import pytest
import tenacity as t

from redeliver_mw.errors import PolicyError
from redeliver_mw.policy import Accept, DeadLetter, Redeliver, RedeliveryPolicy

COUNTS = [*range(1, 41), 100, 1000, 5000]


def state(failures: int, elapsed: float = 0.0) -> t.RetryCallState:
    call = t.RetryCallState(t.Retrying(), None, (), {})
    call.attempt_number = failures
    call.start_time, call.outcome_timestamp = 0.0, elapsed  # of the clock's own numbers the difference is not exact
    return call


def rest(wait: Any, failures: int) -> Redeliver:
    decision = RedeliveryPolicy(dead_after=None, backoff=wait).decide(failures)
    assert isinstance(decision, Redeliver)
    return decision


@pytest.mark.parametrize(
    "wait",
    [
        t.wait_fixed(2.5),
        t.wait_fixed(timedelta(minutes=1)),
        t.wait_none(),
        t.wait_incrementing(start=1, increment=2.5, max=20),
        t.wait_incrementing(start=10, increment=-3),
        t.wait_exponential(max=60),
        t.wait_exponential(multiplier=0.5, min=2, max=90),
        t.wait_exponential(multiplier=3, exp_base=1.5, max=1e6),
        t.wait_exponential(multiplier=1, min=70, max=60),
        t.wait_exponential(multiplier=5, exp_base=0.5, min=1),
        t.wait_chain(t.wait_fixed(1), t.wait_fixed(7), t.wait_exponential(max=300)),
        t.wait_fixed(3) + t.wait_incrementing(0, 1, 5),
        sum([t.wait_fixed(1), t.wait_fixed(2)]),
    ],
)
def test_a_wait_without_jitter_is_as_long_as_in_tenacity(wait: Any) -> None:
    for failures in COUNTS:
        expected = wait(state(failures))
        assert rest(wait, failures) == Redeliver(expected, expected, expected)


@pytest.mark.parametrize(
    "wait",
    [
        t.wait_random(1, 4),
        t.wait_random_exponential(multiplier=0.5, max=60),
        t.wait_random_exponential(min=2, max=60),
        t.wait_exponential_jitter(max=60, jitter=3),
        t.wait_exponential_jitter(multiplier=2, exp_base=3, max=500, jitter=10, min=4),
        t.wait_fixed(3) + t.wait_random(0, 2),
        t.wait_chain(t.wait_fixed(1), t.wait_random(2, 5)),
    ],
)
@pytest.mark.parametrize(("end", "share"), [("low", 0.0), ("high", 1.0)])
def test_a_wait_with_jitter_reaches_as_far_as_in_tenacity(
    wait: Any, end: str, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = {}
    with monkeypatch.context() as patch:
        patch.setattr(random, "random", lambda: share)
        patch.setattr(random, "uniform", lambda a, b: a + (b - a) * share)
        for failures in COUNTS:
            expected[failures] = wait(state(failures))
    for failures in COUNTS:
        assert getattr(rest(wait, failures), end) == expected[failures]


@pytest.mark.parametrize(
    ("wait", "base"),
    [
        (t.wait_random(1, 4), 1.0),
        (t.wait_fixed(3) + t.wait_random(0, 2), 3.0),
        (t.wait_exponential_jitter(max=60, jitter=3), 4.0),
        (t.wait_random_exponential(max=60), 4.0),
    ],
)
def test_before_jitter_it_is_the_part_that_does_not_vary(wait: Any, base: float) -> None:
    assert rest(wait, 3).base == base


def test_a_drawing_wait_is_never_called_so_deciding_twice_is_the_same() -> None:
    policy = RedeliveryPolicy(backoff=t.wait_random_exponential(max=60))
    before = random.getstate()
    assert policy.decide(4) == policy.decide(4) == Redeliver(8.0, 0.0, 8.0)
    assert random.getstate() == before


@pytest.mark.parametrize(
    "stop",
    [
        t.stop_after_attempt(4),
        t.stop_never,
        t.stop_after_delay(30),
        t.stop_after_delay(timedelta(seconds=30)),
        t.stop_after_attempt(4) | t.stop_after_delay(30),
        t.stop_after_attempt(4) & t.stop_after_delay(30),
        (t.stop_after_attempt(2) & t.stop_after_delay(30)) | t.stop_after_attempt(6),
        t.stop_never | t.stop_after_attempt(3),
        t.stop_never & t.stop_after_attempt(3),
    ],
)
def test_a_stop_is_met_when_tenacity_says_so(stop: Any) -> None:
    policy = RedeliveryPolicy(dead_after=stop)
    for failures in range(1, 9):
        for elapsed in (0.0, 29.0, 30.0, 31.0):
            dead = isinstance(policy.decide(failures, elapsed), DeadLetter)
            assert dead == stop(state(failures, elapsed)), (failures, elapsed)


@pytest.mark.parametrize(
    ("stop", "limit"),
    [
        (t.stop_after_attempt(4), 4),
        (t.stop_never, None),
        (t.stop_after_delay(30), None),
        (t.stop_after_attempt(4) | t.stop_after_delay(30), 4),
        (t.stop_after_attempt(4) & t.stop_after_delay(30), None),
        (t.stop_after_attempt(4) & t.stop_after_attempt(6), 6),
        (t.stop_after_attempt(4) | t.stop_after_attempt(6), 4),
    ],
)
def test_dead_after_is_the_count_that_is_the_end_however_fast(stop: Any, limit: int | None) -> None:
    assert RedeliveryPolicy(dead_after=stop).dead_after == limit


def test_a_limit_in_time_bounds_the_longest_delay() -> None:
    # 1 + 2 + ... + 16 = 31 < 60 <= 63: failure 6 is still early enough for a delay of 32 s
    policy = RedeliveryPolicy(dead_after=t.stop_after_delay(60), backoff=t.wait_exponential())
    assert policy.longest_delay == 32.0


@pytest.mark.parametrize(
    "retry",
    [
        t.retry_if_exception_type(OSError),
        t.retry_if_exception_type((KeyError, OSError)),
        t.retry_if_not_exception_type(OSError),
        t.retry_unless_exception_type(OSError),
        t.retry_if_exception(lambda error: "again" in str(error)),
        t.retry_if_exception_message("again"),
        t.retry_if_exception_message(match="aga.n"),
        t.retry_if_not_exception_message("again"),
        t.retry_if_exception_type(OSError) | t.retry_if_exception_message("again"),
        t.retry_if_exception_type(OSError) & t.retry_if_exception_message("again"),
        t.retry_always,
        t.retry_never,
    ],
)
def test_a_retry_matches_what_it_matches_in_tenacity(retry: Any) -> None:
    for error in (OSError("again"), OSError("no"), KeyError("x"), ValueError("again"), ValueError("")):
        call = state(1)
        call.set_exception((type(error), error, None))
        wanted = retry(call)
        assert isinstance(RedeliveryPolicy(retry_on=retry).decide(1, error=error), Redeliver) == wanted
        assert isinstance(RedeliveryPolicy(fatal=retry).decide(1, error=error), DeadLetter) == wanted
        assert (RedeliveryPolicy(ignore=retry).decide(1, error=error) == Accept()) == wanted


def no_stop(_call: Any) -> bool:
    """Return True when tenacity calls it. Nobody can read what such a function means."""
    return True


class MyWait(t.wait_exponential):
    """Is a user's own wait: nobody can read what it computes."""


class MyRetry(t.retry_if_exception_type):
    """Is a user's own retry."""


@pytest.mark.parametrize(
    ("given", "where", "name"),
    [
        ({"backoff": t.wait_exception(lambda error: 1.0)}, "backoff", "wait_exception"),
        ({"backoff": MyWait()}, "backoff", "MyWait"),
        ({"backoff": t.wait_fixed(1) + MyWait()}, "backoff, a part of wait_combine", "MyWait"),
        ({"backoff": t.wait_chain(MyWait())}, "backoff, a part of wait_chain", "MyWait"),
        ({"backoff": t.stop_after_attempt(3)}, "backoff", "stop_after_attempt"),
        ({"backoff": t.wait_fixed(-1)}, "backoff", "delay"),
        ({"backoff": t.wait_random(4, 1)}, "backoff", "from 4 s to 1 s"),
        ({"backoff": t.wait_exponential(multiplier=-1)}, "backoff", "initial"),
        ({"dead_after": t.stop_before_delay(5)}, "dead_after", "stop_before_delay"),
        ({"dead_after": t.stop_after_attempt(0)}, "dead_after", "0"),
        ({"dead_after": t.stop_any(t.stop_never, no_stop)}, "dead_after, a part of stop_any", "no_stop"),
        ({"dead_after": t.wait_fixed(3)}, "dead_after", "wait_fixed"),
        ({"retry_on": t.retry_if_result(bool)}, "retry_on", "retry_if_result"),
        ({"fatal": MyRetry(OSError)}, "fatal", "MyRetry"),
        ({"ignore": t.retry_if_exception_type(OSError) | MyRetry(OSError)}, "ignore, a part of retry_any", "MyRetry"),
    ],
)
def test_an_object_that_cannot_be_read_is_refused_by_name_with_place_and_cure(
    given: dict[str, Any], where: str, name: str
) -> None:
    with pytest.raises(PolicyError) as caught:
        RedeliveryPolicy(**given)
    assert caught.value.where == where
    assert name in caught.value.what
    assert caught.value.cure


def test_tenacity_is_not_imported_by_a_policy_that_needs_none() -> None:
    code = (
        "import sys; from redeliver_mw.policy import RedeliveryPolicy;"
        "RedeliveryPolicy().decide(3); RedeliveryPolicy.parse('3:1000; 5:delete');"
        "print([name for name in ('tenacity', 'typer', 'rich') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONPATH": ":".join(sys.path)}
    )
    assert done.stdout.strip() == "[]"
