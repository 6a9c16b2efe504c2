# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests a copy of the drop-in whose target is being looked up when its original is lost, without a broker."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from redeliver_mw.message import Destination, Outgoing
from redeliver_mw.testing import make_delivery
from redeliver_proton.dropin.copies import LinkCopyPublisher
from redeliver_proton.route import Route


def test_a_copy_whose_target_is_looked_up_is_answered_unsent_before_the_loss_and_is_never_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    user_connection: Any = SimpleNamespace(is_open=True, cut=lambda _: None)
    publisher, asked, answers = LinkCopyPublisher(user_connection), list[Callable[[Any], None]](), list[str]()
    monkeypatch.setattr(publisher, "_up", lambda: None)
    monkeypatch.setattr(publisher._topology, "route", lambda _target, answer, **_: asked.append(answer))
    original = make_delivery(b"1")
    original.generation = 7
    copy = Outgoing(Destination("DLQ.orders"), b"1", {}, origin=original)
    publisher.store(copy, 0.0, lambda verdict, _: answers.append(verdict), lambda: False)
    publisher.forget(6)
    assert answers == []
    publisher.forget(7)
    assert answers == ["unsent"]
    found: Any = SimpleNamespace(spec=Route)
    asked.pop()(found)
    assert (answers, publisher._sender_links._all) == (["unsent"], {})
