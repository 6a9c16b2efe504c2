# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import copy
import math
import pickle
import re
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from redeliver_mw import RedeliveryPolicy, errors
from redeliver_mw.errors import (
    BrokerError,
    BrokerUnavailable,
    ConfigError,
    CredentialsRefused,
    DestinationMissing,
    LimboError,
    MissingExtra,
    NotCopyable,
    PolicyError,
    RedeliverError,
    Reject,
    RetryAfter,
    Signal,
)


@pytest.mark.parametrize("kind", [ConfigError, PolicyError, MissingExtra])
def test_your_input_ends_with_2(kind: type[RedeliverError]) -> None:
    assert kind("what").exit_code == 2


@pytest.mark.parametrize(
    "kind", [BrokerError, BrokerUnavailable, CredentialsRefused, DestinationMissing, LimboError, NotCopyable]
)
def test_the_world_ends_with_1(kind: type[RedeliverError]) -> None:
    assert kind("what").exit_code == 1


def test_an_error_says_where_what_and_the_cure_on_one_line() -> None:
    assert str(PolicyError("no such step", where="shop.toml:3", cure="Write 3:1000")) == (
        "shop.toml:3: no such step. Write 3:1000"
    )
    assert str(PolicyError("no such step", where="shop.toml:3")) == "shop.toml:3: no such step"
    assert str(PolicyError("no such step", cure="Write 3:1000")) == "no such step. Write 3:1000"
    assert str(PolicyError("no such step")) == "no such step"


def test_signals_are_no_errors_of_this_library() -> None:
    assert not issubclass(Signal, RedeliverError)
    assert not issubclass(RedeliverError, Signal)


def test_the_tree_in_the_docstring_names_every_exception() -> None:
    defined = {name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, Exception)}
    assert set(re.findall(r"[├└]── (\w+)", errors.__doc__ or "")) == defined


def test_reject_and_retry_after_carry_what_the_handler_wants() -> None:
    assert Reject("no such customer").reason == "no such customer"
    assert Reject().reason
    assert (RetryAfter(3).seconds, RetryAfter(3).count, RetryAfter(3, count=False).count) == (3.0, True, False)
    assert RetryAfter(0).seconds == 0.0


@pytest.mark.parametrize("seconds", [-1, -0.001, math.nan])
def test_a_wish_that_is_no_time_is_refused_where_it_is_made(seconds: float) -> None:
    with pytest.raises(ValueError, match="seconds >= 0"):
        RetryAfter(seconds)


def in_another_process(seconds: float) -> None:
    error = RetryAfter(seconds, count=False)
    error.add_note("the warehouse asked for it")
    raise error


def test_what_a_handler_raises_comes_back_from_a_process_pool() -> None:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        with pytest.raises(RetryAfter, match=r"again in 2\.5 s") as raised:
            pool.submit(in_another_process, 2.5).result()
        assert pool.submit(abs, -1).result() == 1  # an answer that cannot be read breaks the whole pool
    assert (raised.value.seconds, raised.value.count) == (2.5, False)
    assert raised.value.__notes__ == ["the warehouse asked for it"]


ALL = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, RedeliverError)]


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))])
def test_every_error_is_the_same_after_it_was_pickled_or_copied(again: Callable[[Exception], Exception]) -> None:
    with pytest.raises(PolicyError) as jmsjca:
        RedeliveryPolicy.parse("3")
    given = [kind("what", where="where", cure="Cure", code="option-value") for kind in ALL]
    for error in [*given, jmsjca.value, Reject("no"), RetryAfter(5.0)]:
        found = again(error)
        assert (type(found), str(found), found.args, vars(found)) == (type(error), str(error), error.args, vars(error))
