# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Mounts the API in another application: under a path of FastAPI, and behind the page's function for Django."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI

from redeliver_mw.api import create_app
from redeliver_mw.errors import ConfigError
from redeliver_mw.operations import Store
from redeliver_mw.operations.tokens import add_token
from tests.api.serving import LETTERS, listening
from tests.operations.taking import put

PAGE = Path(__file__).resolve().parents[2] / "docs" / "http-api.md"


def in_fastapi(inner: Any) -> Any:
    site = FastAPI()
    site.mount("/dead-letters", inner)
    return site


def in_django(inner: Any) -> Any:
    """Return the application of the page on the API. Django itself is no dependency: a site without pages stands in."""
    [code] = re.findall(r"^```py\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    asgi = ModuleType("django.core.asgi")
    vars(asgi)["get_asgi_application"] = lambda: nothing_there
    found: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REDELIVER_STORE", "sqlite:///unused.db")
        patch.setenv("DJANGO_SETTINGS_MODULE", "shop.settings")
        for name in ("django", "django.core"):
            patch.setitem(sys.modules, name, ModuleType(name))
        patch.setitem(sys.modules, "django.core.asgi", asgi)
        exec(compile(code, "http-api.md", "exec"), found)
    found["dead_letters"] = inner
    return found["application"]


async def nothing_there(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 404, "headers": []})
    await send({"type": "http.response.body", "body": b""})


@pytest.mark.parametrize("mounted", [in_fastapi, in_django])
def test_the_api_answers_under_the_path_of_another_application(tmp_path: Path, mounted: Any) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    with Store(url) as store:
        put(store, *LETTERS)
        _, token = add_token(store, "anna", "operator", expires_s=60)
    app = create_app(url)
    headers = {"Authorization": f"Bearer {token}"}
    with listening(mounted(app)) as base:
        assert httpx2.get(f"{base}/api/v1/counts", headers=headers, timeout=20).status_code == 404
        with httpx2.Client(base_url=f"{base}/dead-letters/api/v1", headers=headers, timeout=20) as client:
            assert client.get("/counts").json()["waiting"] == 3
            assert client.get("/openapi.json").json()["servers"] == [{"url": "/dead-letters"}]
            assert client.get("/nothing").json()["code"] == "api-route"
            assert client.put("/counts", json={}).json()["code"] == "api-method"
            planned = client.post("/operations", json={"kind": "archive", "selection": {}}).json()
            assert client.post(f"/operations/{planned['id']}/run", json={}).status_code == 202
    app.close()
    assert app.runs.runs(planned["id"]) is False


@pytest.mark.parametrize("wrong", [{"hosts": "localhost"}, {"hosts": []}, {"keep_bodies": 0}, {"brokers": "nonsense"}])
def test_wrong_settings_are_refused_at_once(tmp_path: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        create_app(f"sqlite:///{tmp_path}/store.db", **wrong)
