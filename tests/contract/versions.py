# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Says which tests of the contract `make test` runs on a further version of a broker, or a further kind of its queues.

The whole contract runs on one version of each broker: ActiveMQ 6.3, Artemis 2.44, RabbitMQ 4.3 through pika and, with
quorum queues, through proton. A class of another version or kind says `further = True`. Of its tests those run in
`make test` that hold what brokers have changed between versions, or what kinds of queues do differently: how they
count, return, delay and refuse, and what they keep over a cut or a restart. The others are marked `long`, and run in
`make test-all`.
"""

from __future__ import annotations

import pytest

# Classes of tests that run everywhere as a whole.
EVERYWHERE = {"Doubts", "WithDeclaredQueues", "_OnRabbitMQ"}
# Tests of other classes that run everywhere.
VARIES = {
    "test_a_broker_without_memory_is_waited_for",
    "test_a_dead_letter_carries_the_marks_that_the_brokers_own_tools_look_for",
    "test_a_delayed_message_goes_out_later_and_the_others_at_once",
    "test_a_full_target_keeps_its_message_and_pauses_the_source",
    "test_a_long_delay_is_waited_out_by_copies_at_the_broker",
    "test_a_missing_target_is_made_or_named",
    "test_a_nacked_message_comes_back_later_with_its_count",
    "test_after_the_last_failure_it_lies_in_the_dead_letter_queue",
    "test_browsing_leaves_every_message_where_it_was",
    "test_headers_just_within_the_budget_are_copied",
    "test_headers_keep_their_types_and_values",
    "test_it_is_tried_exactly_as_often_as_the_policy_says",
    "test_more_nacks_than_the_broker_would_count_do_no_harm",
    "test_the_depth_is_what_waits",
}


def is_left_to_test_all(item: pytest.Item) -> bool:
    """Return whether `make test` leaves this test of the contract out."""
    if not isinstance(item, pytest.Function) or not getattr(item.cls, "further", False):
        return False
    name = item.originalname
    owner = next(base for base in item.cls.__mro__ if name in vars(base))
    return owner is not item.cls and owner.__name__ not in EVERYWHERE and name not in VARIES
