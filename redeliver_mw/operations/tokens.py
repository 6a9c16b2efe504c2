# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Keeps the tokens of the HTTP API: their names, their roles and their ends. The store has a hash of each, no token.

A token is `rdv_ID_SECRET`. The secret has 256 random bits, so a plain SHA-256 of it cannot be searched for. The tables
are a set of their own beside those of the store, with their own version.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass
from typing import Final, Literal, get_args

from sqlalchemy import BigInteger, Column, Integer, MetaData, Row, Table, Text, insert, select, update

from ..errors import ConfigError, StoreError
from ..redaction import clean
from ..storage.table_set import TableSet, prepare
from .operation import now_us, person
from .store import Store
from .tables import STORE

Role = Literal["viewer", "reader", "operator", "admin"]
ROLES: Final[tuple[Role, ...]] = get_args(Role)  # each may do all that the one before it may
TOKEN: Final = re.compile(r"rdv_([0-9a-f]{12})_([A-Za-z0-9_-]{43})", re.ASCII)
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,63}", re.ASCII)
DAY_S: Final = 86_400.0
LONGEST_S: Final = 3650 * DAY_S

metadata = MetaData()
versions = Table("redeliver_api_version", metadata, Column("version", Integer, nullable=False))
tokens = Table(
    "redeliver_api_token",
    metadata,
    Column("token_id", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("role", Text, nullable=False),
    Column("hash", Text, nullable=False),  # SHA-256 of the whole token, in hex
    Column("made_us", BigInteger, nullable=False),
    Column("made_by", Text, nullable=False),
    Column("expires_us", BigInteger, nullable=False),
    Column("revoked_us", BigInteger),
)
API: Final = TableSet(
    name="store",
    metadata=metadata,
    versions=versions,
    version=1,
    upgrades={},
    errors=STORE.errors,
    cure_missing="Name the store with --store",
    cure_no_tables="Make a token with `redeliver api token add`",
    cure_older="Run `redeliver api token add` of this redeliver-mw once: that upgrades them",
)


@dataclass(frozen=True, slots=True)
class ApiToken:
    """Describes a token without its secret. Times are microseconds since 1970, UTC."""

    token_id: str
    name: str
    role: Role
    made_us: int
    made_by: str
    expires_us: int
    revoked_us: int | None

    def state(self, at_us: int) -> Literal["valid", "expired", "revoked"]:
        """Return whether the token can be used at a time."""
        if self.revoked_us is not None:
            return "revoked"
        return "expired" if at_us >= self.expires_us else "valid"


_TOKENS: Final = select(*(tokens.c[name] for name in ApiToken.__dataclass_fields__))


def prepare_tokens(store: Store) -> None:
    """Make the tables of tokens where they are missing. Raises ConfigError if they do not fit, and StoreError."""
    with store.writing() as connection:
        prepare(connection, store.where, API)


def add_token(store: Store, name: str, role: str, *, expires_s: float, who: str = "") -> tuple[ApiToken, str]:
    """Make a token that ends after `expires_s` seconds, and return it with its text, which nobody can get again.

    Raises ConfigError for a name that cannot be used or that a valid token has, for an unknown role and for an end
    that is not between one second and ten years away, and StoreError.
    """
    if NAME.fullmatch(name) is None:
        raise ConfigError(
            f"{name!r} cannot be the name of a token",
            where="NAME",
            cure="Write 1 to 64 letters, digits and _ . @ -, and begin with a letter or a digit",
            code="api-token-name",
        )
    known = next((one for one in ROLES if one == role), None)
    if known is None:
        raise ConfigError(
            f"there is no role {role!r}", where="--role", cure=f"Write one of {', '.join(ROLES)}", code="option-value"
        )
    if not 1 <= expires_s <= LONGEST_S:
        raise ConfigError(
            "a token ends between one second and ten years from now",
            where="--expires",
            cure="Write a length of time such as 90d",
            code="option-value",
        )
    prepare_tokens(store)
    at = now_us()
    token_id = secrets.token_hex(6)
    text = f"rdv_{token_id}_{secrets.token_urlsafe(32)}"
    made = ApiToken(token_id, name, known, at, clean(who) or person(), at + round(expires_s * 1e6), None)
    with store.writing() as connection:
        rows = connection.execute(_TOKENS.where(tokens.c.name == name)).all()
        if any(_token(row).state(at) == "valid" for row in rows):
            raise ConfigError(
                f"there is a valid token {name!r}",
                where="NAME",
                cure="Revoke it first, or choose another name",
                code="api-token-name",
            )
        row = {field: getattr(made, field) for field in ApiToken.__dataclass_fields__}
        connection.execute(insert(tokens).values(**row, hash=_hash(text)))
    return made, text


def all_tokens(store: Store) -> list[ApiToken]:
    """Return all tokens, the newest first, also those that cannot be used any more. Raises StoreError."""
    prepare_tokens(store)
    with store.reading() as connection:
        rows = connection.execute(_TOKENS.order_by(tokens.c.made_us.desc(), tokens.c.token_id)).all()
    return [_token(row) for row in rows]


def revoke_token(store: Store, name: str) -> ApiToken:
    """End the valid token with this name, or the one with this id, at once. Raises StoreError if there is none."""
    prepare_tokens(store)
    at = now_us()
    with store.writing() as connection:
        rows = connection.execute(_TOKENS.where((tokens.c.name == name) | (tokens.c.token_id == name))).all()
        found = next((one for one in map(_token, rows) if one.state(at) == "valid"), None)
        if found is None:
            raise StoreError(
                f"there is no valid token {name!r}",
                where=store.where,
                cure="Take a name from `redeliver api token list`",
                code="api-token-not-found",
            )
        connection.execute(update(tokens).where(tokens.c.token_id == found.token_id).values(revoked_us=at))
    return found


def token_of(store: Store, text: str) -> ApiToken | None:
    """Return the token that has this text, whatever its state; None if there is none. Raises StoreError.

    The row is found by the id in the text, which is no secret; the hashes are compared in constant time.
    """
    parts = TOKEN.fullmatch(text)
    if parts is None:
        return None
    asked = _TOKENS.add_columns(tokens.c.hash).where(tokens.c.token_id == parts[1])
    with store.reading() as connection:
        row = connection.execute(asked).first()
    stored = "" if row is None else row.hash
    return _token(row) if hmac.compare_digest(stored, _hash(text)) and row is not None else None


def _token(row: Row[tuple[object, ...]]) -> ApiToken:
    return ApiToken(**{field: getattr(row, field) for field in ApiToken.__dataclass_fields__})


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
