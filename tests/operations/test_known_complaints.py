# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Lists what users of other consoles for dead letters complain of, and the tests that none of it happens here.

`COMPLAINTS` names for each complaint the tests that guard against it, in this file and in others. Two complaints are
about pages alone, and have no test here: links that lose a filter, of which the part without a page is below, and pages
that load again while a form is open.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from redeliver_mw import App, Delivery, RedeliveryPolicy
from redeliver_mw.operations import Selection, Store, counts, show
from redeliver_mw.operations.became import BecameCounts, became_of, replayed_letters
from redeliver_mw.operations.replay import run_replay
from redeliver_mw.operations.replay_plan import LetterEdit, StoreReplayOptions, plan_replay
from tests.api.serving import served
from tests.brokers import Broker
from tests.faults.letters import declare
from tests.faults.load import channel_on, until
from tests.operations.filling import arrived, fill
from tests.operations.taking import put
from tests.pipeline.letters import letter

TESTS = Path(__file__).resolve().parents[1]
COMPLAINTS = {
    "Both the edited message and the original were sent": [
        "operations/test_replay_brokers.py::test_an_edited_letter_is_sent_once_and_the_original_never",
        "cli/test_dead_replay.py::test_an_edit_is_sent_once_and_one_that_comes_too_late_is_kept",
    ],
    "An edit was dropped, and the console said that it was processed": [
        "operations/test_known_complaints.py::test_an_edit_that_the_broker_refuses_is_not_called_sent",
        "operations/test_replay_brokers.py::test_an_edit_of_a_letter_that_another_replay_has_claimed_is_refused",
        "operations/test_replay_brokers.py::test_letters_that_are_refused_wait_again_and_the_outcome_has_the_brokers_words",
    ],
    "An edited message never counts as recovered": [
        "operations/test_known_complaints.py::test_an_edited_letter_counts_as_recovered_once_it_is_handled",
    ],
    "Another message was opened in the editor, since several had the same id": [
        "operations/test_known_complaints.py::test_of_letters_with_the_same_message_id_the_one_that_is_named_is_edited",
        "cli/test_dead_replay.py::test_bad_input_is_refused_before_anything_is_connected",
    ],
    "What was begun elsewhere is not in the list of retries": [
        "cli/test_triage.py::test_one_list_has_all_operations_whoever_began_them",
        "api/test_reading.py::test_operations_of_whomever_are_listed_and_shown",
    ],
    "The retry of a group takes more messages than were shown": [
        "operations/test_operation.py::test_an_operation_means_the_letters_that_were_there_when_it_was_planned",
        "operations/test_replay_plan.py::test_the_letters_are_frozen",
        "api/test_operations.py::test_a_plan_that_means_another_number_than_expected_is_refused",
    ],
    "Messages cannot be chosen by date, nor retried at a rate or in batches": [
        "cli/test_dead_replay.py::test_letters_are_chosen_in_each_way",
        "operations/test_replay_brokers.py::test_a_rate_is_kept_and_no_letter_is_lost_when_the_run_is_stopped_in_between",
        "operations/filters/test_filter_page.py::test_an_example_selects_what_the_page_says",
    ],
    "Buttons for all messages were removed because they were dangerous": [
        "cli/test_dead_replay.py::test_on_a_terminal_the_exact_number_has_to_be_typed",
        "cli/test_triage.py::test_a_discard_asks_for_the_exact_count_that_was_frozen",
    ],
    "There is no search": [
        "operations/test_shelf.py::test_headers_can_be_filtered_as_texts_and_numbers",
        "operations/test_listing.py::test_a_list_and_a_filter_over_headers_read_an_index",
    ],
    "A link with a filter finds something else": [
        "operations/test_known_complaints.py::test_any_text_of_a_filter_survives_a_url",
    ],
    "Bodies that are not UTF-8, or huge, and odd names end in errors": [
        "cli/test_triage.py::test_odd_bodies_and_names_are_listed_shown_compared_and_carried_over",
        "api/test_reading.py::test_a_body_that_is_not_utf_8_is_shown_in_hex_and_served_byte_for_byte",
        "api/test_reading.py::test_a_large_body_is_cut_where_it_is_shown_and_whole_where_it_is_fetched",
        "api/test_reading.py::test_a_letter_with_ten_thousand_headers_is_shown",
    ],
    "A pattern over names let others in, and the API had another gate than the pages": [
        "api/test_gates.py::test_a_route_is_open_to_the_roles_that_have_its_permission_and_to_nobody_else",
        "api/test_gates.py::test_wrong_expired_and_revoked_tokens_are_refused",
    ],
    "The queue to send a message back to has to be typed": [
        "operations/test_replay_brokers.py::test_letters_go_back_to_their_source_once_and_in_order",
        "operations/test_collect_brokers.py::test_a_letter_that_the_broker_has_dead_lettered_is_collected",
    ],
    "The button works although nothing is chosen": [
        "operations/test_known_complaints.py::test_an_empty_choice_does_not_mean_all",
        "cli/test_triage.py::test_nothing_is_changed_unless_something_says_which_letters",
        "cli/test_dead_replay.py::test_bad_input_is_refused_before_anything_is_connected",
    ],
    "A redrive loses the order, and nobody knows which message was which": [
        "operations/test_replay_brokers.py::test_letters_go_back_to_their_source_once_and_in_order",
        "operations/test_became.py::test_a_letter_that_is_collected_with_the_replays_id_has_failed_again",
    ],
}
SAME = "the producer's id"


