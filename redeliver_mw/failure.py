# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""What went wrong, told without secrets: type, message, traceback, and a fingerprint that names the bug.

The fingerprint is a hash of the exception's type and of `frames`, and of nothing else: no message, no
line number, no address, no path. The same bug therefore has the same print on every machine and in every run.
"""

from __future__ import annotations

import hashlib
import re
import textwrap
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import CodeType, TracebackType
from typing import Any, TypeVar

from .redaction import label, labels, redact, redact_url, safe, trim_middle, trim_utf8

__all__ = ["CRASH", "Failure", "describe", "fingerprint", "redact", "redact_url", "trim_utf8"]

MAX_TEXT = 64 * 1024  # bytes of UTF-8: of a message, and of a whole traceback
MAX_FRAMES = 30
_READ = 72 * 1024  # characters of a message that are looked at
_IN_TEXT = 8 * 1024  # bytes of one message inside a traceback: frames are worth more than its tail
_CHAIN = 12  # exceptions of one chain, the raised one counted
_SHOWN = 60  # frames of one exception in the text, the innermost
_MEMBERS = 8  # exceptions of one group
_STACKS = 512  # of which is kept what was made of them

_OURS = ("redeliver_mw", "redeliver_stomp", "redeliver_pika", "redeliver_proton")
_INLINED = re.compile(r"(?:\.<locals>)?\.<(?:listcomp|dictcomp|setcomp|genexpr)>")
_VARYING = re.compile(r"0x[0-9a-fA-F]+|[0-9a-fA-F]{8}-?(?:[0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}|\d{4,}")


_DIRECT = "\nThe above exception was the direct cause of the following exception:\n\n"
_DURING = "\nDuring handling of the above exception, another exception occurred:\n\n"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Failure:
    """An exception in words. All strings can be written as UTF-8 and hold no NUL.

    `type` is the class's name; `message` is redacted, at most 64 KiB; `fingerprint` 16 hex digits;
    `frames` at most 30 of `module:function`, outermost first, behind those of the exception raised the
    ones of its causes, each after a line `^ Type`; `text` is the redacted traceback, at most 64 KiB.
    """

    type: str
    message: str
    fingerprint: str
    frames: list[str]
    text: str


def describe(error: BaseException) -> Failure:
    """`error` as a `Failure`. Never raises, whatever the exception's own methods do. Any thread."""
    kind = _type_name(error)
    message = _message(error)
    nothing: list[str] = []
    frames = _safely(lambda: _fingerprint_frames(error), nothing)
    short = trim_utf8(message, _IN_TEXT)
    line = f"{kind}: {short}" if short else kind
    text = _safely(lambda: _text(error, line), line)
    return Failure(kind, trim_utf8(message, MAX_TEXT), fingerprint(kind, frames), frames, text)


def fingerprint(kind: str, frames: list[str]) -> str:
    """16 hex digits of a class name and normalised frames."""
    return hashlib.blake2b("\n".join([kind, *frames]).encode(), digest_size=8).hexdigest()


CRASH = Failure(
    "ProcessDied",
    "the process died while this message, and no other, was in a handler",
    fingerprint("ProcessDied", []),
    [],
    "",
)


def _safely(work: Callable[[], T], instead: T) -> T:
    """The result of `work`, or `instead`: an exception that fails to describe itself is still a failure."""
    try:
        return work()
    except BaseException:  # even an exit raised by a `__str__` must not end the message's story
        return instead


def _type_name(error: BaseException) -> str:
    return label(_safely(lambda: str(type(error).__name__), "Exception"))


def _message(error: BaseException, read: int = _READ) -> str:
    """`str(error)`, at most about `read` characters of it, redacted before it is cut to its final length."""
    text = _safely(lambda: str.__str__(str(error)), f"<{_type_name(error)} whose __str__ fails>")
    if len(text) > read:
        # Half a secret at the cut would no longer look like one: go back to a space.
        space = max(text.rfind(" ", read - 4096, read), text.rfind("\n", read - 4096, read))
        text = text[: space if space > 0 else read] + " …"
    return safe(text)


def _chain(error: BaseException) -> list[BaseException]:
    """The exception and what it came from, the raised one first; rings and long chains end."""
    chain: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and not any(link is seen for seen in chain) and len(chain) < _CHAIN:
        chain.append(link)
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
    return chain


def _members(error: BaseException) -> list[BaseException]:
    return list(error.exceptions[:_MEMBERS]) if isinstance(error, BaseExceptionGroup) else []


# The frames that make the fingerprint


