# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Connects to Artemis through proton: the adapter behind `artemis://`, and the drop-in for proton handlers."""

from redeliver_proton.adapter import ProtonAdapter, adapter_from_url
from redeliver_proton.brokers.artemis.capabilities import records
from redeliver_proton.dropin.wrapper import redelivering

__all__ = ["ProtonAdapter", "adapter_from_url", "records", "redelivering"]
