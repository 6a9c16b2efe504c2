# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Which letters are asked for: one Spark SQL condition, from options and from what the user writes himself.

Options become SQL, so that a plan says in one text what was asked, and means what it says.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from ...errors import ConfigError, RedeliverError
from ...redaction import redact
from .. import schemas

if TYPE_CHECKING:
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

_CURE: Final = "Write a condition in Spark SQL, such as \"error_type = 'TimeoutError' AND failures >= 3\""
# What a condition may stumble over in a row that it was not made for.
_OF_A_VALUE: Final = re.compile(
    r"\[(CAST_INVALID_INPUT|CAST_OVERFLOW|DIVIDE_BY_ZERO|ARITHMETIC_OVERFLOW|INVALID_ARRAY_INDEX\w*|INVALID_INDEX\w*|"
    r"MAP_KEY_DOES_NOT_EXIST|CANNOT_PARSE_TIMESTAMP|INVALID_EXTRACT_\w+|MALFORMED_\w+)[^\]]*\] ([^\n]+)"
)
# A quoted name, a raw text, a text.
_QUOTED: Final = re.compile(
    r"`(?P<name>[^`]*)`|\b[rR](?:'[^']*'|\"[^\"]*\")|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"", re.DOTALL
)
_COMMENT: Final = re.compile(r"--|/\*")
# Functions that call a class of Java's, and queries, which may run a script.
_FOREIGN: Final = re.compile(
    r"\b(?P<function>(?:try_)?reflect|java_method)\s*\(|\b(?P<word>select|using)\b", re.IGNORECASE
)
_TAIL: Final = re.compile(r"\s*(SQLSTATE: \w+.*|;.*)$", re.DOTALL)


def condition(
    where: str | None = None,
    *,
    destinations: Sequence[str] = (),
    fingerprints: Sequence[str] = (),
    headers: Mapping[str, str] | None = None,
    min_attempts: int | None = None,
) -> str | None:
    """All of them hold; of several destinations or fingerprints one. None: every letter. ConfigError.

    A destination is `queue:NAME`, `topic:NAME::SUBSCRIPTION`, `topic:NAME` with whatever subscription, or only a name,
    which is a queue's or a topic's.
    """
    parts = [_any(_of_destination(name) for name in destinations)] if destinations else []
    if fingerprints:
        parts.append(f"error_fingerprint IN ({', '.join(map(_literal, fingerprints))})")
    parts += [f"headers[{_literal(name)}] = {_literal(value)}" for name, value in (headers or {}).items()]
    if min_attempts is not None:
        parts.append(f"failures >= {min_attempts:d}")
    if where is not None:
        if not where.strip():
            raise ConfigError("an empty condition", where="--where", cure="Leave it out for all letters")
        _refuse_foreign(where)
        parts.append(f"({where.strip()})" if parts else where.strip())
    return " AND ".join(parts) or None


def check_condition(spark: SparkSession, where: str) -> None:
    """ConfigError for what is no condition over the columns of DEAD_LETTERS."""
    from pyspark.errors import PySparkException

    empty = spark.createDataFrame([], schemas.DEAD_LETTERS)
    try:
        with _unlogged():
            _ = empty.where(where).schema  # over Connect nothing is looked at before
    except PySparkException as error:
        raise _told(error, where, empty.columns) from None


def _refuse_foreign(where: str) -> None:
    """Raise ConfigError for a condition that runs code outside of Spark SQL, or hides a part of itself in a comment.

    A condition may come from somebody else than whoever runs it.
    """
    bare = _QUOTED.sub(lambda quoted: re.sub(r"\W", "_", quoted["name"]) if quoted["name"] else "''", where)
    if found := _COMMENT.search(bare):
        raise ConfigError(f"a comment, {found[0]}", where=f"--where {where}", cure="Leave it out")
    if found := _FOREIGN.search(bare):
        word = found["function"] or found["word"]
        what = f"{word.lower()} runs what is no part of Spark SQL, or reads other tables"
        raise ConfigError(what, where=f"--where {where}", cure=_CURE)


@contextmanager
def blamed_on(where: str | None) -> Iterator[None]:
    """A value that the condition cannot bear is the condition's fault, and not Spark's."""
    try:
        with _unlogged():
            yield
    except RedeliverError:
        raise
    except Exception as error:
        if where is None or not (found := _OF_A_VALUE.search(str(error))):
            raise
        said = redact(found[2].partition(". ")[0])
        what = f"a letter has a value that it cannot bear: {said}"
        cure = "Use try_cast, try_divide, try_element_at and their like, which give NULL then"
        raise ConfigError(what, where=f"--where {where}", cure=cure) from None


@contextmanager
def _unlogged() -> Iterator[None]:
    """Spark writes some errors to stderr by itself, with a traceback, before it raises them."""
    from pyspark.logger import PySparkLogger

    logger = PySparkLogger.getLogger("SQLQueryContextLogger")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


def _told(error: PySparkException, where: str, columns: Sequence[str]) -> ConfigError:
    kind = error.getCondition() or ""
    if kind.startswith("UNRESOLVED_COLUMN"):
        name = (error.getMessageParameters() or {}).get("objectName", "?")
        return ConfigError(
            f"there is no column {name}", where=f"--where {where}", cure=f"Columns are {', '.join(columns)}"
        )
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    what = _TAIL.sub("", re.sub(r"^\[[^\]]+\]\s*", "", lines[0] if lines else kind))
    return ConfigError(f"no condition: {what.rstrip('.')}", where=f"--where {where}", cure=_CURE)


def _of_destination(name: str) -> str:
    if not name.strip():
        raise ConfigError("an empty name", where="--destination", cure="Write a name, `queue:NAME` or `topic:NAME`")
    kind, mark, rest = name.partition(":")
    if not mark or kind not in ("queue", "topic"):
        kind, rest = "", name
    spellings = []
    if kind != "topic":
        spellings.append(f"original_destination IN ({_literal(rest)}, {_literal(f'queue:{rest}')})")
    if kind != "queue":
        spellings.append(f"original_destination = {_literal(f'topic:{rest}')}")
    if kind != "queue" and "::" not in rest:
        spellings.append(f"startswith(original_destination, {_literal(f'topic:{rest}::')})")
    return " OR ".join(spellings)


def _any(parts: Iterator[str]) -> str:
    return f"({' OR '.join(parts)})"


def _literal(text: str) -> str:
    """A text in Spark SQL, as it is unless `spark.sql.parser.escapedStringLiterals` is set."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
