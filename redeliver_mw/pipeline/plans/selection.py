# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Builds the condition for the chosen letters: one Spark SQL text, from options and from the user's own condition.

Options become SQL, so that one text in the plan describes the choice completely.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from ...errors import ConfigError, RedeliverError
from ...redaction import redact
from .. import schemas

if TYPE_CHECKING:
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

_CURE: Final = "Write a condition in Spark SQL, such as \"error_type = 'TimeoutError' AND failures >= 3\""
# Errors of Spark that come from a row's value and not from the condition's syntax.
_OF_A_VALUE: Final = re.compile(
    r"\[(CAST_INVALID_INPUT|CAST_OVERFLOW|DIVIDE_BY_ZERO|ARITHMETIC_OVERFLOW|INVALID_ARRAY_INDEX\w*|INVALID_INDEX\w*|"
    r"MAP_KEY_DOES_NOT_EXIST|CANNOT_PARSE_TIMESTAMP|INVALID_EXTRACT_\w+|MALFORMED_\w+)[^\]]*\] ([^\n]+)"
)
# A quoted name, a raw text, a text.
_QUOTED: Final = re.compile(
    r"`(?P<name>[^`]*)`|\b[rR](?:'[^']*'|\"[^\"]*\")|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"", re.DOTALL
)
_COMMENT: Final = re.compile(r"--|/\*")
# Spark replaces variables of the session, the process and its environment before it reads a condition.
_VARIABLE: Final = re.compile(r"\$\{")
# Functions that call a Java class, the clause that makes a name from a text, and queries, which may run a script.
_FOREIGN: Final = re.compile(
    r"\b(?P<function>(?:try_)?reflect|java_method|identifier)\s*\(|\b(?P<word>select|table|using)\b", re.IGNORECASE
)
_CALL: Final = re.compile(r"(?P<place>(?:\w+\s*\.\s*)*)(?P<name>\w+)\s*\(")
_OWN: Final = ("", "builtin", "system.builtin")  # the places of Spark's own functions
_REFLECTION: Final = ("CallMethodViaReflection", "TryReflect")
_TAIL: Final = re.compile(r"\s*(SQLSTATE: \w+.*|;.*)$", re.DOTALL)


def condition(
    where: str | None = None,
    *,
    destinations: Sequence[str] = (),
    fingerprints: Sequence[str] = (),
    headers: Mapping[str, str] | None = None,
    min_attempts: int | None = None,
) -> str | None:
    """Return the condition under which all options hold; None: every letter. Raises ConfigError.

    One of several destinations or fingerprints has to match. A destination is `queue:NAME`, `topic:NAME::SUBSCRIPTION`,
    `topic:NAME` with any subscription, or only a name, which may be a queue's or a topic's.
    """
    parts = [_any(_of_destination(name) for name in destinations)] if destinations else []
    if fingerprints:
        parts.append(f"error_fingerprint IN ({', '.join(map(_literal, fingerprints))})")
    parts += [f"headers[{_literal(name)}] = {_literal(value)}" for name, value in (headers or {}).items()]
    if min_attempts is not None:
        parts.append(f"failures >= {min_attempts:d}")
    if where is not None:
        if not where.strip():
            raise ConfigError(
                "an empty condition", where="--where", cure="Leave it out for all letters", code="plan-condition"
            )
        _refuse_foreign(where)
        parts.append(f"({where.strip()})" if parts else where.strip())
    return " AND ".join(parts) or None


def check_condition(spark: SparkSession, where: str) -> None:
    """Raise ConfigError for a text that is no condition over the columns of DEAD_LETTERS.

    Also raised for a condition that calls a function which is not Spark's own.
    """
    from pyspark.errors import PySparkException

    empty = spark.createDataFrame([], schemas.DEAD_LETTERS)
    try:
        with _unlogged():
            if hasattr(spark, "_jsparkSession"):
                _refuse_parsed(spark, where)
            else:
                _refuse_users_functions(spark, where)
            _ = empty.where(where).schema  # over Connect nothing is checked before this line
    except PySparkException as error:
        raise _condition_error(error, where, empty.columns) from None


def _bare(where: str) -> str:
    """Return the condition with its texts emptied, and its quoted names without quotes and unusual characters."""
    return _QUOTED.sub(lambda quoted: re.sub(r"\W", "_", quoted["name"]) if quoted["name"] else "''", where)


def _refuse_foreign(where: str) -> None:
    """Raise ConfigError for a condition that runs code outside of Spark SQL, or hides a part of itself.

    A condition may come from another person than the one who runs it. This function checks the text, before Spark is
    started; `check_condition` asks Spark's parser.
    """
    bare = _bare(where)
    if found := _COMMENT.search(bare):
        raise ConfigError(
            f"a comment, {found[0]}", where=f"--where {where}", cure="Leave it out", code="plan-condition"
        )
    if _VARIABLE.search(where):
        what = "${ begins a variable, and Spark would put the value of it there"
        raise ConfigError(
            what, where=f"--where {where}", cure=r"Write \u0024{ for the two characters", code="plan-condition"
        )
    if not _pairs(bare):
        what = "a bracket that closes or opens nothing"
        raise ConfigError(
            what, where=f"--where {where}", cure="Write as many ( as ), each before its )", code="plan-condition"
        )
    if found := _FOREIGN.search(bare):
        raise _foreign((found["function"] or found["word"]).lower(), where)


