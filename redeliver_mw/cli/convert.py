# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Implements `redeliver convert POLICY --to LANGUAGE`: writes the same policy in the language of another system.

Whatever the other language cannot express is listed on stderr, one line each, and nothing is written. With `--lossy`
the nearest policy that can be expressed is written. A language that names each destination needs `--destination` for a
policy that names none. The exit code is 3 if something was lost without permission, or if the result would cover none
of the named destinations.
"""

from __future__ import annotations

import dataclasses
import sys
from typing import Annotated

import typer

from ..errors import ConfigError
from ..message import Destination
from ..policy import Expiry, PolicyMap, RedeliveryPolicy
from ..policy.destinations import MapEntry
from ..policy.findings import NAMING, findings_at, findings_of
from ..policy.flatten import of_kind
from ..policy.formats import (
    LANGUAGES,
    WRITERS,
    WRITERS_OF_ONE,
    WRITERS_OF_ONE_WITH_PREFIXES,
    WRITERS_WITH_PREFIXES,
    Conversion,
    FormatWriter,
)
from ..policy.formats.diagnostics import nearest
from ..redaction import redact
from .arguments import Json, Language, Layers, Policy, Strict, print_warnings, read_policies, refuse_findings
from .explain import DestinationKindOption, source_of
from .help import example
from .output import print_json

IN_PART = 3
_NOTHING = RedeliveryPolicy(None, 0.0, None, expiry=Expiry("discard"))


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("convert", epilog=example("redeliver convert policy.toml --to activemq"))(convert)


def convert(
    policy: Policy,
    to: Annotated[
        str, typer.Option("--to", metavar="LANGUAGE", help=f"The language to write, one of: {', '.join(LANGUAGES)}")
    ],
    lossy: Annotated[bool, typer.Option("--lossy", help="Write the nearest where something cannot be written")] = False,
    destination: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Write only the policy of this source, as the one for all, or under its name"
        ),
    ] = None,
    kind: Annotated[
        DestinationKindOption | None, typer.Option(help="Of --destination; else queue, unless it says topic:")
    ] = None,
    prefixes: Annotated[
        bool, typer.Option("--prefixes", help="Write jms.queue. and jms.topic. before names, for HornetQ and WildFly")
    ] = False,
    language: Language = None,
    strict: Strict = False,
    layer: Layers = None,
    as_json: Json = False,
) -> None:
    """Write a policy in another language.

    What that language cannot say is listed on stderr, entry by entry; then nothing is written, and the exit code is
    3, unless --lossy is given.
    """
    write = _writer(to, prefixes=prefixes)
    policies = read_policies(policy, language, strict, layer)
    source = None if destination is None else source_of(destination, kind)
    found = findings_of(policies) if source is None else findings_at(source, policies)
    if strict:
        refuse_findings(found, policy)
    if source is not None:
        chosen = policies.resolve(source.name, source.kind)
        if policies.language != to:
            chosen = of_kind(chosen, source.kind)
        policies = _alone(chosen, source, policies, to)
        write = (WRITERS_OF_ONE_WITH_PREFIXES if prefixes else WRITERS_OF_ONE).get(to, write)
    written = _without_secrets(write(policies), own=policies.language == to)
    done = not written.names_nothing and (lossy or not written.lost)
    if as_json:
        print_json(_json(to, policies.language, written, done, found))
    elif done:
        print(written.text.rstrip("\n"))
    print_warnings(found)
    _tell(to, written, done)
    if not done:
        raise typer.Exit(IN_PART)


def _alone(policy: RedeliveryPolicy, source: Destination, policies: PolicyMap, to: str) -> PolicyMap:
    """Return the policy as the source's only policy; in a language without names, as the policy for all."""
    if to not in WRITERS_OF_ONE:
        return PolicyMap(None, policy, language=policies.language, warnings=policies.warnings)
    if wild := [word for word in source.name.split(".") if word in ("*", ">")] or [c for c in source.name if c == ","]:
        cure = "Name one destination"
        raise ConfigError(
            f"{wild[0]} stands for several in {source.name!r:.200}",
            where="--destination",
            cure=cure,
            code="option-value",
        )
    entry = MapEntry(source.name, source.kind, policy)
    return PolicyMap([entry], _NOTHING, language=policies.language, warnings=policies.warnings)


def _writer(language: str, *, prefixes: bool) -> FormatWriter:
    if prefixes and language not in WRITERS_WITH_PREFIXES:
        cure = f"Leave it out, or use --to {', '.join(WRITERS_WITH_PREFIXES)}"
        raise ConfigError(
            f"names have no prefixes in {language:.80}", where="--prefixes", cure=cure, code="option-value"
        )
    if prefixes:
        return WRITERS_WITH_PREFIXES[language]
    if language in WRITERS:
        return WRITERS[language]
    if language in LANGUAGES:
        raise ConfigError(
            f"{language} cannot be written yet",
            where="--to",
            cure=f"Use one of: {', '.join(WRITERS)}",
            code="policy-language-unknown",
        )
    near = nearest(language, LANGUAGES)
    meant = f"Did you mean {near!r}? " if near else ""
    cure = f"{meant}Use one of: {', '.join(WRITERS)}"
    raise ConfigError(
        f"there is no policy language {language!r:.80}", where="--to", cure=cure, code="policy-language-unknown"
    )


def _without_secrets(written: Conversion, *, own: bool) -> Conversion:
    # A text in its own language comes back unchanged, including URL and password; texts that we assemble have no
    # password.
    text = redact(written.text) if own else written.text
    return dataclasses.replace(written, text=text, lost=tuple(redact(what) for what in written.lost))


def _json(to: str, language: str, written: Conversion, done: bool, findings: list[str]) -> dict[str, object]:
    return {
        "from": language,
        "to": to,
        "text": written.text if done else None,
        "lost": list(written.lost),
        "warnings": [redact(text) for text in findings],
    }


def _tell(to: str, written: Conversion, done: bool) -> None:
    for what in written.lost:
        print(f"lost in {to}: {what}", file=sys.stderr)
    if written.names_nothing:
        why = "names each destination" if to in NAMING else "has one string for all, and it would be empty"
        print(f"Nothing is written: {to} {why}. Use --destination NAME", file=sys.stderr)
    elif not done:
        print("Nothing is written. Use --lossy to write the nearest", file=sys.stderr)
