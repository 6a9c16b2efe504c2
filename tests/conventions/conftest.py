# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Which conventions of existing consumers the drop-ins do not keep yet; their tests stand here and are not run."""

from __future__ import annotations

import pytest

# Parts of test names. A test leaves this list with the change that makes it pass.
NOT_KEPT_YET = {
    "test_pika_conventions.py": (
        "server_named",
        "driver_to_warn",
    ),
    "test_stomp_conventions.py": (
        "does_not_wait_for_a_callback_that_runs[wrapped]",
        "after_a_reconnect_is_logged",
        "success_when_the_commit_is_answered",
        "commit_without_a_receipt",
        "an_abort_and_a",
        "beside_the_codes_open_transaction",
        "covers_what_came_before_it_once_committed[wrapped]",
        "wrapped_after_subscribe",
        "bare_subscription_beside",
        "without_a_prefix",
        "wrapped_twice",
    ),
    "test_proton_conventions.py": (
        "tx]",
        "tx_recv]",
        "Tx]",
        "transaction",
        "abort",
        "commit",
        "config_error_out_of_a_callback",
        "credit",
        "window_of_one",
        "does_not_name_its_product",
        "receiver_is_closed",
    ),
}


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of what is not kept yet as expected failures, without running them."""
    for item in items:
        parts = NOT_KEPT_YET.get(item.path.name, ())
        if any(part in item.name for part in parts):
            item.add_marker(pytest.mark.xfail(run=False, reason="the drop-in does not keep this convention yet"))
