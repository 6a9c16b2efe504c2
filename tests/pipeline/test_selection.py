# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""A condition that may come from somebody else can look at letters, and do nothing besides."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from redeliver_mw.errors import ConfigError
from redeliver_mw.pipeline.plans.selection import check_condition, condition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REPOSITORY = Path(__file__).resolve().parents[2]
EXIT = "('java.lang.System', 'exit', 3) IS NULL"


@pytest.mark.parametrize(
    ("where", "told"),
    [
        ("java_method('java.lang.System', 'exit', 3) IS NULL", "java_method"),
        ("failures > 3 OR Reflect ('java.lang.System', 'exit', 3) IS NULL", "reflect"),
        ("`java_method`('java.lang.System', 'exit', 3) IS NULL", "java_method"),
        ("builtin.`try_reflect`\n('java.lang.System', 'exit', 3) IS NULL", "try_reflect"),
        (r"error_type = r'\' OR java_method('java.lang.System', 'exit', 3) IS NULL OR error_type = ''", "java_method"),
        ("error_type IN (SELECT TRANSFORM(1) USING 'sh -c true')", "select"),
        (f"IDENTIFIER('java_' || 'method'){EXIT}", "identifier"),
        (f"CASE WHEN failures > 3 THEN true ELSE java_method{EXIT} END", "java_method"),
        ("EXISTS (TABLE secrets)", "table"),
        ("true -- and failures > 3", "a comment"),
        ("true /* and failures > 3 */", "a comment"),
        ("failures > 3 -- \n OR true", "a comment"),
        ("error_type = '${env:PASSWORD}'", "a variable"),
        ("ref${system:nothing}lect('java.lang.System', 'exit', 3) IS NULL", "a variable"),
        ("failures > 3) OR (true", "a bracket"),
        ("(failures > 3", "a bracket"),
    ],
)
def test_a_condition_that_runs_code_or_hides_a_part_is_refused(where: str, told: str) -> None:
    with pytest.raises(ConfigError) as refused:
        condition(where)
    assert told in str(refused.value)
    assert refused.value.where.startswith("--where")
    assert refused.value.cure


@pytest.mark.parametrize(
    "where",
    [
        "error_message = 'reflect(x) -- no comment'",
        """headers['kind'] = "select" """,
        r"error_message LIKE '%it\'s -- %'",
        "failures >= 3 AND size(filter(map_keys(headers), name -> name LIKE 'x-%')) > 1",
        "failures - -1 > 3",
    ],
)
def test_what_stands_in_a_text_is_no_code(where: str) -> None:
    assert condition(where) == where.strip()


def test_a_value_of_an_option_is_a_text_whatever_stands_in_it(spark: SparkSession) -> None:
    values = ["${system:user.home}", "it's", "\\", "') OR (true", "-- ", "reflect('a', 'b')"]
    rows = spark.createDataFrame([(value, {"h": value}) for value in values], "v STRING, headers MAP<STRING, STRING>")
    for value in values:
        asked = condition(headers={"h": value})
        assert asked is not None
        assert [row["v"] for row in rows.where(asked).collect()] == [value]


@pytest.fixture(scope="module")
def functions(spark: SparkSession) -> Iterator[None]:
    """Register functions of a session that call Java and Python under names of their own."""
    spark.udf.register("through_python", lambda value: value, "string")
    spark.sql(
        "CREATE OR REPLACE TEMPORARY FUNCTION through_sql(x INT) RETURNS STRING "
        "RETURN java_method('java.lang.System', 'getProperty', 'user.home')"
    )
    yield
    for name in ("through_python", "through_sql"):
        spark.sql(f"DROP TEMPORARY FUNCTION {name}")


@pytest.mark.parametrize(
    "where",
    [
        f"java_method{EXIT}",
        f"JAVA_Method \n {EXIT}",
        f"`java_method`{EXIT}",
        f"java_method /* nothing */ {EXIT}",
        f"builtin.reflect{EXIT}",
        f"system.builtin.try_reflect{EXIT}",
        f"IDENTIFIER('java_method'){EXIT}",
        f"identifier /* */ ('java_' || 'method'){EXIT}",
        f"CASE WHEN failures > 3 THEN true ELSE java_method{EXIT} END",
        f"size(transform(array(1), x -> reflect{EXIT})) > 0",
        f"headers[reflect{EXIT[:-8]}] = 'a'",
        f"failures IN (1, CAST(java_method{EXIT[:-8]} AS INT))",
        "through_python(error_type) = 'a'",
        "size(transform(array('a'), x -> through_python(x))) > 0",
        "through_sql(3) IS NULL",
        "session.through_sql(3) IS NULL",
        "`through_sql`(failures) = 'a'",
        "somewhere.else.through_sql(3) IS NULL",
        "failures IN (SELECT 1)",
        f"EXISTS (SELECT * FROM VALUES (1) WHERE java_method{EXIT})",
        "failures = (SELECT max(id) FROM range(3))",
        "EXISTS (TABLE secrets)",
    ],
)
def test_sparks_own_parser_finds_every_call_that_leaves_spark_sql(
    spark: SparkSession, functions: None, where: str
) -> None:
    with pytest.raises(ConfigError, match="runs what is no part of Spark SQL") as refused:
        check_condition(spark, where)
    assert refused.value.where.startswith("--where")
    assert spark.range(1).count() == 1  # the driver is alive


@pytest.mark.parametrize(
    "where",
    [
        "error_type = 'TimeoutError' AND failures >= 3",
        "headers['tenant'] = 'acme' AND try_variant_get(try_parse_json(CAST(body AS STRING)), '$.a', 'double') > 100",
        "exists(map_keys(headers), name -> name LIKE 'x-%') AND failures BETWEEN 1 AND 9",
        "CASE WHEN failures > 3 THEN error_type ILIKE ANY ('a%', 'b') ELSE dead_us IS NOT NULL END",
        "EXTRACT(YEAR FROM timestamp_micros(dead_us)) = 2026 AND to_date(timestamp_micros(dead_us)) < current_date",
        "lower(error_type) RLIKE 'java_method' OR builtin.upper(reason) = 'REFLECT(X)' OR body = x'00'",
        "rand() < 0.5",
    ],
)
def test_sparks_own_functions_are_taken(spark: SparkSession, where: str) -> None:
    assert condition(where) == where
    check_condition(spark, where)


CONNECT = """
from redeliver_mw.errors import ConfigError
from redeliver_mw.pipeline import session
from redeliver_mw.pipeline.plans.selection import check_condition
spark = session("local-connect[1]")
assert "connect" in type(spark).__module__, type(spark)
spark.udf.register("through_python", lambda value: value, "string")
check_condition(spark, "size(filter(map_keys(headers), name -> name LIKE 'x-%')) > 1 AND lower(error_type) IN ('a')")
for where in ("through_python(error_type) = 'a'", "session.through_python ('a') = 'a'", "a.b.c(1) = 1"):
    try:
        check_condition(spark, where)
    except ConfigError as error:
        assert "no part of Spark SQL" in str(error), error
    else:
        raise AssertionError(where)
spark.stop()
"""


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("connect_port")
def test_over_spark_connect_a_users_function_is_refused_by_its_name(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "adapters")])}
    done = subprocess.run(
        [sys.executable, "-c", CONNECT], capture_output=True, text=True, env=environment, cwd=tmp_path, timeout=800
    )
    assert done.returncode == 0, done.stderr
