# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""A policy file that may change: what it said last, and whether it is worth reading again.

No thread and no clock: somebody calls `look()` about once a second, `read()` when that answers `changed`, on any
thread, and `take()` if what it says is to hold.
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
# Of what a name leads to, links followed: when it was written, and its permissions changed, in ns; bytes; inode.
Stamp = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Reading:
    """What a file said. Without `policies` it is what holds already, or the `error` tells what is wrong."""

    stamp: Stamp | None  # None: it was written to meanwhile, and may be half of something
    content: str  # 12 hex digits of its bytes; empty if it could not be read
    policies: PolicyMap | None = None
    error: ConfigError | None = None


class PolicyFile:
    """Serves where a PolicyMap does, with the policies that were taken last. One caller at a time, but for `read`.

    Read when it is made: PolicyError or ConfigError as of `load_policies`; with `strict` also for misplaced elements.
    """

    def __init__(self, path: Path, *, strict: bool = False) -> None:
        self.path = path.absolute()  # not resolved: a link that leads elsewhere later is a change
        self.content = ""
        self._strict = strict
        first = self.read()
        if first.policies is None:
            raise first.error or PolicyError("it is being written to", where=str(path), cure="Try again")
        self.policies = first.policies
        self.content = first.content
        self._read: Stamp | None = None  # so it is read once more: of two changes at once a clock may show only one
        self._seen: Stamp | None = None
        self._gone = False

    def __str__(self) -> str:
        return str(self.path)

    def resolve(self, name: str, kind: str = "queue") -> RedeliveryPolicy:
        """The policy for a source of that name, as of now."""
        return self.policies.resolve(name, kind)

    def look(self) -> Look:
        """`changed` until that change is `noted`, once it looks the same twice: before, it may be half written.

        `gone`, once, for a file that is not there, or cannot be seen any more.
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
        """Read and parse it, which may take a while; changes nothing here. Never raises.

        An empty file is refused: a full disk leaves one behind.
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
        except Exception as error:  # a fault of ours, and no reason to stop watching
            fault = PolicyError(f"it cannot be read: {error!r:.200}", where=str(self.path))
            return Reading(self._unless_changed(before), content, error=fault)
        return Reading(self._unless_changed(before), content, policies)

    def noted(self, reading: Reading) -> None:
        """It need not be read again as long as it looks as it did then."""
        self._read = reading.stamp

    def take(self, reading: Reading) -> None:
        """What was read holds from now on."""
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
