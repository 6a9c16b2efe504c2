# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Checks what this user may do, and whether the broker checks who connects."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from ..adapter.inspection import Permission
from ..adapter.registry import BrokerUrl, adapter_for
from ..dead_letters import BrokerClient
from ..errors import CredentialsRefused, RedeliverError
from .finding import Finding, not_known, ok, warning, wrong

NEEDS: Final = {
    "consume": "no message of it can be handled",
    "publish": "no retry copy and no dead letter can be sent",
    "declare": "the queues that delayed copies wait in cannot be made",
    "manage": "whether targets keep what is sent to them cannot be seen",
}


def check_permissions(permissions: Sequence[Permission], broker: str) -> Iterator[Finding]:
    """Yield one finding for each verb at each place."""
    for one in permissions:
        subject = f"{one.verb} {one.where}".rstrip()
        if one.allowed is None:
            yield not_known("permission", subject, one.said or "it was not tried", one.change)
        elif one.allowed:
            yield ok("permission", subject, f"this user may do that at {broker}")
        else:
            said = f" (the broker says: {one.said})" if one.said else ""
            judge = warning if one.verb == "manage" else wrong
            yield judge(
                "permission-missing", subject, f"this user may not, and {one.loss or NEEDS[one.verb]}{said}", one.change
            )


def check_credentials(url: BrokerUrl, mark: str) -> Finding:
    """Return whether the broker refuses a user whom it cannot know. Connects."""
    where = "user and password"
    try:
        with BrokerClient(adapter_for(replace(url, user=f"redeliver-doctor-{mark}", password=mark))):
            return warning(
                "credentials-not-checked",
                where,
                "the broker lets in a user whom it cannot know, so that a wrong password is not noticed either",
                "Let the broker require a known user: no guest login, no anonymous access",
            )
    except CredentialsRefused:
        return ok("credentials", where, "the broker refuses a user whom it does not know")
    except RedeliverError as error:
        return not_known("credentials", where, f"an unknown user was neither refused nor let in: {error.what}")
