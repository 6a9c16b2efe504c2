# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import threading
from typing import Any, cast

import pytest

from redeliver_mw import Delivery, Destination, current_delivery
from redeliver_mw.context import in_hand


def delivery(name: str) -> Delivery:
    return Delivery(Destination(name), 1, 1, False, None, cast(Any, None))


def test_outside_a_handler_there_is_no_current_delivery() -> None:
    with pytest.raises(LookupError, match="inside a handler"):
        current_delivery()


def test_the_delivery_in_hand_is_the_current_one_until_it_is_put_down() -> None:
    outer, inner = delivery("outer"), delivery("inner")
    token = in_hand.set(outer)
    assert current_delivery() is outer
    nested = in_hand.set(inner)
    assert current_delivery() is inner
    in_hand.reset(nested)
    assert current_delivery() is outer
    in_hand.reset(token)
    with pytest.raises(LookupError):
        current_delivery()


def test_another_thread_has_none_in_hand() -> None:
    seen: list[object] = []

    def look() -> None:
        try:
            seen.append(current_delivery())
        except LookupError:
            seen.append("none")

    token = in_hand.set(delivery("orders"))
    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    in_hand.reset(token)
    assert seen == ["none"]


def test_tasks_that_run_by_turns_each_keep_their_own() -> None:
    async def handle(one: Delivery) -> bool:
        token = in_hand.set(one)
        await asyncio.sleep(0)
        kept = current_delivery() is one
        in_hand.reset(token)
        return kept

    async def both() -> list[bool]:
        return await asyncio.gather(handle(delivery("a")), handle(delivery("b")))

    assert asyncio.run(both()) == [True, True]
