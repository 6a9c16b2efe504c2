# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Makes asserts of the shipped contract show their values here, and leaves some of its tests to `make test-all`."""

import pytest

from tests.contract.versions import is_left_to_test_all

pytest.register_assert_rewrite("redeliver_mw.testing.contract")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that need not run on each version of a broker."""
    for item in items:
        if is_left_to_test_all(item):
            item.add_marker("long")
