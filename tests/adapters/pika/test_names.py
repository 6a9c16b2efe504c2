# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests names of headers that are no UTF-8, which pika gives as bytes."""

from __future__ import annotations

import pika
from pika.spec import Basic

from redeliver_pika.messages import READER, Native

NAME = "\udcff\udcfe"  # the bytes ff fe, as `decode_table` tells them


def native(headers: object) -> Native:
    return Basic.Deliver("", 1, False, "", "orders"), pika.BasicProperties(headers=headers), b"x"


def test_a_name_that_is_no_utf_8_is_the_text_that_the_exact_reader_makes_of_it() -> None:
    found = native({b"\xff\xfe": 1, "a": {b"\xff\xfe": [{b"\xff\xfe": 2}]}, "redeliver_failures": "3"})
    assert READER.headers(found) == {NAME: 1, "a": {NAME: [{NAME: 2}]}, "redeliver_failures": "3"}
    assert READER.marked(found)
    assert not READER.marked(native({b"\xff\xfe": 1}))


def test_a_message_with_such_a_name_can_be_copied() -> None:
    assert READER.headers_bytes(native({b"\xff\xfe": 1})) == 4 + 1 + 2 + 1 + 4
    assert READER.twin(native({b"\xff\xfe": 1}))[1] == {NAME: 1}
