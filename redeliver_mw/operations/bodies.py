# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Writes a body as lines that people can read and compare: as JSON, as text or in hex. Pure.

JSON is laid out anew and not read into values, so each number, each escape and each name that comes twice stays as it
was sent. Nothing is redacted here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Final, Literal, get_args

from ..errors import ConfigError

BodyForm = Literal["json", "text", "hex"]
BODY_FORMS: Final[tuple[BodyForm, ...]] = get_args(BodyForm)
HEX_WIDTH: Final = 16  # bytes on a line
MOST_JSON: Final = 16 * 2**20  # bytes of a body that is laid out as JSON; a larger one is shown as text
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*+"|[{}\[\],:]|[^\s{}\[\],:"]++')
_INDENT: Final = "  "


def form_of(body: bytes) -> BodyForm:
    """Return the form that suits a body: `json` for an object or a list, `text` for other UTF-8, else `hex`."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return "hex"
    return "json" if text.lstrip()[:1] in ("{", "[") and _is_json(text) else "text"


def text_of(body: bytes, form: BodyForm) -> str:
    """Return a body in a form. Raises ConfigError if the body has not this form."""
    if form == "hex":
        return "\n".join(hex_lines(body))
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"the body is not UTF-8, at byte {error.start}",
            where="--body",
            cure="Write --body hex",
            code="option-value",
        ) from None
    if form == "text":
        return text
    if not _is_json(text):
        raise ConfigError("the body is no JSON", where="--body", cure="Write --body text", code="option-value")
    return laid_out(text)


def hex_lines(body: bytes) -> Iterator[str]:
    """Yield lines with the place, sixteen bytes in hex, and those of them that are printable ASCII."""
    for at in range(0, len(body), HEX_WIDTH):
        part = body[at : at + HEX_WIDTH]
        shown = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        yield f"{at:08x}  {part.hex(' '):<{HEX_WIDTH * 3 - 1}}  {shown}"


def laid_out(text: str) -> str:
    """Return a text that is JSON with one value on each line."""
    parts: list[str] = []
    depth, before = 0, ""
    for token in _TOKEN.findall(text):
        if token in ("}", "]"):
            depth -= 1
            if before not in ("{", "["):
                parts.append("\n" + _INDENT * depth)
        elif before in ("{", "[", ","):
            parts.append("\n" + _INDENT * depth)
        elif before == ":":
            parts.append(" ")
        parts.append(token)
        depth += token in ("{", "[")
        before = token
    return "".join(parts)


def _is_json(text: str) -> bool:
    if len(text) > MOST_JSON:
        return False
    try:
        json.loads(text, parse_int=str, parse_float=str)  # numbers of any length
    except (ValueError, RecursionError):
        return False
    return True