def _fingerprint_frames(error: BaseException) -> list[str]:
    """The raised exception's frames, then its causes', at most 30 in all, shared out evenly."""
    chain = _chain(error)[: MAX_FRAMES // 3]
    share = MAX_FRAMES // len(chain) - (len(chain) > 1)
    frames: list[str] = []
    for place, link in enumerate(chain):
        if place:
            frames.append(f"^ {_type_name(link)}")
        # A group's members come in the order in which tasks happened to fail: sorted, each by its last frame.
        members = sorted({_member_line(member) for member in _members(link)})[: share // 2]
        own = _frames(link.__traceback__)
        frames += own[max(0, len(own) - (share - len(members))) :] + members
    return frames


def _member_line(error: BaseException) -> str:
    return " ".join(["|", _type_name(error), *_frames(error.__traceback__)[-1:]])


def _frames(trace: TracebackType | None) -> list[str]:
    """`module:function`, outermost first, each once and where it came last: recursion has no depth here.

    Frames of this library in front of the handler's are left out: App and drop-in give the same print.
    """
    return [] if trace is None else _once(_named, trace)


def _named(trace: TracebackType) -> list[str]:
    names = labels(list(_frame_names(trace)))
    first = next((at for at, name in enumerate(names) if not _is_ours(name)), 0)
    return list(dict.fromkeys(reversed(names[first:])))[::-1]


def _frame_names(trace: TracebackType | None) -> Iterator[str]:
    while trace is not None:
        frame = trace.tb_frame
        module = str(frame.f_globals.get("__name__", "?"))
        if module == "__main__":
            spec = frame.f_globals.get("__spec__")
            path = re.split(r"[\\/]", frame.f_code.co_filename)[-1]
            module = str(getattr(spec, "name", None) or path.removesuffix(".py"))
        function = _INLINED.sub("", frame.f_code.co_qualname)  # 3.12 has no frames for comprehensions
        yield _VARYING.sub("#", f"{module}:{function}")
        trace = trace.tb_next


def _is_ours(name: str) -> bool:
    return name.partition(":")[0].partition(".")[0] in _OURS


# The text


def _text(error: BaseException, line: str) -> str:
    """Return the traceback as Python prints it, the cause before its effect, the raised exception last.

    `line` is the type and the message of the raised exception.
    """
    pieces: list[str] = []
    chain = _chain(error)
    for place, link in reversed(list(enumerate(chain))):
        pieces.append(_block(link, line if link is error else ""))
        if place:
            because = chain[place - 1].__cause__ is link
            pieces.append(_DIRECT if because else _DURING)
    return trim_middle("".join(pieces), MAX_TEXT)


def _printed(trace: TracebackType) -> str:
    stack = traceback.StackSummary.extract(traceback.walk_tb(trace), limit=-_SHOWN)
    return safe("".join(stack.format()))


def _block(error: BaseException, line: str = "", depth: int = 0) -> str:
    """Return one exception: frames, type and message (`line`), notes, and the members of a group, indented."""
    lines: list[str] = []
    if error.__traceback__ is not None:
        lines.append("Traceback (most recent call last):\n")
        lines.append(_once(_printed, error.__traceback__))
    lines.append(f"{line or _line(error)}\n")
    notes = getattr(error, "__notes__", None)
    for note in notes[:_MEMBERS] if isinstance(notes, list) else ():
        lines.append(trim_utf8(safe(str(note)[:_IN_TEXT]), _IN_TEXT) + "\n")
    for member in _members(error) if depth < 3 else ():
        lines.append(textwrap.indent(_block(member, depth=depth + 1), "  | "))
    return "".join(lines)


def _line(error: BaseException) -> str:
    """Return the type and the message of an exception."""
    message = trim_utf8(_message(error, 2 * _IN_TEXT), _IN_TEXT)
    return f"{_type_name(error)}: {message}" if message else _type_name(error)


# Bugs are few and failures many: what was made of a stack is kept. A stack is known by the places in its frames; their
# code is kept with it, so that no other code gets its number.
_made: dict[tuple[Any, ...], tuple[Any, list[CodeType]]] = {}


def _once(make: Callable[[TracebackType], T], trace: TracebackType) -> T:
    """`make(trace)`, which may depend on the places of its frames only; not to be changed."""
    places: list[Any] = [make]
    codes: list[CodeType] = []
    link: TracebackType | None = trace
    while link is not None:
        code = link.tb_frame.f_code
        codes.append(code)
        places += (id(code), link.tb_lasti, link.tb_lineno)
        link = link.tb_next
    known: tuple[T, list[CodeType]] | None = _made.get(key := tuple(places))
    if known is None:
        known = make(trace), codes
        if len(codes) <= _SHOWN:  # a deep recursion seldom ends in the same place twice
            if len(_made) >= _STACKS:
                _made.clear()
            _made[key] = known
    return known[0]
