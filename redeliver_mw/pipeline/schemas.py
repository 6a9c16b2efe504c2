# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Defines the tables of a lake, as DDL: the promised names and types, which `redeliver pipeline schema` prints.

Names ending in `_us` are int64 microseconds, points in time since 1970, UTC; `_s` are seconds; `day` is the day in UTC.
Imports no pyspark.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from ..journal.records import COUNT_SCHEMA, SCHEMA

Row: TypeAlias = Mapping[str, Any]
"""A row of a table, as Spark or Arrow gives it to Python: values by the names of the columns."""

_TYPES: Final = {
    "string": "STRING",
    "bool": "BOOLEAN",
    "int16": "SMALLINT",
    "int32": "INT",
    "int64": "BIGINT",
    "double": "DOUBLE",
    "list<string>": "ARRAY<STRING>",
}

# The fields of the journal, and the day of `ts_us` by which the files are partitioned.
EVENTS: Final = ", ".join(f"{name} {_TYPES[kind.type]}" for name, kind in SCHEMA.items())
EVENTS_WITH_DAY: Final = f"{EVENTS}, dt DATE"

# Counts of messages that were handled at once, `journal_healthy="counts"`; the day is that of `ts_us`, too.
HEALTHY_COUNTS: Final = ", ".join(
    f"{name} {_TYPES[kind.type]}" for name, kind in COUNT_SCHEMA.items() if name != "kind"
)
HEALTHY_COUNTS_WITH_DAY: Final = f"{HEALTHY_COUNTS}, dt DATE"

# A line that is no record: its segment and start, its length, why, and its first bytes as text.
QUARANTINE: Final = "segment STRING, offset BIGINT, length BIGINT, reason STRING, head STRING"

ATTEMPT_CURVE: Final = (
    "day DATE, destination STRING, error_type STRING, attempt INT, n BIGINT, n_accepted BIGINT, "
    "p_success DOUBLE, wilson_lo DOUBLE, wilson_hi DOUBLE"
)
RECOVERY: Final = (
    "day DATE, destination STRING, fingerprint STRING, policy_version STRING, lo_bin INT, hi_bin INT, n BIGINT"
)
MESSAGES: Final = (
    "message_key STRING, generation INT, destination STRING, broker STRING, outcome STRING, reason STRING, "
    "fingerprint STRING, error_type STRING, policy_version STRING, policy_arm STRING, propensity DOUBLE, "
    "attempts INT, failures INT, first_us BIGINT, first_failure_us BIGINT, last_failure_us BIGINT, "
    "recovered_us BIGINT, last_us BIGINT, "
    "handler_us BIGINT, "
    "history ARRAY<STRUCT<attempt: INT, ts_us: BIGINT, outcome: STRING, fingerprint: STRING, delay_us: BIGINT, "
    "handler_us: BIGINT>>"
)
POISON: Final = (
    "message_key STRING, destination STRING, fingerprint STRING, attempts BIGINT, first_us BIGINT, last_us BIGINT, "
    "replays INT, verdict STRING"
)
FINGERPRINTS: Final = "fingerprint STRING, group STRING, example STRING, n BIGINT, first_us BIGINT, last_us BIGINT"
WASTE: Final = (
    "day DATE, destination STRING, fingerprint STRING, attempts BIGINT, handler_us BIGINT, hopeless_attempts BIGINT"
)
STORMS: Final = (
    "window_us BIGINT, destination STRING, attempts BIGINT, first_attempts BIGINT, retries BIGINT, "
    "amplification DOUBLE, state STRING"
)
DEAD_LETTER_FLOW: Final = "day DATE, destination STRING, reason STRING, in BIGINT, out BIGINT, oldest_us BIGINT"
CLOCKS: Final = (
    "day DATE, host STRING, since_us BIGINT, until_us BIGINT, offset_us BIGINT, error_us BIGINT, pairs BIGINT, "
    "state STRING"
)

MARTS: Final = {
    "attempt_curve": ATTEMPT_CURVE,
    "recovery": RECOVERY,
    "messages": MESSAGES,
    "poison": POISON,
    "fingerprints": FINGERPRINTS,
    "waste": WASTE,
    "storms": STORMS,
    "dead_letter_flow": DEAD_LETTER_FLOW,
    "clocks": CLOCKS,
}

BACKTEST: Final = (
    "candidate STRING, destination STRING, error_fingerprint STRING, messages BIGINT, p_recover DOUBLE, "
    "p_recover_lo DOUBLE, p_recover_hi DOUBLE, dead_letter_share DOUBLE, attempts_per_message DOUBLE, "
    "wasted_attempts DOUBLE, ttr_mean_s DOUBLE, ttr_p50_s DOUBLE, ttr_p95_s DOUBLE, extrapolated_share DOUBLE, "
    "extrapolated BOOLEAN, pareto BOOLEAN"
)

# A dead letter that was drained. docs/drain.md describes the columns. `letter`: the letter as its reader packed it,
# needed to send it back; null for letters whose body was left out. `owner`: `lake`, or `broker` for letters that were
# only looked at. `problem`: why the letter cannot be sent back; null if it can.
DEAD_LETTERS: Final = (
    "dl_id STRING, message_key STRING, original_destination STRING, dlq STRING, broker STRING, dead_us BIGINT, "
    "failures INT, error_fingerprint STRING, error_type STRING, reason STRING, headers MAP<STRING, STRING>, "
    "content_type STRING, body BINARY, body_sha256 STRING, body_bytes BIGINT, source STRING, drain_run_id STRING, "
    "staged_us BIGINT, "
    "owner STRING, dialect STRING, message_id STRING, group_id STRING, generation INT, replay_id STRING, "
    "problem STRING, redelivered BOOLEAN, letter BINARY"
)
LIMBO: Final = "limbo"  # source and owner of a message that stays in a limbo; a manifest adds the limbo's place

# A letter in a plan. `target` is its destination. `edits`: JSON of the changes, `{"headers": {name: value or null}}`; a
# changed body is in `body`, and marked by `edited_body`. `rank` counts all letters of the plan in the order in which
# they are sent, from 0; `position` those of one bucket, which is one file.
PLAN: Final = (
    "position INT, rank BIGINT, dl_id STRING, message_key STRING, group_id STRING, target STRING, dlq STRING, "
    "broker STRING, dialect STRING, owner STRING, generation INT, dead_us BIGINT, error_fingerprint STRING, "
    "redelivered BOOLEAN, letter BINARY, body BINARY, body_sha256 STRING, edited_body BOOLEAN, edits STRING"
)

ALL: Final = {
    "events": EVENTS_WITH_DAY,
    "quarantine": QUARANTINE,
    "healthy_counts": HEALTHY_COUNTS_WITH_DAY,
    **MARTS,
    "backtest": BACKTEST,
    "dead_letters": DEAD_LETTERS,
    "plan": PLAN,
}
