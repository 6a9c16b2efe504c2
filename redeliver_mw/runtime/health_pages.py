# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Makes the pages `/live` and `/ready`, for whatever watches this process, such as Kubernetes.

`/live` answers 200 as long as this process answers at all. `/ready` answers 200, or 503 with what is not ready.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

from ..telemetry.page_server import Answer, Page, json_answer

log = logging.getLogger("redeliver_mw")

NotReady = Callable[[], Sequence[Mapping[str, Any]]]  # returns what keeps the process from being ready; empty: nothing


def health_pages(not_ready: NotReady) -> dict[str, Page]:
    """Return the pages, which answer with `not_ready`. They call it on the server's thread."""
    readiness = _Readiness(not_ready)
    return {"/live": lambda _: json_answer(HTTPStatus.OK, {"live": True}), "/ready": readiness.answer}


class _Readiness:
    def __init__(self, not_ready: NotReady) -> None:
        self._not_ready = not_ready
        self._unreadable = False  # whether this was logged

    def answer(self, accept: str) -> Answer:
        found = self._obstacles()
        status = HTTPStatus.SERVICE_UNAVAILABLE if found else HTTPStatus.OK
        return json_answer(status, {"ready": not found, "not_ready": found})

    def _obstacles(self) -> list[Mapping[str, Any]]:
        try:
            found = list(self._not_ready())
        except Exception:  # an error of ours: the client learns that the state is unknown
            if not self._unreadable:
                self._unreadable = True
                log.exception("the health of this process cannot be read")
            return [{"what": "app", "why": "its health cannot be read; the log says why"}]
        self._unreadable = False
        return found
