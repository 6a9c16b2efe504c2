# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Lists the kinds of operations: for each the permission to plan it, to run it and to end it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from .permissions import Permission


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationKind:
    """Describes a kind of operations."""

    permission: Permission


KINDS: Final[Mapping[str, OperationKind]] = MappingProxyType(
    {
        "replay": OperationKind(permission="letters:replay"),
        "archive": OperationKind(permission="letters:archive"),
        "restore": OperationKind(permission="letters:archive"),
        "discard": OperationKind(permission="letters:discard"),
    }
)
_OTHER: Final = OperationKind(permission="apps:control")


def kind_of(name: str) -> OperationKind:
    """Return a kind; one that no table names needs the permission to control everything else."""
    return KINDS.get(name, _OTHER)
