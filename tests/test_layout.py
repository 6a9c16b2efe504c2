# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests the layout: one meaning for each type name, no two modules that import each other, only five re-exports."""

from __future__ import annotations

import ast
from collections import defaultdict
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
TOPS = {"redeliver_mw": ROOT, **{path.name: path.parent for path in (ROOT / "adapters").iterdir() if path.is_dir()}}

# A type name in two files of `redeliver_mw`, with the reason.
SHARED_NAMES = {
    "Signal": "errors: the base of Reject and RetryAfter, which users raise; states: what a state machine is told",
}

# Documented paths of modules that have moved. Every other old path fails as any missing module does.
MOVED = {
    "redeliver_mw.capabilities": "redeliver_mw.adapter.capabilities",
    "redeliver_mw.pipeline.bins": "redeliver_mw.pipeline.time_bins",
    "redeliver_mw.pipeline.judging": "redeliver_mw.pipeline.backtest.lake_input",
    "redeliver_mw.record": "redeliver_mw.journal.records",
    "redeliver_mw.registry": "redeliver_mw.adapter.registry",
}


@cache
def modules() -> dict[str, ast.Module]:
    """Return the syntax tree of each module of the library and of its adapters, by name; packages by theirs."""
    found = {}
    for top, folder in TOPS.items():
        for path in (folder / top).rglob("*.py"):
            name = ".".join(path.relative_to(folder).with_suffix("").parts)
            found[name.removesuffix(".__init__") + (":" if path.name == "__init__.py" else "")] = ast.parse(
                path.read_text("utf-8")
            )
    return {name.rstrip(":"): tree for name, tree in found.items()}


def imports_of(name: str, tree: ast.Module, *, is_package: bool) -> set[str]:
    """Return the modules that a module imports, wherever in it the import stands."""
    known, found = modules(), set[str]()
    package = name if is_package else name.rpartition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*parts, *([node.module] if node.module else [])])
            for alias in node.names:
                found.add(f"{base}.{alias.name}" if f"{base}.{alias.name}" in known else base)
    return found & known.keys()


def is_package(name: str) -> bool:
    return (TOPS[name.partition(".")[0]] / Path(*name.split(".")) / "__init__.py").is_file()


def test_a_type_name_stands_in_one_file_unless_a_reason_is_given() -> None:
    files = defaultdict(set)
    for name, tree in modules().items():
        if name.partition(".")[0] == "redeliver_mw":
            for node in ast.walk(tree):
                if isinstance(node, ast.ClassDef):
                    files[node.name].add(name)
    assert {name for name, where in files.items() if len(where) > 1} == SHARED_NAMES.keys()


def test_no_two_modules_import_each_other() -> None:
    imports = {name: imports_of(name, tree, is_package=is_package(name)) for name, tree in modules().items()}
    pairs = {(one, other) for one, others in imports.items() for other in others if one in imports[other]}
    assert {(one, other) for one, other in pairs if one < other} == set()


def test_only_five_modules_do_nothing_but_hand_on_what_has_moved() -> None:
    assert {
        name for name, tree in modules().items() if "under its documented path" in (ast.get_docstring(tree) or "")
    } == (MOVED.keys())
    for old, new in MOVED.items():
        assert new in imports_of(old, modules()[old], is_package=False)
