# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Says which tests are left to `make test-all`, and why; which `make test-fast` leaves out; and which begin first.

`make test` runs each test on the newest version of each broker that it is for, and of a product of parameters some
pairs, so that each value occurs. A row names a file, a test of it (`*` is all of them), and a regular expression. A
variant is marked `long` if its parameters match the expression; an empty expression means the whole test.
`tests/contract/versions.py` says what of the contract is left out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest

OLDER = r"activemq518|rabbitmq310"
OTHERS_SAME = "what the test asks does not depend on the broker's version; the contract runs on each"
PAIRS = "a product of broker, moment and way; each of them occurs in those that are left"

# Several workers take a file each. These take longest, so they begin first: none is left alone at the end.
FIRST = [
    "infrastructure/test_short_form.py",
    "cli/test_dead.py",
    "contract/test_pika_contract.py",
    "contract/test_stomp_contract.py",
    "operations/test_collect_brokers.py",
    "contract/test_proton_rabbitmq_contract.py",
    "cli/test_run_health.py",
    "faults/test_processes.py",
    "faults/test_order_over_stops.py",
    "adapters/proton/test_postponing.py",
    "faults/test_sendback_kills.py",
    "contract/test_proton_contract.py",
    "faults/test_chaos.py",
    "faults/test_main_job.py",
    "adapters/pika/test_limits.py",
    "pipeline/test_quarter.py",
    "pipeline/test_drain_brokers.py",
    "pipeline/backtest/test_backtest_cli.py",
    "pipeline/test_insights.py",
    "pipeline/test_mart_set.py",
    "pipeline/test_replay_brokers.py",
    "pipeline/test_compaction.py",
    "tls/test_tls.py",
    "operations/test_replay_brokers.py",
    "faults/test_order.py",
    "faults/test_kills.py",
    "cli/test_bad_input.py",
    "conventions/test_proton_conventions.py",
    "test_writing_an_adapter.py",
]


# Unit tests that `make test-fast` leaves to `make test`: they take more than half of the processor time of all.
SLOW = [
    "simulation/test_simulation.py",
    "redelivery/test_interceptor_walk.py",
    "cli/test_bad_input.py",
    "pipeline/test_head.py",
    "cli/test_run_processes.py",
    "test_texts.py",
    "cli/test_run.py",
    "cli/test_run_health.py",
    "policy/test_conversion.py",
    "pipeline/backtest/test_errors.py",
    "operations/test_listing.py",
    "pipeline/test_compaction_task.py",
    "cli/test_triage.py",
    "policy/test_xml_places.py",
    "api/test_operations.py",
    "limbo/test_store.py",
    "test_costs.py",
    "pipeline/test_s3_letters.py",
    "operations/test_shelf.py",
    "dead_letters/test_replay.py",
    "redelivery/test_ledger.py",
    "policy/test_findings.py",
    "storage/test_header_values.py",
    "operations/test_letter_states.py",
    "doctor/test_artemis.py",
    "limbo/test_app_in_bad_weather.py",
    "limbo/test_weather.py",
    "cli/test_bad_urls.py",
    "pipeline/backtest/test_assumptions.py",
    "operations/filters/test_filter_meaning.py",
    "operations/test_transfer.py",
    "cli/test_api.py",
    "pipeline/backtest/test_assessment.py",
]


@dataclass(frozen=True)
class LongTest:
    """Names variants of one test, or of all tests of a file, that only `make test-all` runs."""

    file: str
    test: str
    parameters: str
    reason: str

    def covers(self, file: str, test: str, parameters: str) -> bool:
        """Return whether this row is about a variant of a test."""
        return file == self.file and self.test in ("*", test) and re.search(self.parameters, parameters) is not None


