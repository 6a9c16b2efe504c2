# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Picks the one for a version among the brokers that the environment names."""

from __future__ import annotations

import os
from typing import TypeVar

from tests.brokers._broker import GivenBroker
from tests.brokers._install import BrokerMissing

G = TypeVar("G", bound=GivenBroker)


def given(of: type[G], version: str) -> G | None:
    """Return the broker of that class for `version`, or None if the environment names none at all.

    `REDELIVER_TEST_<KIND><VERSION>_URL` comes first. Of those in `REDELIVER_TEST_<KIND>_URL`, with commas between,
    the broker is the first that `fits`. Raises BrokerMissing if none of them does.
    """
    variable = f"REDELIVER_TEST_{of.kind.upper()}_URL"
    own_variable = variable.replace("_URL", f"{version.replace('.', '')}_URL")
    if url := os.environ.get(own_variable):
        return of(url, own_variable)
    urls = [url.strip() for url in os.environ.get(variable, "").split(",") if url.strip()]
    found = [of(url, variable) for url in urls]
    for broker in found:
        if broker.fits(version):
            return broker
    if found:
        named = " and ".join(broker.version for broker in found)
        raise BrokerMissing(
            f"{variable} names {of.title} {named}, none for {version}",
            f"Add a URL to it with a comma, set {own_variable}, or unset it to have one installed",
        )
    return None
