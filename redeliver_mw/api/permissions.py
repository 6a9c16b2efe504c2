# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Says which role has which permission. Pure.

Each route names one permission, and each kind of operation another one; see `routes` and `kinds`. A role without the
permission is denied, and so is everything that no table names.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal, get_args

from ..operations.tokens import ROLES, Role

Permission = Literal[
    "letters:list",
    "letters:read",
    "letters:exact",
    "letters:collect",
    "letters:replay",
    "letters:archive",
    "letters:note",
    "letters:edit",
    "letters:discard",
    "letters:import",
    "letters:expire",
    "redirects:write",
    "apps:control",
]
PERMISSIONS: Final[tuple[Permission, ...]] = get_args(Permission)

# What each role may do beyond the role before it.
_MORE: Final[Mapping[Role, tuple[Permission, ...]]] = {
    "viewer": ("letters:list",),
    "reader": ("letters:read",),
    "operator": ("letters:collect", "letters:replay", "letters:archive", "letters:note"),
    "admin": (
        "letters:exact",
        "letters:edit",
        "letters:discard",
        "letters:import",
        "letters:expire",
        "redirects:write",
        "apps:control",
    ),
}


def _with_those_before() -> Mapping[Role, frozenset[Permission]]:
    found: dict[Role, frozenset[Permission]] = {}
    so_far: frozenset[Permission] = frozenset()
    for role in ROLES:
        so_far = so_far | frozenset(_MORE[role])
        found[role] = so_far
    return MappingProxyType(found)


ALLOWED: Final = _with_those_before()


def may(role: Role, permission: Permission) -> bool:
    """Return whether a role has a permission."""
    return permission in ALLOWED[role]


def least_role(permission: Permission) -> Role:
    """Return the role from which on a permission is given."""
    return next(role for role in ROLES if may(role, permission))
