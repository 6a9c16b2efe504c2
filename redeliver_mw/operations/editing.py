# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Writes one letter as a text for an editor, and reads from the edited text what was changed.

::

    # letter 5b0c7d1e, of queue:orders, digest 9f86d081884c7d65. Lines with a # before the body are not read.
    # Headers: NAME: VALUE, with the value as JSON. Those of redeliver-mw are not shown, and cannot be changed.
    # Below the empty line: the body, as text. The last line end does not belong to it.
    tenant: "acme"

    {"total": 0}

A body that is no UTF-8 text is written in hex. Headers without a change go out with their types on the wire.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import Any, Final

from ..dead_letters import unpack
from ..dead_letters.edits.letter import Letter, changes_of
from ..errors import ConfigError
from ..message import MessageReader
from ..redaction import visible
from ..redelivery.headers import PREFIX
from .listing import ShownLetter
from .replay_letters import editable
from .replay_plan import LetterEdit

_PLAIN: Final = re.compile(r"[A-Za-z0-9_.$/-]+")  # names of headers that are written without quotes
_HEX_BYTES: Final = 32  # in a line
_DECODER: Final = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class OpenedLetter:
    """Holds a letter that somebody edits: as it was, its digest, and the text for the editor."""

    letter: Letter
    digest: str
    is_hex: bool
    text: bytes

    @property
    def was_json(self) -> bool:
        """Return whether the body was JSON."""
        return _is_json(self.letter.body)


def open_letter(shown: ShownLetter, reader: MessageReader) -> OpenedLetter:
    """Return the text for an editor. Raises NotCopyable if this reader cannot read the letter."""
    letter = editable(shown.letter, unpack(shown.packed, reader), None)
    try:
        letter.body.decode("utf-8")
        is_hex = b"\0" in letter.body  # no editor shows it, and some lose it
    except UnicodeDecodeError:
        is_hex = True
    about = [
        f"# letter {letter.dl_id}, of {visible(shown.letter.source or shown.letter.problem)}, "
        f"digest {shown.letter.digest[:16]}. Lines with a # before the body are not read.",
        "# Headers: NAME: VALUE, with the value as JSON. Those of redeliver-mw are not shown, and cannot be changed.",
        f"# Below the empty line: the body, as {'hex' if is_hex else 'text'}. The last line end does not belong to it.",
    ]
    lines = [
        f"{name if _PLAIN.fullmatch(name) else json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}"
        for name, value in letter.headers.items()
        if not name.startswith(PREFIX)
    ]
    head = "\n".join([*about, *lines, "", ""]).encode("utf-8")
    body = _as_hex(letter.body) if is_hex else letter.body
    return OpenedLetter(letter, shown.letter.digest, is_hex, head + body + b"\n")


def read_edit(opened: OpenedLetter, text: bytes, where: str = "") -> LetterEdit | None:
    """Return what was changed; None if nothing was.

    Raises ConfigError, with the line, for a text that is no letter. `where` is the file that it stands in.
    """
    before = opened.letter
    head, body = _parts(text, where)
    given = _headers(head, where)
    ours = {name: value for name, value in before.headers.items() if name.startswith(PREFIX)}
    if opened.is_hex:
        body = _from_hex(body, where)
    try:
        changes = changes_of(before, replace(before, body=body, headers=ours | given))
    except (TypeError, ValueError) as error:
        raise _bad(str(error), where) from None
    if changes.body is None and not changes.headers:
        return None
    return LetterEdit(before.dl_id, opened.digest, changes.body, changes.headers)


def _parts(text: bytes, where: str) -> tuple[list[str], bytes]:
    """Return the lines before the first empty line, and the body."""
    lines: list[str] = []
    rest = text
    while rest:
        line, mark, rest = rest.partition(b"\n")
        if not line.strip():
            return lines, rest.removesuffix(b"\n")
        if not mark:
            break
        try:
            lines.append(line.decode("utf-8").rstrip("\r"))
        except UnicodeDecodeError:
            raise _bad(f"line {len(lines) + 1} is not UTF-8", where) from None
    raise _bad("there is no empty line between the headers and the body", where)


def _headers(lines: list[str], where: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for number, line in enumerate(lines, 1):
        if line.startswith("#"):
            continue
        try:
            name, value = _header(line)
        except ValueError:
            raise _bad(f"line {number} is no header: NAME: VALUE, with the value as JSON", where) from None
        if name in found:
            raise _bad(f"line {number} has the header {visible(name)} a second time", where)
        if name.startswith(PREFIX):
            raise _bad(f"line {number}: the header {visible(name)} is ours: it says what becomes of the message", where)
        found[name] = value
    return found


def _header(line: str) -> tuple[str, Any]:
    if line.startswith('"'):
        name, end = _DECODER.raw_decode(line)
        mark, value = line[end : end + 1], line[end + 1 :]
    else:
        name, mark, value = line.partition(":")
        name = name.strip()
    if mark != ":" or not name:
        raise ValueError(line)
    return name, json.loads(value)


def _as_hex(body: bytes) -> bytes:
    lines = (body[at : at + _HEX_BYTES].hex(" ") for at in range(0, len(body), _HEX_BYTES))
    return "\n".join(lines).encode()


def _from_hex(text: bytes, where: str) -> bytes:
    try:
        return bytes.fromhex(text.decode("ascii"))
    except ValueError:
        raise _bad("the body is no hex, and was before: two digits for each byte", where) from None


def is_json_no_longer(opened: OpenedLetter, edit: LetterEdit) -> bool:
    """Return whether the body was JSON before the edit, and is none after it."""
    return edit.body is not None and opened.was_json and not _is_json(edit.body)


def _is_json(body: bytes) -> bool:
    try:
        json.loads(body)
    except (ValueError, RecursionError):
        return False
    return True


def _bad(what: str, where: str) -> ConfigError:
    return ConfigError(
        what, where=where, cure="Mend the text: nothing was sent, and it is still in its file", code="letter-edit"
    )
