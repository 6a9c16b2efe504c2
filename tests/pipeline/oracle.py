# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Computes the marts once more, with DuckDB queries over the same Parquet, written from docs/marts.md in other shapes.

Where Spark aggregates, this module numbers the records of each history and looks them up in lists. Where Spark skips
records, this module does not. The storms of windows are walked through in Python.
"""

from __future__ import annotations

from typing import Any

import duckdb

Rows = list[dict[str, Any]]

_Z = "1.959963984540054"

_TABLES = """
CREATE TABLE told AS
SELECT *, CAST(make_timestamp(ts_us) AS DATE) AS day,
    outcome IN ('dead_lettered', 'discarded') AS died,
    CASE
        WHEN outcome = 'released' THEN 'release'
        WHEN outcome = 'accepted' THEN 'success'
        WHEN reason = 'expired' AND error_type IS NULL THEN 'verdict'
        WHEN reason NOT IN ('expired', 'exhausted') OR reason IS NULL THEN 'failure'
        WHEN outcome NOT IN ('dead_lettered', 'discarded') OR handler_us <> 0 THEN 'failure'
        WHEN error_type IS NULL OR last_failure_us < ts_us THEN 'verdict'
        ELSE 'failure'
    END AS kind
FROM events;

-- The records of histories in their order. A success at once is in none.
CREATE TABLE numbered AS
SELECT *, row_number() OVER (
    PARTITION BY message_key, generation, destination ORDER BY delivery_count, ts_us, record_id) AS place
FROM told
WHERE kind <> 'release' AND NOT (kind = 'success' AND delivery_count = 1 AND NOT broker_redelivered);

CREATE TABLE histories AS
SELECT message_key, generation, destination, list(numbered ORDER BY place) AS told,
    list(numbered ORDER BY place) FILTER (kind IN ('success', 'failure')) AS attempts,
    list(numbered ORDER BY place) FILTER (kind = 'failure') AS failures,
    list(numbered ORDER BY place) FILTER (kind = 'success') AS successes,
    list(numbered ORDER BY place) FILTER (kind = 'success' OR died) AS settled,
FROM numbered
GROUP BY ALL
HAVING count(*) FILTER (kind = 'failure') > 0;

CREATE TABLE ended AS
SELECT *, coalesce(settled, told)[-1] AS last,
    CASE WHEN failures[1].delivery_count > 1 THEN failures[1].first_attempt_us ELSE failures[1].ts_us END AS began_us,
    list_filter(attempts, lambda one: one.delivery_count <= 1000) AS shown
FROM histories;
"""

QUERIES = {
    "messages": """
SELECT message_key, generation, destination, last.broker, last.outcome, last.reason,
    failures[1].error_fingerprint AS fingerprint, failures[1].error_type AS error_type,
    last.policy_version, last.policy_arm, last.propensity, len(attempts) AS attempts, len(failures) AS failures,
    attempts[1].ts_us AS first_us, began_us AS first_failure_us, failures[-1].ts_us AS last_failure_us,
    successes[1].ts_us AS recovered_us, last.ts_us AS last_us,
    CAST(list_sum(list_transform(attempts, lambda one: one.handler_us)) AS BIGINT) AS handler_us,
    list_transform(shown, lambda one: {
        'attempt': one.delivery_count, 'ts_us': one.ts_us, 'outcome': one.outcome,
        'fingerprint': one.error_fingerprint, 'delay_us': one.delay_us, 'handler_us': one.handler_us}) AS history
FROM ended
""",
    "recovery": """
WITH steps AS (
    SELECT message_key, generation, destination, place, kind, ts_us, lag(ts_us) OVER (
        PARTITION BY message_key, generation, destination ORDER BY place) AS before_us
    FROM numbered
    WHERE kind IN ('success', 'failure') AND delivery_count <= 1000
), courses AS (
    SELECT message_key, generation, destination, bool_or(ts_us < before_us) AS jumps,
        min(place) FILTER (kind = 'success') AS success
    FROM steps
    GROUP BY ALL
), times AS MATERIALIZED (
    SELECT last.day, destination, failures[1].error_fingerprint AS fingerprint, last.policy_version,
        failures[-1].ts_us - began_us AS after_us, successes[1].ts_us - began_us AS until_us,
        coalesce(jumps, false) OR coalesce(failures[-1].place > success, false) OR after_us < 0
            OR coalesce(until_us < after_us, false) AS doubtful
    FROM ended LEFT JOIN courses USING (message_key, generation, destination)
), bounds AS MATERIALIZED (
    SELECT * REPLACE (CASE WHEN doubtful THEN 0 ELSE after_us END AS after_us, CASE WHEN NOT doubtful THEN until_us END
        AS until_us)
    FROM times
), shifts AS MATERIALIZED (
    SELECT *, greatest(0, length(bin(after_us)) - 8) AS lo, greatest(0, length(bin(until_us)) - 8) AS hi FROM bounds
)
SELECT day, destination, fingerprint, policy_version, CAST(lo * 128 + (after_us >> lo) AS INT) AS lo_bin,
    CAST(hi * 128 + (until_us >> hi) AS INT) AS hi_bin, count(*) AS n
