# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Names every metric, with its kind, its labels, its help text, and how the values of several processes become one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["counter", "gauge", "histogram"]
Merge = Literal["sum", "max", "min"]


@dataclass(frozen=True, slots=True)
class MetricFamily:
    """Describes one metric. The name of a counter ends in `_total`."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    help: str
    merge: Merge = "sum"


ERROR_TYPES = 20  # with a label value of their own

# Upper bounds of the buckets of every histogram, in seconds: those that the OpenTelemetry conventions advise.
BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)

ATTEMPTS = "redeliver_attempts_total"
FIRST_ATTEMPTS = "redeliver_first_attempts_total"
DEAD_LETTERS = "redeliver_dead_letters_total"
NEW_FINGERPRINTS = "redeliver_new_fingerprints_total"
DELAYS = "redeliver_delays_total"
HANDLER_DURATION = "redeliver_handler_duration_seconds"
CONFIRM_DURATION = "redeliver_copy_confirm_duration_seconds"
SETTLE_DURATION = "redeliver_settle_duration_seconds"
LAST_SETTLE = "redeliver_last_settle_timestamp_seconds"
WAITING = "redeliver_waiting_messages"
HELD = "redeliver_held_messages"
HOLD_BUDGET = "redeliver_hold_budget_used_ratio"
PARKED = "redeliver_parked_messages"
PARKED_DUE = "redeliver_parked_due_timestamp_seconds"
QUEUE_MESSAGES = "redeliver_dead_letter_queue_messages"
QUEUE_OLDEST = "redeliver_dead_letter_oldest_timestamp_seconds"
STORED = "redeliver_stored_dead_letters"
STORED_OLDEST = "redeliver_stored_dead_letter_oldest_timestamp_seconds"
BREAKER_STATE = "redeliver_breaker_state"
CONNECTION_UP = "redeliver_connection_up"
POLICY_INFO = "redeliver_policy_info"

_SOURCE = ("source",)

FAMILIES = (
    MetricFamily(
        ATTEMPTS,
        "counter",
        ("source", "outcome", "error_type"),
        "Attempts by their outcome. error_type is empty for an attempt that did not fail.",
    ),
    MetricFamily(FIRST_ATTEMPTS, "counter", _SOURCE, "Attempts that were the first ones of their messages."),
    MetricFamily(DEAD_LETTERS, "counter", ("source", "reason"), "Messages that were dead-lettered."),
    MetricFamily(NEW_FINGERPRINTS, "counter", _SOURCE, "Failures of a kind that was not seen since the start."),
    MetricFamily(DELAYS, "counter", ("source", "mechanism"), "Delays by the way in which the message waits."),
    MetricFamily(HANDLER_DURATION, "histogram", _SOURCE, "Time that the handler took for one message."),
    MetricFamily(CONFIRM_DURATION, "histogram", _SOURCE, "Time until the broker, or the limbo, confirmed a copy."),
    MetricFamily(SETTLE_DURATION, "histogram", _SOURCE, "Time until the settlement of a retrying message was written."),
    MetricFamily(LAST_SETTLE, "gauge", _SOURCE, "When a message was last settled; at first, the start.", "max"),
    MetricFamily(WAITING, "gauge", _SOURCE, "Messages that wait here for their handler, or are in it."),
    MetricFamily(HELD, "gauge", _SOURCE, "Messages that are held here until their next attempt."),
    MetricFamily(HOLD_BUDGET, "gauge", _SOURCE, "Share of the hold budget that is taken.", "max"),
    MetricFamily(PARKED, "gauge", (), "Messages that wait in the limbo."),
    MetricFamily(PARKED_DUE, "gauge", (), "When the first message of the limbo is due.", "min"),
    MetricFamily(QUEUE_MESSAGES, "gauge", ("queue",), "Messages in a dead-letter queue.", "max"),
    MetricFamily(
        QUEUE_OLDEST, "gauge", ("queue",), "When the oldest message of a dead-letter queue came into it.", "min"
    ),
    MetricFamily(STORED, "gauge", _SOURCE, "Dead letters of a source that wait in the store.", "max"),
    MetricFamily(STORED_OLDEST, "gauge", _SOURCE, "When the oldest of these was dead-lettered.", "min"),
    MetricFamily(
        BREAKER_STATE, "gauge", ("source", "state"), "1 for the state that the breaker of a source is in.", "max"
    ),
    MetricFamily(
        CONNECTION_UP, "gauge", ("connection",), "1 for a connection that is up, 0 for one that is not.", "min"
    ),
    MetricFamily(POLICY_INFO, "gauge", ("source", "version"), "Always 1: names the policy of a source.", "max"),
)
BY_NAME = {family.name: family for family in FAMILIES}
