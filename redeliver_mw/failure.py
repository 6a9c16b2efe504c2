# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Describes a failure without secrets: type, message, traceback, and a fingerprint that identifies the bug.

The fingerprint is a hash of the exception's type and of `frames`, and of nothing else: no message, no line number, no
address, no path. The same bug therefore has the same fingerprint on every machine and in every run.
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

MAX_TEXT = 64 * 1024  # bytes of UTF-8, for a message and for a whole traceback
MAX_FRAMES = 30
_READ = 72 * 1024  # characters of a message that are read
_IN_TEXT = 8 * 1024  # bytes of one message inside a traceback: frames are worth more than the end of a message
_CHAIN = 12  # exceptions in one chain, including the raised one
_SHOWN = 60  # frames of one exception in the text, the innermost ones
_MEMBERS = 8  # exceptions of one group
_STACKS = 512  # stacks whose results are cached

_OURS = ("redeliver_mw", "redeliver_stomp", "redeliver_pika", "redeliver_proton")
_INLINED = re.compile(r"(?:\.<locals>)?\.<(?:listcomp|dictcomp|setcomp|genexpr)>")
_VARYING = re.compile(r"0x[0-9a-fA-F]+|[0-9a-fA-F]{8}-?(?:[0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}|\d{4,}")


_DIRECT = "\nThe above exception was the direct cause of the following exception:\n\n"
_DURING = "\nDuring handling of the above exception, another exception occurred:\n\n"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Failure:
    """Holds the description of an exception. All strings can be encoded as UTF-8 and contain no NUL.

    `type` is the class's name; `message` is redacted, at most 64 KiB; `fingerprint` is 16 hex digits; `frames` has at
    most 30 entries `module:function`, outermost first, the frames of the raised exception followed by those of its
    causes, each after a line `^ Type`; `text` is the redacted traceback, at most 64 KiB.
    """

    type: str
    message: str
    fingerprint: str
    frames: list[str]
    text: str


def describe(error: BaseException) -> Failure:
    """Return `error` as a `Failure`. Never raises, whatever the exception's own methods do. Thread-safe."""
    nothing: list[str] = []
    name, said = _class_name(error), _said(error)
    frames = _safely(lambda: _fingerprint_frames(error), nothing)
    kind, message = label(name), safe(said)
    short, message = trim_utf8(message, _IN_TEXT), trim_utf8(message, MAX_TEXT)
    line = f"{kind}: {short}" if short else kind
    mark = fingerprint(kind, frames)
    text = _safely(lambda: _text(error, line), line)
    return Failure(kind, message, mark, frames, text)


def fingerprint(kind: str, frames: list[str]) -> str:
    """Return the 16 hex digits for a class name and normalised frames."""
    return hashlib.blake2b("\n".join([kind, *frames]).encode(), digest_size=8).hexdigest()


CRASH = Failure(
    "ProcessDied",
    "the process died while this message, and no other, was in a handler",
    fingerprint("ProcessDied", []),
    [],
    "",
)


def _safely(work: Callable[[], T], instead: T) -> T:
    """Return the result of `work`, or `instead`: an exception that fails to describe itself is still a failure."""
    try:
        return work()
    except BaseException:  # even an exit raised by a `__str__` must not stop the handling of the message
        return instead


def _class_name(error: BaseException) -> str:
    return _safely(lambda: str(type(error).__name__), "Exception")


def _type_name(error: BaseException) -> str:
    return label(_class_name(error))


def _said(error: BaseException, read: int = _READ) -> str:
    """Return `str(error)`, at most about `read` characters, to be redacted before it is cut to its final length."""
    text = _safely(lambda: str.__str__(str(error)), f"<{_class_name(error)} whose __str__ fails>")
    if len(text) > read:
        # Half a secret at the cut would no longer look like a secret, so cut at a space instead.
        space = max(text.rfind(" ", read - 4096, read), text.rfind("\n", read - 4096, read))
        text = text[: space if space > 0 else read] + " …"
    return text


