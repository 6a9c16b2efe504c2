# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Defines the settlements that a callback may give its message by itself. `Reject` is the third one."""

from __future__ import annotations

import sys

from ..errors import ConfigError, RetryAfter


class Requeued(RetryAfter):
    """Means that the callback gave the message back for another try.

    This is a failure, whatever the policy says of exceptions.
    """

    def __init__(self, verb: str) -> None:
        super().__init__(0.0)
        self.args = (f"given back by the callback ({verb})",)


class RefusedHere(ConfigError):
    """Tells the user's code that it asked for what a wrapper cannot do. This is never a failure of the message."""

    code = "transaction-not-possible"


def because_of(settlement: Exception, before: BaseException | None) -> Exception:
    """Give a nack or reject the exception that its code is handling, if that began after the callback was called.

    To be called on the thread of the code that settles, inside its `except` block.
    """
    error = sys.exc_info()[1]
    if error is not None and error is not before and settlement is not ACK:
        settlement.__cause__ = error
    return settlement


class Acked(Exception):
    """Stands for the settlement of a callback that acked. Nothing raises this exception."""


ACK = Acked()