LONG = [
    LongTest(
        "adapters/pika/test_limits.py",
        "test_a_policy_and_an_argument_together_are_read_as_they_act",
        r"310-(9|-1)$",
        PAIRS,
    ),
    LongTest(
        "adapters/pika/test_retry_ladder.py",
        "test_in_a_second_start_under_a_storm_healthy_messages_come_as_soon_as_in_an_old_process",
        r"310-dropin|43-app",
        PAIRS,
    ),
    LongTest(
        "telemetry/test_real_prometheus.py",
        "test_alerts_fire_in_an_outage_and_resolve_after_it_and_the_values_equal_the_journal_s",
        r"activemq|artemis",
        "the same sequence on the other brokers, half a minute each",
    ),
    LongTest("adapters/stomp/test_adapter.py", "*", "own518", OTHERS_SAME),
    LongTest("adapters/stomp/test_bad_input.py", "*", "own518", OTHERS_SAME),
    LongTest("adapters/stomp/test_tls.py", "*", "own518", OTHERS_SAME),
    LongTest("adapters/stomp/test_virtual_topics.py", "*", "own518", OTHERS_SAME),
    LongTest("adapters/pika/test_wrapper_lost_connections.py", "*", OLDER, OTHERS_SAME),
    LongTest("adapters/pika/test_wrapper_main_job.py", "*", OLDER, OTHERS_SAME),
    LongTest("adapters/pika/test_wrapper_settlements.py", "*", OLDER, OTHERS_SAME),
    LongTest("adapters/pika/test_wrapped_channel.py", "*", OLDER, OTHERS_SAME),
    LongTest("brokers/test_brokers.py", "test_confirmed_messages_are_there_after_kill_and_start", OLDER, OTHERS_SAME),
    LongTest("brokers/test_brokers.py", "test_it_listens_on_the_loopback_only", OLDER, OTHERS_SAME),
    LongTest("brokers/test_brokers.py", "test_nothing_is_left_after_stop", OLDER, OTHERS_SAME),
    LongTest("brokers/test_brokers.py", "test_nothing_is_left_when_its_owner_is_killed", OLDER, OTHERS_SAME),
    LongTest("cli/test_dead.py", "test_a_dead_letter_queue_that_is_not_there", OLDER, OTHERS_SAME),
    LongTest("cli/test_dead.py", "test_a_letter_is_shown_with_its_headers_and_its_body", OLDER, OTHERS_SAME),
    LongTest("cli/test_dead.py", "test_an_id_that_no_letter_has", OLDER, OTHERS_SAME),
    LongTest("cli/test_dead.py", "test_letters_go_back_as_they_were", OLDER, OTHERS_SAME),
    LongTest("cli/test_dead.py", "test_letters_are_listed_and_stay", OLDER, OTHERS_SAME),
    LongTest("cli/test_dead.py", "test_letters_of_a_queue_are_chosen_in_memory", OLDER, OTHERS_SAME),
    LongTest("contract/test_too_large.py", "*", r"^3\.10-pika", OTHERS_SAME),
    LongTest(
        "operations/test_control_brokers.py",
        "test_every_process_of_an_app_obeys_also_one_that_is_started_again",
        "",
        "it kills a process and waits for the next one; two Apps on a broker in memory stay",
    ),
    LongTest(
        "notifications/test_shared.py",
        "*",
        r"postgresql",
        "what an App does with the store; the reading and writing itself is tested in test_shared_outages",
    ),
    LongTest(
        "notifications/test_shared.py",
        "test_the_webhook_of_the_command_line_is_that_of_all_processes_and_in_no_process_list",
        "",
        "it starts three processes; the option itself is tested in one",
    ),
    LongTest("conventions/test_pika_conventions.py", "*", OLDER, OTHERS_SAME),
    LongTest(
        "dead_letters/test_foreign_clients.py",
        "*",
        "",
        "it needs an environment with seven frameworks; letters that their clients made are kept as files",
    ),
    LongTest("doctor/test_activemq.py", "*", OLDER, OTHERS_SAME),
    LongTest(
        "doctor/test_artemis.py",
        "test_a_wrong_target_is_found_with_its_cure",
        r"it blocks|it is for others|letters are deleted",
        "a similar setting stays: one of each kind",
    ),
    LongTest("doctor/test_rabbitmq.py", "*", OLDER, OTHERS_SAME),
    LongTest(
        "doctor/test_rabbitmq.py",
        "test_a_wrong_setting_is_found_with_its_cure",
        r"an operator limits|deleted with its last|go to their own queue|the source drops",
        "a similar setting stays: one of each kind",
    ),
    LongTest(
        "doctor/test_rabbitmq.py",
        "test_a_user_who_may_list_no_policies_learns_them_of_the_queue",
        "",
        "it waits until the management has gathered a policy; the list of policies is told at once",
    ),
    LongTest("faults/test_breaker.py", "*", OLDER, OTHERS_SAME),
    LongTest("faults/test_crash_safe.py", "*", OLDER, OTHERS_SAME),
    LongTest("faults/test_expired_letters.py", "*", OLDER, OTHERS_SAME),
    LongTest("faults/test_interop.py", "*", OLDER, OTHERS_SAME),
    LongTest("faults/test_kills.py", "*", r"app-classic-rabbitmq310", PAIRS),
    LongTest("faults/test_kills_activemq.py", "*", r"drop-in-queue-activemq63", PAIRS),
    LongTest("faults/test_kills_artemis.py", "*", r"decorated", PAIRS),
    LongTest(
        "faults/test_main_job.py", "*", r"310-classic-(?!app)|310-quorum-(?!drop-in)|43-classic-(?!decorated)", PAIRS
    ),
    LongTest("faults/test_order.py", "*", OLDER, OTHERS_SAME),
    LongTest(
        "faults/test_order_over_stops.py",
        "test_twenty_keys_with_held_messages_in_front_are_in_order_after_an_end",
        r"activemq518|rabbitmq310 (classic|quorum-)|limit-stop",
        PAIRS,
    ),
    LongTest(
        "faults/test_order_over_stops.py",
        "test_delays_that_others_wait_out_in_copies_at_the_broker_keep_the_order_too",
        r"(activemq63|classic)-stop|(artemis244|quorum)-kill",
        PAIRS,
    ),
    LongTest(
        "faults/test_order_over_stops.py",
        "test_with_a_limbo_a_stop_keeps_order_and_count",
        r"(activemq63|quorum)-limbo|(artemis244|classic)-crash_safe",
        PAIRS,
    ),
    LongTest(
        "faults/test_order_over_stops.py",
        "test_what_is_parked_of_a_key_comes_back_in_its_order",
        r"one key",
        "three keys show more",
    ),
    LongTest(
        "faults/test_order_over_stops.py",
        "test_what_is_parked_comes_back_after_an_end_in_the_middle_and_after_a_stop_in_its_order",
        r"(activemq63|artemis244|quorum)-all at once|classic-a small window",
        PAIRS,
    ),
    LongTest("faults/test_parking.py", "*", OLDER, OTHERS_SAME),
    LongTest("faults/test_processes.py", "*", r"activemq518|rabbitmq310|^2$", OTHERS_SAME),
    LongTest("faults/test_resting.py", "*", OLDER, OTHERS_SAME),
    LongTest("hostile/test_hostile.py", "test_hostile_messages_on_rabbitmq_310_harm_nothing", "", OTHERS_SAME),
    LongTest("hostile/test_hostile.py", "test_hostile_messages_on_activemq_518_harm_nothing", "", OTHERS_SAME),
    LongTest(
        "faults/test_sendback_kills.py", "test_a_broker_that_is_killed_under_a_replay_loses_nothing", OLDER, OTHERS_SAME
    ),
    LongTest(
        "faults/test_sendback_kills.py",
        "test_a_replay_that_is_ended_by_force_loses_nothing",
        r"^(?!(activemq63-(ctrl-c-1|kill-9-400)|artemis244-(ctrl-c-400|kill-9-150)|rabbitmq43-(ctrl-c-400|kill-9-1))$)",
        PAIRS,
    ),
    LongTest(
        "operations/test_collect_brokers.py",
        "test_a_collect_that_is_killed_at_random_lines_loses_nothing_and_repeats_only_what_nothing_tells_apart",
        r"^(?!(rabbitmq43|artemis244|activemq63)-1$)",
        "three kills on each broker are left; a hundred are for `make test-all`",
    ),
    LongTest(
        "operations/test_on_call.py",
        "*",
        r"activemq|artemis",
        "the same sequence on the other brokers, a quarter of a minute each",
    ),
    LongTest(
        "operations/test_write_kills.py",
        "*",
        "",
        "kills of two commands take minutes; full disks and lost stores stay in `make test`",
    ),
    LongTest(
        "pipeline/test_cluster.py",
        "*",
        "",
        "a cluster of three Java processes keeps both processors for a minute; the same chain runs in one process",
    ),
    LongTest(
        "pipeline/test_drain_brokers.py",
        "test_where_spark_does_not_try_again_it_says_so_and_the_next_run_goes_on",
        "",
        "it starts Spark three times; tasks that are killed and tried again stay in `make test`",
    ),
    LongTest(
        "pipeline/test_insights.py",
        "test_the_marts_are_the_same_over_spark_connect",
        "",
        "it computes all marts twice; compaction over Spark Connect stays in `make test`",
    ),
    LongTest(
        "pipeline/backtest/test_gallery_through_spark.py",
        "test_a_lake_tells_what_the_arrays_tell",
        r"^arm$",
        "another world stays; `make gallery` has ninety-eight",
    ),
    LongTest(
        "pipeline/test_drain_brokers.py",
        "test_a_broker_that_dies_in_the_middle_loses_nothing",
        r"activemq63|artemis244",
        PAIRS,
    ),
    LongTest(
        "pipeline/test_replay_brokers.py",
        "test_a_broker_that_dies_in_the_middle_is_one_clear_error_and_nothing_is_lost",
        r"activemq63|rabbitmq43",
        PAIRS,
    ),
    LongTest(
        "pipeline/test_replay_brokers.py",
        "test_publishers_that_are_killed_lose_nothing_and_repeat_a_batch_at_most",
        r"activemq63|artemis244",
        PAIRS,
    ),
    LongTest(
        "pipeline/test_replay_bodies.py",
        "test_bodies_that_stayed_in_the_lake_arrive_as_they_were",
        r"artemis244",
        PAIRS,
    ),
    LongTest(
        "pipeline/test_replay_cluster.py",
        "*",
        "",
        "a cluster of three Java processes keeps both processors for a minute; replays in one process stay",
    ),
    LongTest(
        "pipeline/test_s3_letters.py",
        "*",
        r"killed at each step",
        "it starts a process for each request of a run; each seventeenth stays, in this process, and one real kill",
    ),
    LongTest(
        "pipeline/test_s3_drivers.py",
        "*",
        "",
        "each test starts Spark several times; the same races and kills without Spark stay in `make test`",
    ),
    LongTest(
        "pipeline/test_other_stores.py",
        "*",
        "",
        "it fetches servers of others; the same protocol on moto's server stays in `make test`",
    ),
    LongTest(
        "pipeline/test_recommended.py",
        "*",
        "",
        "it keeps both processors for more than a minute; the gallery through Spark asks the same of small worlds",
    ),
    LongTest(
        "test_clock.py",
        "test_on_a_real_broker_consuming_goes_on_and_an_early_rest_is_no_longer_than_its_delay",
        r"activemq518|rabbitmq310|activemq63-back|artemis244-forward|rabbitmq43-forward",
        PAIRS,
    ),
    LongTest(
        "simulation/test_simulation.py",
        "test_nothing_is_lost_and_no_rule_is_broken_whatever_goes_wrong",
        r"^(1\d{4}|[4-9]\d{3})$",
        "four thousand histories stay, and the mutants are caught in a hundred; `make prove` runs a million",
    ),
    # What commands do with a store or a list is the same behind each broker's adapter.
    LongTest("cli/test_dead.py", "test_letters_of_a_queue_are_chosen_in_memory", r"activemq63|artemis244", PAIRS),
    LongTest("cli/test_dead.py", "test_an_id_that_no_letter_has", r"activemq63|artemis244", PAIRS),
    LongTest("cli/test_dead.py", "test_times_that_a_stranger_wrote_end_no_command", r"^0001|^9999.*Z$", PAIRS),
    LongTest(
        "cli/test_run_health.py",
        "test_a_broker_that_is_away_makes_it_unready_and_not_dead_and_its_return_ready_again",
        r"activemq63|artemis244",
        PAIRS,
    ),
    LongTest(
        "operations/test_collect_brokers.py",
        "test_all_letters_are_in_the_store_once_and_the_queue_is_empty",
        r"activemq63-sqlite|artemis244-sqlite|rabbitmq43-postgresql",
        PAIRS,
    ),
    LongTest(
        "operations/test_collect_brokers.py",
        "test_two_collects_at_once_share_the_letters",
        r"activemq63-sqlite|artemis244-postgresql|rabbitmq43-sqlite",
        PAIRS,
    ),
    LongTest(
        "operations/test_collect_brokers.py",
        "test_with_follow_it_goes_on_after_the_broker_was_away",
        r"activemq63|artemis244",
        PAIRS,
    ),
    LongTest(
        "operations/test_collect_brokers.py",
        "test_a_store_that_goes_away_in_the_middle_is_an_error_and_loses_nothing",
        r"activemq63|artemis244",
        PAIRS,
    ),
    LongTest(
        "operations/test_collect_brokers.py",
        "test_ctrl_c_ends_it_in_good_order_and_the_next_one_goes_on",
        r"activemq63|artemis244",
        PAIRS,
    ),
    LongTest(
        "brokers/test_brokers.py",
        "*",
        r"activemq63|rabbitmq310",
        "a test of the tests' own brokers; the newer ones stay",
    ),
    LongTest(
        "brokers/test_jvm_brokers.py", "*", r"activemq518", "a test of the tests' own brokers; the newer ones stay"
    ),
    LongTest("contract/test_too_large.py", "*", r"pika-without a limbo|proton-with a limbo", PAIRS),
    LongTest("differential/test_activemq_consumer.py", "*", r"5\.18", OTHERS_SAME),
    LongTest("differential/test_activemq_delays.py", "*", r"5\.18", OTHERS_SAME),
    LongTest(
        "faults/test_crash_safe.py",
        "test_only_the_message_that_kills_its_process_is_dead_lettered",
        r"(activemq63|rabbitmq43)-with an id|artemis244-without an id",
        PAIRS,
    ),
    LongTest(
        "faults/test_processes.py",
        "test_only_the_message_that_kills_processes_is_dead_lettered_whichever_process_it_kills",
        r"activemq63|artemis244",
        PAIRS,
    ),
    LongTest(
        "faults/test_processes.py",
        "test_messages_of_a_key_are_handled_in_order_whichever_process_has_their_source",
        r"rabbitmq43|artemis244",
        PAIRS,
    ),
    LongTest(
        "faults/test_sendback_kills.py",
        "test_a_replay_that_is_ended_by_force_loses_nothing",
        r"activemq63-ctrl-c-1|artemis244-ctrl-c-400|rabbitmq43-kill-9-1",
        PAIRS,
    ),
    LongTest("faults/test_kills.py", "*", r"decorated-classic-rabbitmq43", PAIRS),
    LongTest("faults/test_kills_artemis.py", "*", r"app", PAIRS),
    LongTest("faults/test_main_job.py", "*", r"(activemq63|artemis244|quorum)-.*(decorated|pull)", PAIRS),
    LongTest(
        "faults/test_order_over_stops.py",
        "test_what_is_parked_comes_back_after_an_end_in_the_middle_and_after_a_stop_in_its_order",
        r"(activemq63|artemis244)-",
        PAIRS,
    ),
    LongTest(
        "faults/test_order_over_stops.py",
        "test_what_is_parked_of_a_key_comes_back_in_its_order",
        r"quorum|classic",
        PAIRS,
    ),
    LongTest("faults/test_resting.py", "test_a_paused_source_stays_paused_through_a_reconnect", r"artemis244", PAIRS),
    LongTest("hostile/test_hostile.py", "*", r"^5$", "a second seed of the same generator"),
    LongTest(
        "test_costs.py",
        "test_memory_is_flat_over_a_hundred_thousand_messages",
        "",
        "it handles a hundred thousand messages; the same is asked of the adapter in memory",
    ),
    LongTest(
        "pipeline/backtest/test_gallery_through_spark.py",
        "test_a_lake_tells_what_the_arrays_tell",
        r"timeouts|slow",
        "what Spark hands on is the same for each world; one that changes and one with outages stay",
    ),
    LongTest(
        "pipeline/backtest/test_backtest_cli.py",
        "test_the_best_is_written_in_any_language_and_what_is_lost_is_listed",
        r"activemq|patchbay|artemis|native",
        "each language is written by the tests of conversion; one that loses something and one that does not stay",
    ),
    LongTest(
        "pipeline/test_compaction.py",
        "test_after_a_kill_the_next_run_makes_the_lake_that_would_have_been",
        r"looking",
        "the protocol is killed at each step by test_head.py, without Spark",
    ),
    LongTest(
        "pipeline/test_mart_set.py",
        "test_a_run_that_is_killed_after_one_mart_leaves_the_set_before_it",
        "",
        "the protocol is killed at each step by test_head.py, without Spark",
    ),
    LongTest(
        "pipeline/test_replay_brokers.py",
        "test_the_rate_is_held_within_five_percent",
        r"activemq|artemis",
        "the rate is held before a message is given to the broker",
    ),
    LongTest(
        "pipeline/test_limbo_source.py",
        "test_a_condition_means_the_same_whether_it_is_handed_on_or_not",
        r"NOT IN|refused%|delivery_count|given_up-<|reason = ''",
        "on each database those conditions stay that databases compare differently",
    ),
    LongTest(
        "policy/test_conversion.py",
        "test_whatever_differs_is_listed_as_lost",
        r"^(?!(activemq-artemis|artemis-jmsjca|jmsjca-weblogic|weblogic-patchbay|patchbay-native|native-activemq"
        r"|artemis-activemq|jmsjca-artemis|weblogic-jmsjca|patchbay-weblogic|native-patchbay|activemq-native)$)",
        "a product of six languages with themselves; each is read twice and written twice",
    ),
    LongTest("test_demo.py", "test_the_demo_adds_up_on_rabbitmq", OLDER, OTHERS_SAME),
    LongTest("test_examples.py", "test_an_example_runs_on_rabbitmq", OLDER, OTHERS_SAME),
]

_LONG_BY_FILE = {file: [row for row in LONG if row.file == file] for file in {row.file for row in LONG}}


def mark(item: pytest.Item, tests: str) -> None:
    """Mark a collected test `long` or `slow` if a row names it. `tests` is the path of the folder of all tests."""
    if isinstance(item, pytest.Function):
        file = item.path.as_posix().removeprefix(f"{tests}/")
        parameters = item.callspec.id if hasattr(item, "callspec") else ""
        if file in SLOW:
            item.add_marker("slow")
        if any(row.covers(file, item.originalname, parameters) for row in _LONG_BY_FILE.get(file, ())):
            item.add_marker("long")


def longest_first(items: list[pytest.Item], tests: str) -> None:
    """Put the files of `FIRST` at the beginning, in its order. The others keep theirs."""
    places = {f"{tests}/{file}": place for place, file in enumerate(FIRST)}
    items.sort(key=lambda item: places.get(item.path.as_posix(), len(places)))