def _chain(error: BaseException) -> list[BaseException]:
    """Return the exception and its causes, the raised one first; cycles and long chains are cut off."""
    chain: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and not any(link is seen for seen in chain) and len(chain) < _CHAIN:
        chain.append(link)
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
    return chain


def _members(error: BaseException) -> list[BaseException]:
    return list(error.exceptions[:_MEMBERS]) if isinstance(error, BaseExceptionGroup) else []


# The frames that make the fingerprint.


def _fingerprint_frames(error: BaseException) -> list[str]:
    """Return the frames of the raised exception, then those of its causes, at most 30 in all, shared out evenly."""
    chain = _chain(error)[: MAX_FRAMES // 3]
    share = MAX_FRAMES // len(chain) - (len(chain) > 1)
    frames: list[str] = []
    for place, link in enumerate(chain):
        if place:
            frames.append(f"^ {_type_name(link)}")
        # The members of a group come in the order in which tasks happened to fail, so they are sorted, each by its last
        # frame.
        members = sorted({_member_line(member) for member in _members(link)})[: share // 2]
        own = _frames(link.__traceback__)
        frames += own[max(0, len(own) - (share - len(members))) :] + members
    return frames


def _member_line(error: BaseException) -> str:
    return " ".join(["|", _type_name(error), *_frames(error.__traceback__)[-1:]])


def _frames(trace: TracebackType | None) -> list[str]:
    """Return `module:function`, outermost first, each once at its last place: the depth of a recursion does not count.

    Frames of this library in front of the handler's are left out, so that App and drop-in give the same fingerprint.
    """
    return [] if trace is None else _once(_named, trace)


def _named(trace: TracebackType) -> list[str]:
    names = list(_frame_names(trace))
    first = next((at for at, name in enumerate(names) if not _is_ours(name)), 0)
    return list(dict.fromkeys(reversed(labels(names[first:]))))[::-1]


def _frame_names(trace: TracebackType | None) -> Iterator[str]:
    while trace is not None:
        frame = trace.tb_frame
        module = str(frame.f_globals.get("__name__", "?"))
        if module == "__main__":
            spec = frame.f_globals.get("__spec__")
            path = re.split(r"[\\/]", frame.f_code.co_filename)[-1]
            module = str(getattr(spec, "name", None) or path.removesuffix(".py"))
        function = _INLINED.sub("", frame.f_code.co_qualname)  # Python 3.12 has no frames for comprehensions
        yield _VARYING.sub("#", f"{module}:{function}")
        trace = trace.tb_next


def _is_ours(name: str) -> bool:
    return name.partition(":")[0].partition(".")[0] in _OURS


# The text.


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
    members = _members(error) if depth < 3 else []
    if error.__traceback__ is not None:
        lines.append("Traceback (most recent call last):\n")
        lines.append(_once(_printed, error.__traceback__))
    lines.append(f"{line or _line(error)}\n")
    notes = getattr(error, "__notes__", None)
    for note in notes[:_MEMBERS] if isinstance(notes, list) else ():
        lines.append(trim_utf8(safe(str(note)[:_IN_TEXT]), _IN_TEXT) + "\n")
    for member in members:
        lines.append(textwrap.indent(_block(member, depth=depth + 1), "  | "))
    return "".join(lines)


def _line(error: BaseException) -> str:
    """Return the type and the message of an exception."""
    kind, message = _type_name(error), trim_utf8(safe(_said(error, 2 * _IN_TEXT)), _IN_TEXT)
    return f"{kind}: {message}" if message else kind


# There are few bugs and many failures, so the results for a stack are cached. A stack is identified by the positions in
# its frames; their code objects are kept with it, so that no other code object gets the same id.
_made: dict[tuple[Any, ...], tuple[Any, list[CodeType]]] = {}


def _once(make: Callable[[TracebackType], T], trace: TracebackType) -> T:
    """Return the cached `make(trace)`, which may depend on the positions of the frames only.

    Callers must not change the result.
    """
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
