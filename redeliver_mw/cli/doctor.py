# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Implements `redeliver doctor URL`: examines whether a broker is set up for a policy.

The exit code is 1 if something is wrong.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from ..redaction import redact
from .arguments import Json, Language, Url, read_policies, read_url
from .help import example
from .logs import quiet_drivers
from .output import plain, print_json, print_table
from .signals import interrupted_by_signals

if TYPE_CHECKING:
    from ..doctor import Finding
    from ..policy import PolicyMap

WRONG = 1

PolicyOption = Annotated[
    str | None,
    typer.Option(
        "--policy", metavar="POLICY", help="A policy's text, a URL that carries one, a file, or -; else the URL's own"
    ),
]
Destinations = Annotated[
    list[str] | None,
    typer.Option("--destination", metavar="NAME", help="A queue that is consumed; may be repeated"),
]
NoProbe = Annotated[bool, typer.Option("--no-probe", help="Send nothing, and make no queue")]
LimboOption = Annotated[
    str | None,
    typer.Option("--limbo", metavar="URL", help="A limbo to look at, or env:NAME for the variable that holds its URL"),
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    line = 'redeliver doctor env:BROKER --destination orders --policy "3:1000; 8:move(queue:dlq.$)"'
    app.command("doctor", epilog=example(line))(doctor)


def doctor(
    url: Url,
    policy: PolicyOption = None,
    destination: Destinations = None,
    no_probe: NoProbe = False,
    limbo: LimboOption = None,
    language: Language = None,
    as_json: Json = False,
) -> None:
    """Examine whether a broker is set up for a policy: what is ok, a warning, wrong or not known, each with its cure.

    The exit code is 1 if something is wrong.
    """
    from ..adapter.registry import parse_url
    from ..doctor import examine, is_wrong
    from ..message import Destination

    quiet_drivers()
    address = read_url(url)
    given = policy or parse_url(address).policy
    policies: PolicyMap | None = None if given is None else read_policies(given, language, False)
    sources = [Destination.parse(name) for name in destination or ()]
    with interrupted_by_signals():
        findings = examine(
            address,
            policies=policies,
            sources=sources,
            probe=not no_probe,
            limbo=None if limbo is None else read_url(limbo),
        )
    if as_json:
        print_json([{name: redact(text) for name, text in asdict(finding).items()} for finding in findings])
    else:
        _print(findings)
    if is_wrong(findings):
        raise typer.Exit(WRONG)


def _print(findings: list[Finding]) -> None:
    rows = [
        (one.id, one.status.value, *(plain(redact(text)) for text in (one.subject, one.reason, one.cure)))
        for one in findings
    ]
    print_table(("what", "", "where", "found", "cure"), rows)
    counts = Counter(one.status.value for one in findings)
    print(", ".join(f"{number} {status}" for status, number in counts.items()))
