# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Each error of the library has a code that is listed, and each listed code is raised somewhere and has its heading."""

from __future__ import annotations

import ast
import copy
import pickle
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from redeliver_mw.error_codes import CODES
from redeliver_mw.errors import BrokerError, BrokerUnavailable, ConfigError, NotCopyable, PolicyError, RedeliverError
from redeliver_mw.policy import load_policies
from redeliver_mw.policy.formats.jmsjca.reader import JmsjcaError

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
ALL = [code for codes in CODES.values() for code in codes]
LINK = re.compile(r"^\| \[([a-z-]+)\]\((errors-[a-z-]+\.md)#([a-z-]+)\) \|", re.MULTILINE)


@cache
def sources() -> dict[str, ast.Module]:
    files = [path for top in ("redeliver_mw", "adapters") for path in (ROOT / top).rglob("*.py")]
    return {str(path.relative_to(ROOT)): ast.parse(path.read_text("utf-8")) for path in files}


def nodes() -> Iterator[tuple[str, ast.AST]]:
    for name, tree in sources().items():
        for node in ast.walk(tree):
            yield name, node


def last_name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


@cache
def error_classes() -> dict[str, str]:
    """Return the name of each class of the library's errors, with its own default code or that of its base."""
    classes = {node.name: node for _, node in nodes() if isinstance(node, ast.ClassDef)}
    found = {"RedeliverError": ""}
    while added := {
        name: own_code(node) or found[base]
        for name, node in classes.items()
        if name not in found
        for base in map(last_name, node.bases)
        if base in found
    }:
        found |= added
    return found


def own_code(node: ast.ClassDef) -> str:
    for line in node.body:
        if isinstance(line, ast.Assign) and last_name(line.targets[0]) == "code":
            assert isinstance(line.value, ast.Constant)
            return str(line.value.value)
    return ""


def made(node: ast.Call) -> list[str]:
    """Return the names of the error classes of which a call may make an error."""
    kinds = [node.func.body, node.func.orelse] if isinstance(node.func, ast.IfExp) else [node.func]
    return [name for kind in kinds if (name := last_name(kind)) in error_classes()]


def code_of(node: ast.Call) -> ast.expr | None:
    return next((word.value for word in node.keywords if word.arg == "code"), None)


def literal_codes() -> dict[str, list[str]]:
    """Return every code that the source names, and where: `code="..."` in a call, or the default of a class."""
    found: dict[str, list[str]] = {}
    for file, node in nodes():
        if isinstance(node, ast.Call):
            given = code_of(node)
            if isinstance(given, ast.Constant) and isinstance(given.value, str):
                found.setdefault(given.value, []).append(f"{file}:{node.lineno}")
        elif isinstance(node, ast.ClassDef) and node.name in error_classes() and own_code(node):
            found.setdefault(own_code(node), []).append(f"{file}:{node.lineno}")
    return found


def test_codes_are_unique_and_in_kebab_case() -> None:
    assert len(ALL) == len(set(ALL))
    assert [code for code in ALL if not re.fullmatch(r"[a-z]+(-[a-z]+)+", code)] == []


def test_each_error_that_the_source_makes_has_a_code() -> None:
    calls = [(f"{file}:{node.lineno}", node) for file, node in nodes() if isinstance(node, ast.Call) and made(node)]
    assert len(calls) > 400
    # JMSJCA's errors are given JMSJCA's own codes, as their first argument.
    nameless = [
        where
        for where, node in calls
        if code_of(node) is None and not all(error_classes()[name] or name == "JmsjcaError" for name in made(node))
    ]
    assert nameless == []


def test_a_code_that_is_handed_on_is_that_of_an_error_or_a_required_argument() -> None:
    required, optional = set(), set()
    for _, node in nodes():
        if isinstance(node, ast.FunctionDef):
            arguments = node.args
            positional = [*arguments.posonlyargs, *arguments.args]
            free = len(positional) - len(arguments.defaults)
            pairs = [
                *((one.arg, number >= free) for number, one in enumerate(positional)),
                *(
                    (one.arg, default is not None)
                    for one, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
                ),
            ]
            for name, has_default in pairs:
                if name == "code":
                    (optional if has_default else required).add(node.name)
    assert optional == {"__init__", "_change"}  # of RedeliverError and NotCopyable; of the state of a connection
    handed_on = {
        ast.unparse(given)
        for _, node in nodes()
        if isinstance(node, ast.Call)
        and made(node)
        and (given := code_of(node))
        and not isinstance(given, ast.Constant)
    }
    assert handed_on <= {"code", "error.code", "finding.code", "known.code", "problem.code"}


def test_each_code_of_the_source_is_listed_and_each_listed_code_is_used() -> None:
    used = literal_codes()
    assert {code: where for code, where in used.items() if code not in ALL} == {}
    assert [code for code in ALL if code not in used] == []


@pytest.mark.parametrize("family", CODES)
def test_the_page_of_a_family_has_a_heading_for_each_of_its_codes(family: str) -> None:
    page = (DOCS / f"errors-{family}.md").read_text("utf-8")
    assert re.findall(r"^## (.+)$", page, re.MULTILINE) == list(CODES[family])
    texts = re.split(r"^## .+$", page, flags=re.MULTILINE)[1:]
    assert all(len(text.split()) >= 10 for text in texts)


def test_the_table_of_errors_leads_to_each_code_and_to_nothing_else() -> None:
    links = LINK.findall((DOCS / "errors.md").read_text("utf-8"))
    assert links == [(code, f"errors-{family}.md", code) for family, codes in CODES.items() for code in codes]
    assert {path.name for path in DOCS.glob("errors-*.md")} == {f"errors-{family}.md" for family in CODES}


def test_a_message_ends_with_the_code() -> None:
    error = PolicyError("no such step", where="shop.toml:3", cure="Write 3:1000", code="policy-value")
    assert str(error) == "shop.toml:3: no such step. Write 3:1000 [policy-value]"
    assert error.message == "shop.toml:3: no such step. Write 3:1000"
    assert (error.code, error.what, error.args) == ("policy-value", "no such step", ("no such step",))


def test_an_error_without_a_code_has_its_class_s_or_none() -> None:
    assert str(BrokerUnavailable("down")) == "down [broker-unavailable]"
    assert str(BrokerUnavailable("down", code="connection-lost")) == "down [connection-lost]"
    assert BrokerUnavailable.code == "broker-unavailable"
    assert (str(BrokerError("of an adapter of yours")), BrokerError("x").code) == ("of an adapter of yours", "")


@pytest.mark.parametrize(
    "error", [ConfigError("x", where="y", cure="Z", code="option-value"), NotCopyable("x", code="headers-too-large")]
)
def test_a_copied_or_pickled_error_keeps_its_code(error: RedeliverError) -> None:
    assert str(copy.copy(error)) == str(pickle.loads(pickle.dumps(error))) == str(error)


def test_the_errors_of_jmsjca_keep_jmsjcas_codes_and_their_texts() -> None:
    with pytest.raises(JmsjcaError) as caught:
        load_policies("3:1000; 6:move(queue)")
    assert caught.value.code == "E104"
    assert str(caught.value) == caught.value.message
    assert str(caught.value).startswith("E104 in element 2 of 2")
