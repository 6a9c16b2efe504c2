# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Reads the stacks of Python, Java and .NET as their frameworks print them, and normalises their frames. Pure.

The frames are `module:function` or `Class.method`, outermost first, without line numbers, paths, addresses and what a
compiler numbers, so that the same failure has the same frames on every machine:

    File "/srv/shop/tasks.py", line 12, in charge              ->  tasks:charge
    at com.shop.Orders.lambda$take$0(Orders.java:31)           ->  com.shop.Orders.lambda$take$#
    at Shop.Taker.<Consume>d__5.MoveNext() in /s.cs:line 42    ->  Shop.Taker.Consume
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ...failure import MAX_FRAMES
from ...redaction import label, safe, trim_utf8

_PYTHON_FRAME = re.compile(r' {1,8}File "([^"\n]{0,1000})", line \d{1,10}, in (.{1,300})')
# "at" is translated by .NET. Java puts the module before the class; .NET puts the file behind the arguments.
_MANAGED_FRAME = re.compile(r"[ \t]{1,8}\w{1,10} (?:[\w.@-]{1,200}/){0,3}([^\s(][^(\n]{0,400})\([^)\n]{0,2000}\)")
_CAUSE = re.compile(r"Caused by: ([\w.$]{1,300})(?::|$)")
_RAISED = re.compile(r"([\w.$`+]{1,300})(?:: (.*))?$")
_NUMBERED = re.compile(r"0x[0-9a-fA-F]+|\d+")
_STATE_MACHINE = re.compile(r"<(\w{1,200})>d(?:__\d+)?(?:`\d+)?\.MoveNext$")
_INSTALLED = re.compile(r"(?:site|dist)-packages[\\/](.+)$")


@dataclass(frozen=True, slots=True)
class PrintedStack:
    """Holds a stack as it was read: the raised type and message as far as the text tells them, and the frames.

    `cause_type` is the type of the first `Caused by` of Java.
    """

    type: str = ""
    message: str = ""  # redacted
    cause_type: str = ""
    frames: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> PrintedStack | None:
        """Return the stack in a text; None for an empty one. Never raises; linear time."""
        if not text.strip():
            return None
        lines = [line[:4096] for line in text.splitlines()]
        if any(_PYTHON_FRAME.match(line) for line in lines):
            return _python(lines)
        return _managed(lines)


def _python(lines: list[str]) -> PrintedStack:
    """Return a Python traceback, whose last line that is not indented names the raised exception."""
    last, frames = 0, []
    for at, line in enumerate(lines):
        if found := _PYTHON_FRAME.match(line):
            last = at
            frames.append(f"{_module(found[1])}:{_plain(found[2].strip())}")
    raised = next((found for line in lines[last + 1 :] if (found := _RAISED.match(line))), None)
    kind, message = (raised[1].rpartition(".")[2], raised[2] or "") if raised else ("", "")
    return PrintedStack(label(kind), trim_utf8(safe(message), 2048), "", _kept(frames))


def _module(path: str) -> str:
    """Return the module of a file: with its package for an installed one, else its own name, as folders differ."""
    installed = _INSTALLED.search(path)
    parts = re.split(r"[\\/]", installed[1] if installed else path)
    if parts[-1].removesuffix(".py") == "__init__" and len(parts) > 1:
        parts.pop()
    named = parts if installed else parts[-1:]
    return _plain(".".join(named).removesuffix(".py"))


def _managed(lines: list[str]) -> PrintedStack:
    """Return a stack of Java or .NET, which print the innermost frame first, and each cause in a block of its own."""
    raised = _RAISED.match(lines[0].strip())
    frames, block, cause_type = list[str](), list[str](), ""
    for line in lines:
        if cause := _CAUSE.match(line.strip()):
            cause_type = cause_type or cause[1]
            frames += [*reversed(block), f"^ {cause[1].rpartition('.')[2]}"]
            block = []
        elif found := _MANAGED_FRAME.match(line):
            block.append(_plain(_STATE_MACHINE.sub(r"\1", found[1])))
    frames += reversed(block)
    kind, message = (raised[1], raised[2] or "") if raised else ("", "")
    return PrintedStack(label(kind), trim_utf8(safe(message), 2048), label(cause_type), _kept(frames))


def _plain(name: str) -> str:
    return label(_NUMBERED.sub("#", name))


def _kept(frames: list[str]) -> tuple[str, ...]:
    """Return the last frames, each once at its last place: how deep a recursion went does not count."""
    return tuple(_once(frames))[-MAX_FRAMES:]


def _once(frames: list[str]) -> Iterator[str]:
    last = {frame: at for at, frame in enumerate(frames)}
    return (frame for at, frame in enumerate(frames) if last[frame] == at)
