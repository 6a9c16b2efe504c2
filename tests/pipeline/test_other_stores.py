# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests the protocol of publishing on stores of others: S3Mock, Azurite, and s3rver, which knows no conditions."""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import threading
from collections.abc import Iterator
from email.utils import formatdate
from pathlib import Path

import pytest

from redeliver_mw.pipeline.errors import StoreTrouble
from redeliver_mw.pipeline.files import FileChanged
from redeliver_mw.pipeline.head import LostRace
from redeliver_mw.pipeline.lake import snapshots
from redeliver_mw.pipeline.object_files import ObjectFiles
from tests.brokers import _install
from tests.brokers.skips import not_to_be_had
from tests.pipeline.head_writer import begin, publish_one
from tests.pipeline.other_stores import azurite, make_bucket, s3mock, s3rver
from tests.pipeline.s3_server import BUCKET, config

# The account that every Azurite has; it is in its documentation, and opens nothing else.
ACCOUNT = "devstoreaccount1"
ACCOUNT_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


@pytest.fixture(scope="module", params=["s3mock", "azurite"])
def files(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectFiles]:
    """Yield a lake's place in a store of others that honours conditions."""
    try:
        if request.param == "s3mock":
            with s3mock() as url:
                make_bucket(url, BUCKET)
                yield ObjectFiles(f"s3://{BUCKET}/orders/lake", config(url))
        else:
            with azurite(tmp_path_factory.mktemp("azurite")) as url:
                make_container(url, BUCKET)
                settings = {"account_name": ACCOUNT, "account_key": ACCOUNT_KEY, "endpoint": f"{url}/{ACCOUNT}"}
                yield ObjectFiles(f"az://{BUCKET}/orders/lake", settings)
    except _install.BrokerMissing as missing:
        not_to_be_had(missing)


def make_container(url: str, name: str) -> None:
    path, at = f"/{ACCOUNT}/{name}", formatdate(usegmt=True)
    signed = f"PUT\n\n\n\n\n\n\n\n\n\n\n\nx-ms-date:{at}\nx-ms-version:2021-08-06\n/{ACCOUNT}{path}\nrestype:container"
    digest = hmac.new(base64.b64decode(ACCOUNT_KEY), signed.encode(), hashlib.sha256).digest()
    headers = {
        "x-ms-date": at,
        "x-ms-version": "2021-08-06",
        "Authorization": f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}",
        "Content-Length": "0",
    }
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=30)
    try:
        connection.request("PUT", f"{path}?restype=container", b"", headers)
        answer = connection.getresponse()
        assert answer.status == 201, answer.read()
    finally:
        connection.close()


def test_runs_follow_each_other_and_files_are_read_listed_and_removed(files: ObjectFiles, tmp_path: Path) -> None:
    first, second = publish_one(files), publish_one(files)
    assert [one.run for one in snapshots.current(files).manifests][-2:] == [first, second]
    draft = tmp_path / "draft"
    draft.write_bytes(b"0123456789" * 1000)
    assert files.finish(str(draft), "a/b/c.parquet") == 10_000
    with files.open("a/b/c.parquet") as opened:
        opened.seek(9_995)
        assert opened.read() == b"56789"
    assert [entry.name for entry in files.entries("a/b")] == ["c.parquet"]
    files.remove("a")
    assert files.entries("a") == []
    assert files.versioned("a/b/c.parquet") is None


def raced(files: ObjectFiles, base: snapshots.Snapshot) -> tuple[list[str], list[LostRace]]:
    """Let writers on threads publish their runs together; return the published runs, and the errors of the others."""
    together, won, lost = threading.Barrier(4), list[str](), list[LostRace]()

    def race() -> None:
        manifest = begin(files, base)
        together.wait()
        try:
            snapshots.publish(files, base, manifest)
            won.append(manifest.run)
        except LostRace as error:
            lost.append(error)

    threads = [threading.Thread(target=race) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return won, lost


def test_of_writers_with_one_base_exactly_one_is_published(files: ObjectFiles) -> None:
    for _ in range(5):
        base = snapshots.current(files)
        won, lost = raced(files, base)
        assert (len(won), len(lost)) == (1, 3)
        assert all(won[0] in error.what for error in lost)
        assert [one.run for one in snapshots.current(files).manifests] == [*(one.run for one in base.manifests), *won]


def test_a_swap_of_an_old_version_is_refused(files: ObjectFiles) -> None:
    files.swap("other/_head.json", b"1", None)
    first = files.versioned("other/_head.json")
    assert first is not None
    files.swap("other/_head.json", b"2", first.version)
    for version in (None, first.version):
        with pytest.raises(FileChanged):
            files.swap("other/_head.json", b"3", version)
    assert files.read("other/_head.json") == b"2"


def test_a_store_without_conditions_is_found_out_and_refused(tmp_path: Path) -> None:
    """s3rver accepts each put, whatever its conditions."""
    try:
        with s3rver(tmp_path / "objects") as url:
            make_bucket(url, BUCKET)
            settings = config(url) | {"access_key_id": "S3RVER", "secret_access_key": "S3RVER"}
            files = ObjectFiles(f"s3://{BUCKET}/orders/lake", settings)
            with pytest.raises(StoreTrouble) as error:
                files.require_swaps()  # as each writer does before its first file
            assert error.value.code == "store-not-conditional"
            assert snapshots.current(files).head.version is None
    except _install.BrokerMissing as missing:
        not_to_be_had(missing)
