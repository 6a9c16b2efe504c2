# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tracks a policy file that may change: its last content, and whether it is worth reading again.

There is no thread and no clock here: the caller calls `look()` about once a second, `read()` if that returns `changed`,
on any thread, and `take()` if the content is to apply.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ..errors import ConfigError, PolicyError
from .destinations import PolicyMap
from .loading import bytes_of, policies_in
from .model import RedeliveryPolicy

Look = Literal["same", "changed", "gone"]
# The state of the file that a name leads to, links followed: when it was written, and its permissions changed, in ns;
# bytes; inode.
Stamp = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Reading:
    """Holds the content of a file. Without `policies` the content is already in use, or `error` holds what is wrong."""

    stamp: Stamp | None  # None: the file was written to meanwhile, and may be incomplete
    content: str  # 12 hex digits of a hash of its bytes; empty if it could not be read
    policies: PolicyMap | None = None
    error: ConfigError | None = None


class PolicyFile:
    """Takes the place of a PolicyMap, with the policies that were applied last. Not thread-safe, except for `read`.

    The file is read when the object is made. Raises PolicyError or ConfigError as `load_policies` does; with `strict`
    also for misplaced elements.
    """

    def __init__(self, path: Path, *, strict: bool = False) -> None:
        self.path = path.absolute()  # not resolved: a link that leads elsewhere later is a change
        self.content = ""
        self._strict = strict
        first = self.read()
        if first.policies is None:
            raise first.error or PolicyError(
                "it is being written to", where=str(path), cure="Try again", code="policy-file"
            )
        self.policies = first.policies
        self.content = first.content
        # read once more, because the clock may show only one of two changes at the same time
        self._read: Stamp | None = None
        self._seen: Stamp | None = None
        self._gone = False

    def __str__(self) -> str:
        return str(self.path)

    def resolve(self, name: str, kind: str = "queue") -> RedeliveryPolicy:
        """Return the current policy for a source of that name."""
        return self.policies.resolve(name, kind)

    def look(self) -> Look:
        """Return `changed` once the file looks the same twice, until the change is `noted`.

        Before that the file may be half written.

        Returns `gone`, once, for a file that does not exist, or cannot be accessed any more.
        """
        stamp = self._stamp()
        steady, self._seen = stamp == self._seen, stamp
        if not steady:
            return "same"
        if stamp is None:
            was_there, self._gone = not self._gone, True
            return "gone" if was_there else "same"
        self._gone = False
        return "same" if stamp == self._read else "changed"

    def read(self) -> Reading:
        """Read and parse the file, which may take a while; changes nothing here. Never raises.

        An empty file is refused, because a full disk leaves an empty file behind.
        """
        before, content = self._stamp(), ""
        try:
            found = bytes_of(self.path)
            content = hashlib.sha256(found).hexdigest()[:12]
            if content == self.content:
                return Reading(self._unless_changed(before), content)
            policies = policies_in(found, self.path, strict=self._strict)
        except ConfigError as error:
            return Reading(self._unless_changed(before), content, error=error)
        except Exception as error:  # an error of ours, and no reason to stop watching
            fault = PolicyError(f"it cannot be read: {error!r:.200}", where=str(self.path), code="policy-file")
            return Reading(self._unless_changed(before), content, error=fault)
        return Reading(self._unless_changed(before), content, policies)

    def noted(self, reading: Reading) -> None:
        """Note that the file need not be read again as long as it looks as it did then."""
        self._read = reading.stamp

    def take(self, reading: Reading) -> None:
        """Apply what was read from now on."""
        assert reading.policies is not None
        self.policies, self.content = reading.policies, reading.content

    def _unless_changed(self, before: Stamp | None) -> Stamp | None:
        return before if self._stamp() == before else None

    def _stamp(self) -> Stamp | None:
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino
