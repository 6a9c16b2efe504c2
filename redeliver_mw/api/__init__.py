# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Serves dead letters and the operations on them over HTTP, as an ASGI application. Needs the extra `api`."""

from __future__ import annotations

from ..errors import MissingExtra

try:
    from .app import Api, create_app
except ModuleNotFoundError as missing:
    if missing.name is None or missing.name.partition(".")[0] not in ("anyio", "starlette"):
        raise
    raise MissingExtra(
        f"the HTTP API needs {missing.name}, which is not installed", cure="pip install 'redeliver-mw[api]'"
    ) from None

__all__ = ["Api", "create_app"]