def _pairs(bare: str) -> bool:
    """Return whether the brackets pair up, so that none closes a bracket outside of the condition."""
    depth = 0
    for bracket in re.findall(r"[()]", bare):
        depth += 1 if bracket == "(" else -1
        if depth < 0:
            return False
    return depth == 0


def _foreign(name: str, where: str) -> ConfigError:
    what = f"{name} runs what is no part of Spark SQL, or reads other tables"
    return ConfigError(what, where=f"--where {where}", cure=_CURE, code="plan-condition")


def _refuse_parsed(spark: SparkSession, where: str) -> None:
    """Raise ConfigError for a condition with a query, a name made of a text, or a function that is not Spark's own.

    Checks the result of Spark's parser, so that no spelling can hide a call. Nothing of the condition is run.
    """
    session: Any = spark
    state = session._jsparkSession.sessionState()
    nodes = [state.sqlParser().parseExpression(where)]
    while nodes:
        node = nodes.pop()
        kinds = set(_classes(node))
        if "SubqueryExpression" in kinds:
            raise _foreign("a query", where)
        if "ExpressionWithUnresolvedIdentifier" in kinds:
            raise _foreign("identifier", where)
        if "UnresolvedFunction" in kinds:
            parts = node.nameParts()
            _refuse_function(session, [parts.apply(at) for at in range(parts.size())], where)
        children = node.children()
        nodes += [children.apply(at) for at in range(children.size())]


def _classes(node: Any) -> Iterator[str]:
    """Yield the names of the class of a Spark node, and of its superclasses."""
    kind = node.getClass()
    while kind is not None:
        yield kind.getSimpleName()
        kind = kind.getSuperclass()


def _refuse_function(session: Any, parts: Sequence[str], where: str) -> None:
    """Raise ConfigError unless the function is Spark's own. Spark's analysis reports functions that do not exist."""
    from pyspark.errors import AnalysisException

    *place, name = parts
    if ".".join(place).lower() not in _OWN:
        raise _foreign(".".join(parts), where)
    identifier = session._jvm.org.apache.spark.sql.catalyst.FunctionIdentifier(name)
    try:
        about = session._jsparkSession.sessionState().catalog().lookupFunctionInfo(identifier)
    except AnalysisException:
        return
    if about.getSource() != "built-in" or about.getClassName().rpartition(".")[2] in _REFLECTION:
        raise _foreign(name, where)


def _refuse_users_functions(spark: SparkSession, where: str) -> None:
    """Raise ConfigError for a function that a user has defined: over Connect there is no parser to ask."""
    users = {row[0].lower().rpartition(".")[2] for row in spark.sql("SHOW USER FUNCTIONS").collect()}
    for call in _CALL.finditer(_bare(where)):
        place = re.sub(r"\s", "", call["place"]).removesuffix(".").lower()
        if place not in _OWN or call["name"].lower() in users:
            raise _foreign(call["name"], where)


@contextmanager
def blamed_on(where: str | None) -> Iterator[None]:
    """Turn errors of Spark about a value that the condition cannot process into a ConfigError about the condition."""
    try:
        with _unlogged():
            yield
    except RedeliverError:
        raise
    except Exception as error:
        if where is None or not (found := _OF_A_VALUE.search(str(error))):
            raise
        reason = redact(found[2].partition(". ")[0])
        what = f"a letter has a value that it cannot bear: {reason}"
        cure = "Use try_cast, try_divide, try_element_at and their like, which give NULL then"
        raise ConfigError(what, where=f"--where {where}", cure=cure, code="plan-condition") from None


@contextmanager
def _unlogged() -> Iterator[None]:
    """Silence the logger with which Spark writes some errors to stderr, with a traceback, before it raises them."""
    from pyspark.logger import PySparkLogger

    logger = PySparkLogger.getLogger("SQLQueryContextLogger")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


def _condition_error(error: PySparkException, where: str, columns: Sequence[str]) -> ConfigError:
    kind = error.getCondition() or ""
    if kind.startswith("UNRESOLVED_COLUMN"):
        name = (error.getMessageParameters() or {}).get("objectName", "?")
        return ConfigError(
            f"there is no column {name}",
            where=f"--where {where}",
            cure=f"Columns are {', '.join(columns)}",
            code="plan-condition",
        )
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    what = _TAIL.sub("", re.sub(r"^\[[^\]]+\]\s*", "", lines[0] if lines else kind))
    return ConfigError(f"no condition: {what.rstrip('.')}", where=f"--where {where}", cure=_CURE, code="plan-condition")


def _of_destination(name: str) -> str:
    if not name.strip():
        raise ConfigError(
            "an empty name",
            where="--destination",
            cure="Write a name, `queue:NAME` or `topic:NAME`",
            code="destination-name",
        )
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
    """Return a text as a Spark SQL literal, without variables.

    Correct unless `spark.sql.parser.escapedStringLiterals` is set.
    """
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("${", "\\u0024{")
    return f"'{escaped}'"
