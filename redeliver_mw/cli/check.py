# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""`redeliver check POLICY`: valid, or what is wrong where, and the cure."""

from __future__ import annotations

import json

import typer

from ..policy.wording import describe
from .given import Json, Language, Policy, Strict, read_policies


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("check")(check)


def check(policy: Policy, language: Language = None, strict: Strict = False, as_json: Json = False) -> None:
    """Say whether a policy is valid, or what is wrong where, and the cure."""
    found = read_policies(policy, language, strict).default
    if as_json:
        facts = {
            "valid": True,
            "language": found.language,
            "version": found.version,
            "dead_after": found.dead_after,
            "longest_delay_s": found.longest_delay,
            "targets": [str(target) for target in found.targets],
            "text": found.text,
        }
        print(json.dumps(facts, ensure_ascii=False))
    else:
        print(f"valid {found.language}, version {found.version}: {describe(found)}")
