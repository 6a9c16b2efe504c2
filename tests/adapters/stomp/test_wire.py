# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests the end of a connection, as the thread sees it that only writes."""

from __future__ import annotations

import socket

import pytest

from redeliver_stomp.wire import StompSocket


def test_a_socket_that_the_receiver_has_closed_is_a_lost_connection() -> None:
    """As such it convicts the message whose ack ended it; a mere OSError would let that run once more."""
    ours, brokers = socket.socketpair()
    wire = StompSocket("127.0.0.1", 1, None, received=lambda *_: None, gone=lambda *_: None)
    wire.socket = ours
    assert wire.write(b"x") == 1
    ours.close()
    with pytest.raises(ConnectionError):
        wire.write(b"x")
    brokers.close()
