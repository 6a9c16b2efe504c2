# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Arguments that several commands share: POLICY, and the place it comes from."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from ..errors import PolicyError
from ..policy import PolicyMap, load_policies

Policy = Annotated[
    str,
    typer.Argument(metavar="POLICY", help="A policy's text, a URL that carries one, a file, or - for stdin"),
]
Strict = Annotated[
    bool,
    typer.Option("--strict", help="Refuse what the original system's manual refuses though its program takes it"),
]
Language = Annotated[str | None, typer.Option("--language", help="Do not guess the language; default: by content")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object on stdout")]


def read_policies(given: str, language: str | None, strict: bool) -> PolicyMap:
    """The policies that a POLICY argument means; PolicyError or ConfigError where it cannot be read."""
    if given == "-":
        return _from_stdin(language, strict)
    source = Path(given) if os.path.isfile(given) else given
    return load_policies(source, language, strict=strict)


def _from_stdin(language: str | None, strict: bool) -> PolicyMap:
    try:
        text = sys.stdin.buffer.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise PolicyError(f"not UTF-8, at byte {error.start}", where="stdin", cure="Send UTF-8") from None
    return load_policies(text.rstrip("\r\n"), language, strict=strict)
