# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tells what kind of function a user has given, before and after it is called.

A call of a coroutine function or of a generator function runs none of its lines. A message whose handler was "called"
like that would count as handled, and be lost. So functions are looked at when they are given, and what a plain function
returns is looked at after the call, since a decorator or a lambda may hide a coroutine function.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from types import FunctionType
from typing import Any

from .errors import ConfigError


def is_async(function: object) -> bool:
    """Return whether this is a coroutine function, also behind partials, or an object with an async call.

    A plain function around a coroutine function is a plain one: it may await it in a loop of its own, or return the
    coroutine.
    """
    function = _without_partials(function)
    if inspect.isfunction(function) or inspect.ismethod(function):
        return inspect.iscoroutinefunction(function)
    return callable(function) and inspect.iscoroutinefunction(function.__call__)


def is_generator(function: object) -> bool:
    """Return whether this is a generator function, plain or async, or an object with such a call.

    A generator function behind partials is one, too.
    """
    plain = _without_partials(function)
    if not (inspect.isfunction(plain) or inspect.ismethod(plain)):
        plain = type(plain).__call__ if callable(plain) else None
    return inspect.isgeneratorfunction(plain) or inspect.isasyncgenfunction(plain)


def accepts(function: Callable[..., object], arguments: int) -> bool:
    """Return whether the function can be called with that many positional arguments; True where that is not known."""
    plain = _without_partials(function)
    if inspect.ismethod(plain):
        plain = plain.__func__
    elif not isinstance(plain, FunctionType | type):
        plain = type(plain).__call__ if callable(plain) else None
    if hasattr(plain, "__signature__"):  # of somebody who passes further arguments, and may not say so
        return True
    try:
        signature = inspect.signature(function, follow_wrapped=False)
    except (TypeError, ValueError):
        return True
    try:
        signature.bind(*[None] * arguments)
    except TypeError:
        return False
    return True


def check_plain(function: object, option: str, *, where: str = "") -> None:
    """Raise ConfigError for what is no function, and for functions of which a call runs nothing."""
    if not callable(function):
        why = "is no function"
    elif is_async(function):
        why = "is a coroutine function, and would never be awaited"
    elif is_generator(function):
        why = "is a generator function, and a call runs none of its lines"
    else:
        return
    what = f"{option}={function!r:.200} {why}"
    raise ConfigError(what, where=where, cure="Give a plain function", code="function-not-usable")


def check_run(result: object) -> None:
    """Raise TypeError if a plain function has returned a coroutine or a generator, of which no line has run."""
    if isinstance(result, Coroutine):
        result.close()  # else Python warns of it once more
        raise TypeError("it returned a coroutine, which nobody awaits here: use the coroutine function itself")
    if isinstance(result, Generator | AsyncGenerator):
        raise TypeError("it returned a generator, of which nobody runs a line: write it without yield")


def _without_partials(function: Any) -> Any:
    while isinstance(function, functools.partial):
        function = function.func
    return function