FROM shifts
GROUP BY ALL
""",
    "attempt_curve": f"""
WITH attempts AS (
    SELECT day, message_key, generation, destination, delivery_count AS attempt, kind = 'success' AS accepted,
        ts_us, record_id
    FROM told
    WHERE kind IN ('success', 'failure')
), failed AS (
    SELECT attempts.record_id, arg_max(error_type, (delivery_count, numbered.ts_us, numbered.record_id)) AS error_type
    FROM attempts JOIN numbered USING (message_key, generation, destination)
    WHERE attempt > 1 AND kind = 'failure' AND error_type IS NOT NULL
        AND (delivery_count, numbered.ts_us, numbered.record_id) < (attempt, attempts.ts_us, attempts.record_id)
    GROUP BY ALL
), counted AS (
    SELECT day, destination, error_type, attempt, count(*) AS n, count(*) FILTER (accepted) AS n_accepted
    FROM attempts LEFT JOIN failed USING (record_id)
    GROUP BY ALL
)
SELECT *, n_accepted / n AS p_success,
    (n_accepted + {_Z}^2 / 2 - {_Z} * sqrt(n_accepted * (n - n_accepted) / n + {_Z}^2 / 4)) / (n + {_Z}^2) AS wilson_lo,
    (n_accepted + {_Z}^2 / 2 + {_Z} * sqrt(n_accepted * (n - n_accepted) / n + {_Z}^2 / 4)) / (n + {_Z}^2) AS wilson_hi
FROM counted
""",
    "poison": """
WITH lives AS (
    SELECT *, row_number() OVER (PARTITION BY message_key ORDER BY generation, delivery_count, ts_us, record_id) AS nth,
        max(generation) FILTER (died) OVER (PARTITION BY message_key) AS last_death
    FROM told
    WHERE kind <> 'release'
)
SELECT message_key, (list(destination ORDER BY nth) FILTER (died))[-1] AS destination,
    (list(error_fingerprint ORDER BY nth) FILTER (kind = 'failure'))[-1] AS fingerprint,
    count(*) FILTER (kind IN ('success', 'failure')) AS attempts,
    min(ts_us) AS first_us, max(ts_us) AS last_us, max(generation) AS replays,
    CASE
        WHEN count(*) FILTER (generation > last_death AND kind = 'success') > 0 THEN 'healed'
        WHEN count(*) FILTER (generation > last_death) > 0 THEN 'open'
        WHEN count(DISTINCT generation) FILTER (died) >= 2 OR count(*) FILTER (reason = 'crashed') > 0 THEN 'poison'
        ELSE 'dead'
    END AS verdict
FROM lives
WHERE last_death IS NOT NULL
GROUP BY message_key
""",
    "fingerprints": """
WITH RECURSIVE failed AS (
    SELECT *, row_number() OVER (PARTITION BY error_fingerprint ORDER BY ts_us, record_id) AS nth,
        row_number() OVER (
            PARTITION BY error_fingerprint ORDER BY coalesce(len(error_frames), -1) DESC, ts_us, record_id) AS by_length
    FROM told
    WHERE kind = 'failure' AND error_fingerprint IS NOT NULL
), found AS (
    SELECT error_fingerprint AS fingerprint, any_value(error_type) FILTER (nth = 1) AS error_type,
        substring(any_value(concat_ws(': ', error_type, error_message)) FILTER (nth = 1), 1, 500) AS example,
        any_value(error_frames) FILTER (by_length = 1) AS frames,
        count(*) AS n, min(ts_us) AS first_us, max(ts_us) AS last_us
    FROM failed
    GROUP BY error_fingerprint
), sets AS (
    SELECT fingerprint, error_type, list_distinct(CASE
        WHEN len(frames) >= 3 THEN list_transform(range(1, len(frames) - 1), lambda n: frames[n:n + 2])
        ELSE list_transform(frames, lambda one: [one]) END) AS set
    FROM found
    WHERE len(frames) > 0
), near AS (
    SELECT one.fingerprint AS this, other.fingerprint AS that
    FROM sets AS one JOIN sets AS other ON one.error_type IS NOT DISTINCT FROM other.error_type
    WHERE 5 * len(list_intersect(one.set, other.set)) >= 4 * len(list_distinct(one.set || other.set))
), linked AS (
    SELECT fingerprint, fingerprint AS other FROM found
    UNION
    SELECT fingerprint, that FROM linked JOIN near ON other = this
)
SELECT fingerprint, min(other) AS group, example, n, first_us, last_us
FROM found JOIN linked USING (fingerprint)
GROUP BY ALL
""",
    "waste": """
