# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Raises what a hostile handler raises."""

from __future__ import annotations

from random import Random
from typing import Any, NoReturn

from redeliver_mw import Reject, RetryAfter
from tests.hostile.texts import ESCAPES, secret, telling, text


class MuteError(Exception):
    """Cannot be turned into a text."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class StrangeError(Exception):
    """Turns itself into something else than a text."""

    def __str__(self) -> Any:
        return 7


def fail(rng: Random) -> NoReturn:
    """Raise something, another one for each state of `rng`."""
    escape, hidden = rng.choice(ESCAPES), telling(rng)
    raisers = (
        _plain,
        _chained,
        _grouped,
        _noted,
        _named,
        _cyclic,
        _deep,
        _system,
    )
    rng.choice(raisers)(rng, escape, hidden)
    raise AssertionError("a raiser has not raised")


def _plain(rng: Random, escape: str, hidden: str) -> NoReturn:
    told = f"{text(rng)} {escape} {hidden}"
    errors: tuple[BaseException, ...] = (
        ValueError(told),
        KeyError(told),
        RuntimeError(f"{told} " * 2000),
        Exception(told, {"password": secret(rng)}, b"\xff"),
        OSError(5, told, f"/home/{escape}/x"),
        UnicodeDecodeError("utf-8", b"\xff" * 10, 0, 1, told),
        ValueError("\ud800" + hidden),
        SyntaxError(told, ("f\x1b[2J.py", 1, 1, hidden, 1, 2)),
        MuteError(told),
        StrangeError(told),
        Reject(told),
        RetryAfter(0.05),
        AssertionError(),
        StopIteration(told),
        MemoryError(told),
        Exception(*[told] * 50),
    )
    raise rng.choice(errors)


def _chained(rng: Random, escape: str, hidden: str) -> NoReturn:
    try:
        raise ConnectionError(f"{escape} {hidden}")
    except ConnectionError as error:
        raise LookupError(escape) from error


def _grouped(rng: Random, escape: str, hidden: str) -> NoReturn:
    raise ExceptionGroup(
        hidden, [ValueError(escape), ExceptionGroup(escape, [OSError(hidden)]), KeyError(telling(rng))]
    )


def _noted(rng: Random, escape: str, hidden: str) -> NoReturn:
    error = ValueError(escape)
    error.add_note(hidden)
    error.add_note(f"{escape}\n{telling(rng)}")
    raise error


def _named(rng: Random, escape: str, hidden: str) -> NoReturn:
    kind: type[Exception] = type(f"Bad{escape}" if "\0" not in escape else "Bad", (Exception,), {"__module__": escape})
    raise kind(hidden)


def _cyclic(rng: Random, escape: str, hidden: str) -> NoReturn:
    first, second = ValueError(hidden), ValueError(escape)
    first.__cause__, second.__cause__ = second, first
    raise first


def _deep(rng: Random, escape: str, hidden: str) -> NoReturn:
    def down() -> NoReturn:
        down()

    try:
        down()
    except RecursionError as error:
        raise ValueError(f"{escape}{hidden}") from error


def _system(rng: Random, escape: str, hidden: str) -> NoReturn:
    exec(compile("raise ValueError(told)", f"<{escape}>", "exec"), {"told": f"{escape} {hidden}"})
    raise AssertionError
