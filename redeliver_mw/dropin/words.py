# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""What a callback may say of its message by itself. `Reject` is the third word."""

from __future__ import annotations

from ..errors import RetryAfter


class Requeued(RetryAfter):
    """The callback gave the message back for another try: a failure, whatever the policy says of exceptions."""

    def __init__(self, verb: str) -> None:
        super().__init__(0.0)
        self.args = (f"given back by the callback ({verb})",)


class Acked(Exception):
    """Not raised: the word of a callback that acked."""


ACK = Acked()
