# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""The tables of a lake, as DDL: names and types that are promised, and what `redeliver pipeline schema` prints.

Names ending in `_us` are int64 microseconds, points in time since 1970, UTC; `_s` are seconds; `day` is the day in
UTC. No pyspark in here.
"""

from __future__ import annotations

from typing import Final

from ..record import SCHEMA

_TYPES: Final = {
    "string": "STRING", "bool": "BOOLEAN", "int16": "SMALLINT", "int32": "INT", "int64": "BIGINT",
    "double": "DOUBLE", "list<string>": "ARRAY<STRING>",
}  # fmt: skip

# What the journal says, and the day of `ts_us` by which the files are parted.
EVENTS: Final = ", ".join(f"{name} {_TYPES[kind.type]}" for name, kind in SCHEMA.items())
EVENTS_WITH_DAY: Final = f"{EVENTS}, dt DATE"

# A line that is no record: where it begins in which segment, how long it is, why, and its first bytes as text.
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

MARTS: Final = {
    "attempt_curve": ATTEMPT_CURVE,
    "recovery": RECOVERY,
    "messages": MESSAGES,
    "poison": POISON,
    "fingerprints": FINGERPRINTS,
    "waste": WASTE,
    "storms": STORMS,
    "dead_letter_flow": DEAD_LETTER_FLOW,
}

BACKTEST: Final = (
    "candidate STRING, destination STRING, error_fingerprint STRING, messages BIGINT, p_recover DOUBLE, "
    "p_recover_lo DOUBLE, p_recover_hi DOUBLE, dead_letter_share DOUBLE, attempts_per_message DOUBLE, "
    "wasted_attempts DOUBLE, ttr_mean_s DOUBLE, ttr_p50_s DOUBLE, ttr_p95_s DOUBLE, extrapolated_share DOUBLE, "
    "extrapolated BOOLEAN, pareto BOOLEAN"
)

ALL: Final = {"events": EVENTS_WITH_DAY, "quarantine": QUARANTINE, **MARTS, "backtest": BACKTEST}
