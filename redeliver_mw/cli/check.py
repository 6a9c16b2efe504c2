# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Implements `redeliver check POLICY`: prints whether the policy is valid, or errors with place and cure.

Warnings go to stderr.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer

from ..policy import Arm, PolicyMap, RedeliveryPolicy
from ..policy.findings import findings_of
from ..policy.flatten import flattened
from ..policy.model import describe
from ..redaction import redact
from .arguments import Json, Language, Layers, Policy, Strict, print_warnings, read_policies, refuse_findings
from .help import example
from .output import print_json, print_table


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("check", epilog=example('redeliver check "3:1000; 8:move(queue:dlq.$)"'))(check)


def check(
    policy: Policy, language: Language = None, strict: Strict = False, layer: Layers = None, as_json: Json = False
) -> None:
    """Say whether a policy is valid, or what is wrong where, and the cure.

    Warnings go to stderr. The exit code is 2 for what is not valid.
    """
    policies = read_policies(policy, language, strict, layer)
    found = findings_of(policies)
    if strict:
        refuse_findings(found, policy)
    if as_json:
        print_json(_json(policies, found))
    elif not policies.entries:
        one = policies.default
        print(f"valid {one.language}, version {one.version}: {describe(one)}")
    else:
        _print_map(policies)
    print_warnings(found)


def _print_map(policies: PolicyMap) -> None:
    count = len(policies.entries)
    print(f"valid {policies.language}: {count} {'entry' if count == 1 else 'entries'} and a default")
    rows = [(name, found.version, describe(found)) for name, found in whole_policies(policies)]
    print_table(("destination", "version", "policy"), [*rows, _default(policies)])


def _default(policies: PolicyMap) -> tuple[str, str, str]:
    return "any other", policies.default.version, describe(policies.default)


def _json(policies: PolicyMap, findings: list[str]) -> dict[str, Any]:
    return {
        "valid": True,
        "language": policies.language,
        **_facts(policies.default),
        "entries": [{"destination": name, **_facts(found)} for name, found in whole_policies(policies)],
        "warnings": [redact(text) for text in findings],
    }


def _facts(policy: RedeliveryPolicy) -> dict[str, Any]:
    return {
        "version": policy.version,
        "dead_after": policy.dead_after,
        "longest_delay_s": policy.longest_delay,
        "targets": [str(target) for target in policy.targets],
        "text": policy.text,
        **({"arms": {arm.name: _facts_of(arm) for arm in policy.arms}} if policy.arms else {}),
    }


def _facts_of(arm: Arm) -> dict[str, Any]:
    facts = {name: fact for name, fact in _facts(arm.policy).items() if name != "version"}  # no record has a version
    return {"share": arm.propensity, **facts}


def whole_policies(policies: PolicyMap) -> Iterator[tuple[str, RedeliveryPolicy]]:
    """Yield each entry, and its effective policy, with the values that the entry takes over from others."""
    flat, lost = flattened(policies)
    for entry in reversed(flat.entries):
        if isinstance(entry.given, RedeliveryPolicy):
            yield str(entry), entry.given
    if lost:
        for entry in policies.entries:
            if isinstance(entry.given, RedeliveryPolicy) and any(finding.startswith(f"{entry}: ") for finding in lost):
                yield str(entry), entry.given