WITH spent AS (
    SELECT destination, failures[1].error_fingerprint AS fingerprint, last.died, last.day AS last_day,
        unnest(attempts) AS one
    FROM ended
), numbered_to_1001 AS (
    SELECT destination, fingerprint, died, one.handler_us AS handler_us, one.kind = 'success' AS accepted,
        least(one.delivery_count, 1001) AS attempt,
        CASE WHEN one.delivery_count <= 1000 THEN one.day ELSE last_day END AS day
    FROM spent
), hopes AS (
    SELECT destination, fingerprint, attempt
    FROM numbered_to_1001
    GROUP BY ALL
    HAVING attempt >= 2 AND avg(CAST(accepted AS INT)) >= 0.01
), last_hopes AS (
    SELECT destination, fingerprint, max(attempt) AS hope FROM hopes GROUP BY ALL
)
SELECT day, all_.destination, all_.fingerprint, count(*) AS attempts, CAST(sum(handler_us) AS BIGINT) AS handler_us,
    count(*) FILTER (attempt > coalesce(hope, 1)) AS hopeless_attempts
FROM numbered_to_1001 AS all_ LEFT JOIN last_hopes
    ON last_hopes.destination = all_.destination AND last_hopes.fingerprint IS NOT DISTINCT FROM all_.fingerprint
WHERE died
GROUP BY ALL
""",
    "dead_letter_flow": """
WITH sent_back AS (
    SELECT message_key, generation, destination, min(ts_us) AS began_us FROM told WHERE generation >= 1 GROUP BY ALL
), moves AS (
    SELECT day, destination, reason, 1 AS came, 0 AS went, CASE
        WHEN outcome = 'dead_lettered' AND NOT EXISTS (
            FROM events AS later
            WHERE later.message_key = told.message_key AND later.destination = told.destination
                AND later.generation > told.generation)
        THEN ts_us END AS waiting_us
    FROM told WHERE died
    UNION ALL
    SELECT CAST(make_timestamp(began_us) AS DATE), destination, (
        SELECT (list(reason ORDER BY ts_us, record_id))[-1] FROM told AS death
        WHERE died AND death.message_key = sent_back.message_key AND death.destination = sent_back.destination
            AND death.generation = sent_back.generation - 1), 0, 1, NULL
    FROM sent_back
)
SELECT day, destination, reason, CAST(sum(came) AS BIGINT) AS in, CAST(sum(went) AS BIGINT) AS out,
    min(waiting_us) AS oldest_us
FROM moves
GROUP BY day, destination, reason
""",
    # Random journals have one host: it is compared with nobody.
    "clocks": """
SELECT day, host, epoch_us(CAST(day AS TIMESTAMP)) AS since_us, epoch_us(CAST(day + 1 AS TIMESTAMP)) AS until_us,
    CAST(0 AS BIGINT) AS offset_us, CAST(0 AS BIGINT) AS error_us, CAST(0 AS BIGINT) AS pairs, 'in step' AS state
FROM numbered
WHERE kind IN ('success', 'failure')
GROUP BY day, host
""",
}

_WINDOWS = """
SELECT destination, ts_us // 10000000 AS window, count(*) AS attempts, count(*) FILTER (delivery_count = 1) AS firsts
FROM told
WHERE kind IN ('success', 'failure')
GROUP BY ALL
"""


class Oracle:
    """Computes what the marts of a Parquet file have to say."""

    def __init__(self, events: str) -> None:
        self._db = duckdb.connect()
        self._db.execute("CREATE TABLE events AS FROM read_parquet(?)", [events])
        self._db.execute(_TABLES)

    def mart(self, name: str) -> Rows:
        return self._rows(QUERIES[name])

    def storms(self, begin: tuple[int, float], end: tuple[int, float]) -> Rows:
        """Return the windows with their states; `begin` and `end` are each a number of retries and an amplification."""
        found = {(one["destination"], one["window"]): one for one in self._rows(_WINDOWS)}
        storms, raging = list[dict[str, Any]](), dict[str, int]()  # destination: its last window of a storm
        for (destination, window), one in sorted(found.items()):
            attempts, firsts = one["attempts"], one["firsts"]
            retries, amplification = attempts - firsts, attempts / firsts if firsts else None
            raged = raging.get(destination) == window - 1
            begins = retries >= begin[0] and (amplification is None or amplification >= begin[1])
            ends = retries < end[0] or (amplification is not None and amplification < end[1])
            if begins or (raged and not ends):
                raging[destination] = window
            storms.append(
                {
                    "window_us": window * 10_000_000,
                    "destination": destination,
                    "attempts": attempts,
                    "first_attempts": firsts,
                    "retries": retries,
                    "amplification": amplification,
                    "state": "storm" if raging.get(destination) == window else "calm",
                }
            )
        return storms

    def _rows(self, query: str) -> Rows:
        result = self._db.execute(query)
        names = [column[0] for column in result.description]
        return [dict(zip(names, values, strict=True)) for values in result.fetchall()]