@pytest.fixture
def source(request: pytest.FixtureRequest) -> str:
    """Return the name of a queue that no other test has."""
    return f"orders.{abs(hash(request.node.nodeid)):x}"


@pytest.mark.parametrize("complaint", COMPLAINTS)
def test_each_complaint_has_tests_that_exist(complaint: str) -> None:
    for name in COMPLAINTS[complaint]:
        file, _, test = name.partition("::")
        tree = ast.parse((TESTS / file).read_text())
        assert test in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}, name


@pytest.mark.broker
def test_an_edit_that_the_broker_refuses_is_not_called_sent(rabbitmq43: Broker, source: str, file_store: Store) -> None:
    with channel_on(rabbitmq43) as channel:
        full = {"x-queue-type": "classic", "x-max-length": 1, "x-overflow": "reject-publish"}
        channel.queue_declare(f"{source}.full", durable=True, arguments=full)
        channel.basic_publish("", f"{source}.full", b"takes the only place")
    fill(rabbitmq43, file_store, source, [b"wrong"])
    one = show(file_store, f"dlq.{source}-copy-0").letter
    edit = LetterEdit(one.dl_id, one.digest, b"right")
    operation = plan_replay(file_store, Selection(ids=[one.dl_id]), to=f"{source}.full", edit=edit)
    done = run_replay(file_store, operation.operation_id, rabbitmq43.url)
    assert not done.whole
    assert (done.sent, done.refused, done.became) == (0, 1, BecameCounts())
    [letter_of_it] = replayed_letters(file_store, operation.operation_id)
    assert letter_of_it.outcome == "failed"
    assert letter_of_it.why
    assert counts(file_store) == {"waiting": 1}
    assert show(file_store, one.dl_id).packed.body == b"wrong"


@pytest.mark.broker
def test_an_edited_letter_counts_as_recovered_once_it_is_handled(
    rabbitmq43: Broker, source: str, tmp_path: Path
) -> None:
    url, handled = f"sqlite:///{tmp_path}/store.db", list[bytes]()
    policy = RedeliveryPolicy(1, 0, f"queue:dlq.{source}")
    app = App(rabbitmq43.url, policy=policy, app_name="shop", operations=url)

    @app.handler(source)
    def on_order(delivery: Delivery) -> None:
        handled.append(delivery.body)

    with Store(url) as store:
        fill(rabbitmq43, store, source, [b"wrong", b"stays"])
        one = show(store, f"dlq.{source}-copy-0").letter
        edit = LetterEdit(one.dl_id, one.digest, b"right", {"x-by": "ann"})
        operation = plan_replay(store, Selection(ids=[one.dl_id]), edit=edit)
        with app:
            assert run_replay(store, operation.operation_id, rabbitmq43.url).whole
            until(lambda: became_of(store, operation.operation_id).recovered == 1, 30, "it does not recover")
        assert handled == [b"right"]
        assert counts(store) == {"replayed": 1, "waiting": 1}


@pytest.mark.broker
def test_of_letters_with_the_same_message_id_the_one_that_is_named_is_edited(
    rabbitmq43: Broker, source: str, file_store: Store
) -> None:
    declare(rabbitmq43, source)
    into = {"redeliver_original_destination": source, "redeliver_failures_for": source}
    alike = [letter(b"order %d" % n, into, copy_id=f"copy-{n}", message_id=SAME) for n in range(3)]
    put(file_store, *alike)
    one = show(file_store, "copy-1")
    assert one.packed.body == b"order 1"
    edit = LetterEdit("copy-1", one.letter.digest, b"order 1, mended")
    moved = StoreReplayOptions(other_broker=True)  # they came into the store by hand, and from no broker's address
    operation = plan_replay(file_store, Selection(ids=["copy-1"]), edit=edit, options=moved)
    assert run_replay(file_store, operation.operation_id, rabbitmq43.url).whole
    assert [found.body for found in arrived(rabbitmq43, source)] == [b"order 1, mended"]
    assert counts(file_store) == {"replayed": 1, "waiting": 2}


@pytest.mark.parametrize(
    "tenant", ["a&b=c", "a+b c", "100%25", "#1;2/3?4", "é 日本", '"quoted" \\ back', "x' or '1'='1"]
)
def test_any_text_of_a_filter_survives_a_url(tmp_path: Path, tenant: str) -> None:
    with served(f"sqlite:///{tmp_path}/store.db") as api:
        with Store(api.store_url) as store:
            put(store, *(letter(b"%d" % n, {"tenant": tenant}, copy_id=f"of-{n}") for n in range(3)))
        written = tenant.replace("\\", "\\\\").replace('"', '\\"')
        asked = {"where": f'header.tenant = "{written}"', "limit": 2, "sort": "died"}
        first = api.get("/letters", params=asked)
        second = api.get("/letters", params=asked | {"cursor": first["next_cursor"]})
        assert [one["id"] for one in (*first["letters"], *second["letters"])] == ["of-0", "of-1", "of-2"]
        assert second["next_cursor"] is None


def test_an_empty_choice_does_not_mean_all(tmp_path: Path) -> None:
    with served(f"sqlite:///{tmp_path}/store.db") as api:
        for kind in ("archive", "discard", "replay"):
            refused = api.post("/operations", {"kind": kind, "selection": {"ids": []}}, status=400)
            assert (refused["code"], refused["where"]) == ("api-request", "body selection ids")
            assert api.post("/operations", {"kind": kind}, status=400)["code"] == "api-request"
        assert api.get("/counts")["waiting"] == 3
        assert [one["kind"] for one in api.get("/operations")["operations"]] == ["collect"]
