# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Finds the calls by which redeliver_mw and the adapters write to the log, in their source text."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
METHODS: Final = {
    "debug": "DEBUG",
    "info": "INFO",
    "warning": "WARNING",
    "error": "ERROR",
    "exception": "ERROR",
    "critical": "CRITICAL",
    "log": "",  # a level that is only known at run time
}
LOGGERS: Final = {"log", "logger", "LOG", "late"}  # the names of loggers, without underscores before them


class LogCall(NamedTuple):
    """Describes one call.

    - `logger`: the name of the logger; empty if it is handed to the class.
    - `level`: empty if it is only known at run time.
    - `texts`: the texts that the call may write, before their arguments are filled in; empty if they are only known at
      run time.
    - `event`: what the call writes as the event's code; empty if it writes none, "…" for an expression.
    """

    file: str
    line: int
    logger: str
    level: str
    texts: tuple[str, ...]
    event: str

    @property
    def where(self) -> str:
        return f"{self.file}:{self.line}"


@cache
def log_calls() -> tuple[LogCall, ...]:
    """Return every call of a logger's method."""
    return tuple(_all_calls())


def _all_calls() -> Iterator[LogCall]:
    for folder in ("redeliver_mw", "adapters"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            if "tests" not in file.relative_to(ROOT).parts:
                yield from calls_of(str(file.relative_to(ROOT)), file.read_text("utf-8"))


def calls_of(name: str, text: str) -> Iterator[LogCall]:
    """Yield the calls in one source text."""
    if "getLogger" not in text and "_log." not in text:
        return
    tree = ast.parse(text)
    loggers = {one for node in ast.walk(tree) if (one := _logger_named(node))}
    logger = loggers.pop() if len(loggers) == 1 else ""
    for function in _functions(tree):
        chosen = _chosen(function)
        for node in _own(function):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            if node.func.attr not in METHODS or _last_name(node.func.value).lstrip("_") not in LOGGERS:
                continue
            level = METHODS[node.func.attr]
            given = node.args[0] if level else node.args[1]
            texts = chosen.get(given.id, ()) if isinstance(given, ast.Name) else _texts(given)
            yield LogCall(name, node.lineno, logger, level, texts, _event(node))


def _logger_named(node: ast.AST) -> str:
    if isinstance(node, ast.Call) and _last_name(node.func) == "getLogger" and node.args:
        name = node.args[0]
        return name.value if isinstance(name, ast.Constant) else "?"
    return ""


def _last_name(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _functions(tree: ast.Module) -> Iterator[ast.AST]:
    yield tree
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def _own(function: ast.AST) -> Iterator[ast.AST]:
    """Yield what stands in a function, without the functions inside it."""
    waiting = list(ast.iter_child_nodes(function))
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            waiting += ast.iter_child_nodes(node)


def _chosen(function: ast.AST) -> dict[str, tuple[str, ...]]:
    """Return the texts that a function gives to its variables."""
    found: dict[str, tuple[str, ...]] = {}
    for node in _own(function):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            found[name] = (*found.get(name, ()), *_texts(node.value))
    return found


def _texts(node: ast.AST) -> tuple[str, ...]:
    match node:
        case ast.Constant(value=str(text)):
            return (text,)
        case ast.IfExp():
            return _texts(node.body) + _texts(node.orelse)
    return ()


def _event(call: ast.Call) -> str:
    for keyword in call.keywords:
        if keyword.arg == "extra" and isinstance(keyword.value, ast.Dict):
            for key, value in zip(keyword.value.keys, keyword.value.values, strict=True):
                if key is not None and _last_name(key) == "EVENT_CODE":
                    return value.value if isinstance(value, ast.Constant) else "…"
    return ""
