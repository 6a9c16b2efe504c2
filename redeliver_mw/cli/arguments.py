# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Holds arguments that several commands share, POLICY and URL, and reads their values."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from ..errors import ConfigError, PolicyError
from ..policy import PolicyMap, load_policies
from ..policy.findings import refuse
from ..policy.formats import LANGUAGES
from ..redaction import redact

Policy = Annotated[
    str,
    typer.Argument(metavar="POLICY", help="A policy's text, a URL that carries one, a file, or - for stdin"),
]
Url = Annotated[str, typer.Argument(metavar="URL", help="The broker's, or env:NAME for the variable that holds it")]
Dlq = Annotated[str, typer.Argument(metavar="DLQ", help="The dead-letter queue")]
Strict = Annotated[
    bool,
    typer.Option("--strict", help="Refuse whatever is warned of, and what the original system's manual refuses"),
]
Language = Annotated[
    str | None,
    typer.Option(
        "--language",
        metavar="LANGUAGE",
        help=f"Of POLICY, one of: {', '.join(LANGUAGES)}; else detected from its content",
    ),
]
Layers = Annotated[
    list[Path] | None,
    typer.Option(
        "--layer", metavar="FILE", help="A file that lies over POLICY on ATG's configuration path; may be repeated"
    ),
]
Json = Annotated[bool, typer.Option("--json", help="JSON on stdout")]


def read_policies(given: str, language: str | None, strict: bool, layers: list[Path] | None = None) -> PolicyMap:
    """Return the policies of a POLICY argument. Raises PolicyError or ConfigError if the argument cannot be read."""
    if layers:
        return load_policies([Path(given), *layers], language, strict=strict)
    if given == "-":
        return _from_stdin(language, strict)
    return load_policies(Path(given) if os.path.lexists(given) else given, language, strict=strict)


def refuse_findings(findings: Iterable[str], given: str) -> None:
    """Raise a PolicyError that lists all findings in the policies of a POLICY argument, if there are any."""
    refuse(findings, given if os.path.lexists(given) else "")


def print_warnings(findings: Iterable[str]) -> None:
    """Print findings to stderr."""
    for text in dict.fromkeys(findings):
        print(f"warning: {redact(text)}", file=sys.stderr)


def read_url(given: str) -> str:
    """Return the broker URL of a URL argument. Raises ConfigError if the argument is invalid.

    `env:NAME` keeps the password out of the process list.
    """
    if not given.startswith("env:"):
        return given
    name = given.removeprefix("env:")
    if not os.environ.get(name):
        raise ConfigError(
            f"the variable {name!r} is not set", where=given, cure="Set it to the broker's URL", code="url-missing"
        )
    return os.environ[name]


def _from_stdin(language: str | None, strict: bool) -> PolicyMap:
    try:
        text = sys.stdin.buffer.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise PolicyError(
            f"not UTF-8, at byte {error.start}", where="stdin", cure="Send UTF-8", code="policy-encoding"
        ) from None
    return load_policies(text.rstrip("\r\n"), language, strict=strict)
