# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Reads `notify=` and `notify_secret=` of an App or a drop-in wrapper."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ..errors import ConfigError
from .grouping import GroupingRules
from .notification import Notification
from .targets import OPTION, SECRET_OPTION, VARIABLE, NotificationTarget, NotifyFunction, Webhook

NotifyFn = Callable[[Notification], object]
LONGEST: Final = 86_400.0  # seconds


@dataclass(frozen=True, slots=True)
class Notify:
    """Holds a target of notifications, and how they are grouped. Times are in seconds.

    - `to`: the URL of a webhook, or a function, which gets a `Notification` on a thread of its own.
    - `quiet`: an outage is over when there was no trouble for so long. Trouble that begins within this time of the
      beginning of an outage belongs to it.
    - `gather`: for so long the notification of a beginning waits for the trouble that belongs to it.

    Raises ConfigError for a time that cannot be used.
    """

    to: str | NotifyFn
    quiet: float = 300.0
    gather: float = 2.0

    def __post_init__(self) -> None:
        """Check the times."""
        for name, value in (("quiet", self.quiet), ("gather", self.gather)):
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= LONGEST:
                raise ConfigError(
                    f"{name}={value!r} is no number of seconds from 0 to {LONGEST:.0f}",
                    where=OPTION,
                    cure=f"Write Notify(to, {name}=60)",
                    code="option-value",
                )
        if self.gather > self.quiet:
            raise ConfigError(
                f"gather={self.gather!r} is longer than quiet={self.quiet!r}",
                where=OPTION,
                cure="Let quiet be the longer one",
                code="option-value",
            )

    @classmethod
    def meant(cls, given: object) -> Notify | None:
        """Return the option's value as a Notify, or None. Raises ConfigError for anything else."""
        if given is None or isinstance(given, cls):
            return given
        if isinstance(given, str) or callable(given):
            return cls(given)
        raise ConfigError(
            f"{type(given).__name__} is neither a URL nor a function",
            where=OPTION,
            cure="Give the URL of a webhook, a function, or a Notify",
            code="notify-target",
        )

    @property
    def rules(self) -> GroupingRules:
        """Return the times as the grouping has them."""
        return GroupingRules(round(self.quiet * 1e6), round(self.gather * 1e6))

    def target(self, secret: str | None) -> NotificationTarget:
        """Return the target; without a `secret` the environment's is used. Raises ConfigError."""
        if secret is not None and not isinstance(secret, str):
            raise ConfigError(
                "it is no text", where=SECRET_OPTION, cure="Give the secret as a str", code="notify-secret"
            )
        if secret == "":
            raise ConfigError(
                "it is empty", where=SECRET_OPTION, cure="Give the secret, or leave it out", code="notify-secret"
            )
        if isinstance(self.to, str):
            return Webhook(self.to, secret or os.environ.get(VARIABLE))
        if secret:
            raise unused_secret("a function gets no signature")
        if not callable(self.to):
            raise ConfigError(
                f"{type(self.to).__name__} is neither a URL nor a function",
                where=OPTION,
                cure="Give the URL of a webhook, or a function",
                code="notify-target",
            )
        return NotifyFunction(self.to)


def unused_secret(why: str) -> ConfigError:
    """Return the error about a secret that signs nothing."""
    return ConfigError(
        f"it signs nothing: {why}",
        where=SECRET_OPTION,
        cure=f"Give {OPTION}= the URL of a webhook, or leave the secret out",
        code="notify-secret",
    )


def given_notify(given: object, secret: str | None) -> tuple[Notify, NotificationTarget] | None:
    """Return the option's value and its target; None: there are no notifications. Raises ConfigError."""
    notify = Notify.meant(given)
    if notify is None:
        if secret:
            raise unused_secret(f"there is no {OPTION}=")
        return None
    return notify, notify.target(secret)
