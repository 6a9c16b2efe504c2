# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""A condition that may come from somebody else: it can look at letters, and do nothing besides."""

from __future__ import annotations

import pytest

from redeliver_mw.errors import ConfigError
from redeliver_mw.pipeline.plans.selection import condition


@pytest.mark.parametrize(
    ("where", "told"),
    [
        ("java_method('java.lang.System', 'exit', 3) IS NULL", "java_method"),
        ("failures > 3 OR Reflect ('java.lang.System', 'exit', 3) IS NULL", "reflect"),
        ("`java_method`('java.lang.System', 'exit', 3) IS NULL", "java_method"),
        ("builtin.`try_reflect`\n('java.lang.System', 'exit', 3) IS NULL", "try_reflect"),
        (r"error_type = r'\' OR java_method('java.lang.System', 'exit', 3) IS NULL OR error_type = ''", "java_method"),
        ("error_type IN (SELECT TRANSFORM(1) USING 'sh -c true')", "select"),
        ("true -- and failures > 3", "a comment"),
        ("true /* and failures > 3 */", "a comment"),
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
