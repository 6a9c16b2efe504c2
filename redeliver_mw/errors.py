# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Defines every exception of redeliver-mw, and the two signals that a handler may raise.

::

    Exception
    ├── RedeliverError                 what, where, cure; `code` names the cause; `exit_code` for the command line
    │   ├── ConfigError          (2)   your input: a URL, an option, a policy
    │   │   ├── PolicyError      (2)   a policy that cannot be read, or that the broker cannot carry out
    │   │   └── MissingExtra     (2)   a driver that is not installed
    │   ├── BrokerError          (1)   the broker or the network
    │   │   ├── BrokerUnavailable
    │   │   ├── CredentialsRefused
    │   │   └── DestinationMissing
    │   ├── LimboError           (1)   the limbo database cannot do what is needed
    │   ├── StoreError           (1)   the store of dead letters and operations cannot do what is needed
    │   └── NotCopyable          (1)   a message of which no exact copy can be made; it stays where it is
    ├── Signal                         raised by a handler, never by this library
    │   ├── Reject                     dead-letter this message now
    │   └── RetryAfter                 a failure with a wish for the next attempt
    └── Undecodable                    carries what `decode=` raised; the handler was not called
"""

from __future__ import annotations

from typing import Any, ClassVar

ERROR_CODE = "error_code"  # the attribute of a log record, and the field of a log line in JSON
EVENT_CODE = "event_code"  # the same for what a log line reports, where its text does not say it


class RedeliverError(Exception):
    """Reports an error that a person can act on.

    `what` went wrong, `where` (a file and line, a URL, a destination; may be empty), and the `cure` (one sentence in
    the imperative; may be empty). `code` is the stable name of the cause, one of `redeliver_mw.error_codes`; a class
    may have a default, and an adapter of your own may leave it empty.

    `message` joins the first three on one line, and `str()` is the message with the code in brackets at its end.
    """

    exit_code: ClassVar[int] = 1
    code: str = ""

    def __init__(self, what: str, *, where: str = "", cure: str = "", code: str = "") -> None:
        """Name `what` went wrong, `where`, the `cure` and the `code` of its cause. None of them may hold a secret."""
        self.what, self.where, self.cure = what, where, cure
        if code:
            self.code = code
        super().__init__(what)

    @property
    def message(self) -> str:
        """Return place, problem and cure without the code."""
        place = f"{self.where}: " if self.where else ""
        return f"{place}{self.what}" + (f". {self.cure}" if self.cure else "")

    def __str__(self) -> str:
        return f"{self.message} [{self.code}]" if self.code else self.message


class ConfigError(RedeliverError):
    """Reports that your input cannot be used: a URL, an option, an application's settings."""

    exit_code = 2


class PolicyError(ConfigError):
    """Reports a policy text that cannot be read, or a policy that this broker cannot carry out."""


class MissingExtra(ConfigError):
    """Reports a driver, or another optional part, that is not installed; the cure names the extra."""

    code = "extra-not-installed"


class BrokerError(RedeliverError):
    """Reports that the broker, or the connection to the broker, does not do what is needed."""


class BrokerUnavailable(BrokerError):
    """Reports that no host of the URL answers."""

    code = "broker-unavailable"


class CredentialsRefused(BrokerError):
    """Reports that the broker refuses this user, password or virtual host."""

    code = "credentials-refused"


class DestinationMissing(BrokerError):
    """Reports that a queue or another target does not exist, and may not be made here."""

    code = "destination-missing"


class LimboError(RedeliverError):
    """Reports that the limbo database does not exist, or is locked, full, damaged or read-only.

    Nothing is half-written: an operation is done as a whole, or not at all.
    """


class StoreError(RedeliverError):
    """Reports that the store of dead letters and operations does not exist, or is locked, full, damaged or read-only.

    Nothing is half-written: an operation is done as a whole, or not at all.
    """


class NotCopyable(RedeliverError):
    """Reports that no exact copy of this message can be made, so none is sent: the message stays at the broker.

    `whole` is True if the message was read in full, so that a limbo can store it; False if its content did not reach
    us.
    """

    code = "message-not-copyable"

    def __init__(self, what: str, *, where: str = "", cure: str = "", code: str = "", whole: bool = True) -> None:
        """Name why the message cannot be copied, and whether it was read in full."""
        super().__init__(what, where=where, cure=cure, code=code)
        self.whole = whole


class Signal(Exception):
    """Is the base of what a handler raises on purpose to choose how its failure is treated."""


class Reject(Signal):
    """Asks to dead-letter this message now, whatever the policy still allows, with `reason` on the dead letter."""

    def __init__(self, reason: str = "rejected by the handler") -> None:
        """Give the reason that the dead letter will carry."""
        self.reason = reason
        super().__init__(reason)


class RetryAfter(Signal):
    """Fails the attempt; the next one follows after `seconds` or the policy's delay, whichever is longer.

    `seconds` is a float >= 0.

    `count=False` makes this a wait instead of a failure: the count of failures stays as it is.
    """

    def __init__(self, seconds: float, count: bool = True) -> None:
        """Ask for the next attempt after so many seconds. Raises ValueError for less than 0, and for NaN."""
        if not seconds >= 0:
            raise ValueError(f"RetryAfter needs seconds >= 0, not {seconds!r}")
        self.seconds, self.count = float(seconds), count
        super().__init__(f"again in {seconds:g} s")

    def __reduce__(self) -> tuple[Any, ...]:
        """Let it be pickled: a process pool that could not read it back would break."""
        return type(self), (self.seconds, self.count), self.__dict__


def leaves_of(error: BaseException) -> tuple[BaseException, ...]:
    """Return the exceptions in a group and its nested groups; for any other exception, itself. Thread-safe."""
    if not isinstance(error, BaseExceptionGroup):
        return (error,)
    found: list[BaseException] = []
    waiting: list[BaseException] = [error]
    while waiting:
        one = waiting.pop()
        if isinstance(one, BaseExceptionGroup):
            waiting.extend(reversed(one.exceptions))
        else:
            found.append(one)
    return tuple(found)


def is_uncounted(error: BaseException) -> bool:
    """Return whether a failure is only a wait: `RetryAfter(count=False)`, or a group of nothing else."""
    return all(isinstance(leaf, RetryAfter) and not leaf.count for leaf in leaves_of(error))


class Undecodable(Exception):
    """Carries what `decode=` raised; the handler was not called."""

    def __init__(self, error: BaseException) -> None:
        """Carry `error`, whose text becomes the text of this one."""
        self.error = error
        super().__init__(str(error))


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: `1 failure`, `2 failures`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
