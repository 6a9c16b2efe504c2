# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Implements the file operations of a lake for a bucket: Amazon S3, Google Cloud Storage, Azure, and compatible stores.

A put is atomic, so `publish` is one. `swap` is a put on condition (`If-Match`, `If-None-Match`). There is no lock: of
several writers the one that swaps the head first is published; see `head`.

Credentials come from the usual places of the provider. A store's own error text is never shown, because it may contain
the name of a key.
"""

from __future__ import annotations

import configparser
import errno
import io
import json
import os
import re
import secrets
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, cast
from urllib.parse import urlsplit

from ..errors import ConfigError, MissingExtra
from .errors import StoreTrouble
from .file_store import FileChanged, FileEntry, Versioned

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from obstore.store import ObjectStore

SCHEMES: Final = ("s3", "s3a", "gs", "az", "abfs", "abfss")
PROBES: Final = "_probe"
_AHEAD: Final = 1 << 20  # bytes read at least with one request
_WHOLE: Final = 64 << 20  # bytes that are put with one request: nothing of a torn upload stays in the bucket
_RETRIES: Final = 4
_SECONDS: Final = 30  # for one request with all its repetitions
_CODE: Final = re.compile(r"<Code>(?P<code>\w+)</Code>")
_STATUS: Final = re.compile(r"status code: (?P<status>\d{3})")
_MISSING: Final = ("NoSuchBucket", "ContainerNotFound", "bucket does not exist")
_REFUSED: Final = ("InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken", "AccessDenied")
_BUSY: Final = ("429", "500", "502", "503", "504")
_CREDENTIALS: Final = re.compile(r"169\.254\.169\.254|metadata\.google|credential|token", re.IGNORECASE)


class ObjectFiles:
    """Accesses the objects below a prefix of a bucket.

    `url` is `s3://bucket/prefix`, `gs://bucket/prefix` or `abfss://container@account.dfs.core.windows.net/prefix`.
    `config` overrides what the environment says, by the names of the provider's settings. Raises ConfigError for an
    address that is none or contains credentials, MissingExtra without the extra `object-store`. Makes no request.
    """

    is_folder = False

    def __init__(self, url: str, config: Mapping[str, str] | None = None) -> None:
        self.root = _checked(url)
        self._config = dict(config or {})
        self._store = _store(self.root, self._config)
        self._probed = False

    def url(self, path: str = "") -> str:
        return f"{self.root}/{path}" if path else self.root

    def spark_url(self, path: str = "") -> str:
        return re.sub("^s3:", "s3a:", self.url(path))

    def delta_options(self) -> dict[str, str]:
        """Return the settings with which the package deltalake reaches the same store. They may hold credentials."""
        config = _configured(self.root, self._config)
        return {**config, "allow_http": str(_is_plain(config)).lower()}

    def entries(self, folder: str = "") -> list[FileEntry]:
        import obstore

        prefix = f"{folder.strip('/')}/" if folder else ""
        with self._translated(folder):
            found = obstore.list_with_delimiter(self._store, prefix or None)
        folders = [FileEntry(path.rstrip("/").rpartition("/")[2], 0, True) for path in found["common_prefixes"]]
        objects = [FileEntry(one["path"].rpartition("/")[2], one["size"], False) for one in found["objects"]]
        return sorted([*folders, *objects])

    def read(self, path: str) -> bytes:
        import obstore

        with self._translated(path):
            return bytes(obstore.get(self._store, path).bytes())

    def open(self, path: str) -> BinaryIO:
        import obstore

        with self._translated(path):
            size = obstore.head(self._store, path)["size"]
        return cast(BinaryIO, io.BufferedReader(_ObjectReader(self, path, size), _AHEAD))

    def range(self, path: str, start: int, end: int) -> bytes:
        """Return the bytes from `start` on and before `end`."""
        import obstore

        with self._translated(path):
            return bytes(obstore.get_range(self._store, path, start=start, end=end))

    def draft(self, path: str) -> str:
        fd, draft = tempfile.mkstemp(prefix="redeliver-", suffix=f"-{path.rpartition('/')[2]}")
        os.close(fd)
        return draft

    def finish(self, draft: str, path: str) -> int:
        import obstore

        size = os.stat(draft).st_size
        with self._translated(path):
            obstore.put(self._store, path, Path(draft), use_multipart=size > _WHOLE)
        os.unlink(draft)
        return size

    def publish(self, path: str, content: bytes) -> None:
        import obstore

        with self._translated(path):
            obstore.put(self._store, path, content, use_multipart=False)

    def versioned(self, path: str) -> Versioned | None:
        import obstore

        try:
            with self._translated(path):
                found = obstore.get(self._store, path)
                content = bytes(found.bytes())
        except FileNotFoundError:
            return None
        return Versioned(content, json.dumps([found.meta["e_tag"], found.meta["version"]]))

    def require_swaps(self) -> None:
        self._probe()

    def swap(self, path: str, content: bytes, version: str | None) -> None:
        self._probe()
        self._put_if(path, content, version)

    def sync(self, paths: Iterable[str]) -> None:
        """Return at once: what a store has accepted survives."""

    def remove(self, path: str) -> None:
        import obstore

        with self._translated(path):
            below = [one["path"] for page in obstore.list(self._store, f"{path}/") for one in page]
            if below:
                obstore.delete(self._store, below)
            with suppress(FileNotFoundError):
                obstore.delete(self._store, path)

    def link(self, paths: Iterable[str], folder: str) -> None:
        raise OSError(errno.ENOTSUP, "a bucket has no links", self.url(folder))

    def locked(self, path: str, what: str) -> AbstractContextManager[None]:
        return nullcontext()

    def _put_if(self, path: str, content: bytes, version: str | None) -> None:
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        if version is None:
            mode: Any = "create"
        else:
            tag, number = json.loads(version)
            mode = {name: one for name, one in (("e_tag", tag), ("version", number)) if one is not None}
        try:
            with self._translated(path):
                obstore.put(self._store, path, content, mode=mode, use_multipart=False)
        except (AlreadyExistsError, PreconditionError):
            raise FileChanged(errno.EEXIST, "another content is there", self.url(path)) from None

    def _probe(self) -> None:
        """Raise StoreTrouble if the store ignores a condition. Called before the first swap of this object."""
        if self._probed:
            return
        path = f"{PROBES}/{secrets.token_hex(8)}"
        try:
            self._put_if(path, b"1", None)
            first = self.versioned(path)
            if first is None:
                raise self._unconditional("does not show an object that it has just accepted")
            self._require_refusal(path, None, "replaces an object on the condition that there is none (If-None-Match)")
            self._put_if(path, b"2", first.version)
            self._require_refusal(path, first.version, "replaces an object that has changed since (If-Match)")
        finally:
            with suppress(OSError):
                self.remove(path)
        self._probed = True

    def _require_refusal(self, path: str, version: str | None, what: str) -> None:
        try:
            self._put_if(path, b"3", version)
        except FileChanged:
            return
        raise self._unconditional(what)

    def _unconditional(self, what: str) -> StoreTrouble:
        return StoreTrouble(
            errno.ENOTSUP,
            f"this store {what}, so that two runs could overwrite each other",
            self.root,
            cure="Take a store with conditional writes, or keep the lake in a folder that all machines share",
            code="store-not-conditional",
        )

    @contextmanager
    def _translated(self, path: str) -> Iterator[None]:
        """Turn a store's errors into OSError, but for those of a condition. The store's own text does not get out."""
        from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError

        try:
            yield
        except (AlreadyExistsError, PreconditionError, StoreTrouble):
            raise
        except FileNotFoundError as error:
            if any(mark in str(error) for mark in _MISSING):
                raise self._trouble(str(error)) from None
            raise FileNotFoundError(errno.ENOENT, "no such object", self.url(path)) from None
        except (BaseError, OSError) as error:
            raise self._trouble(f"{type(error).__name__} {error}") from None

    def _trouble(self, text: str) -> StoreTrouble:
        code, status = _CODE.search(text), _STATUS.search(text)
        told = " ".join(part for part in (status and status["status"], code and code["code"]) if part)
        told = f" ({told})" if told else ""
        if any(mark in text for mark in _MISSING):
            return StoreTrouble(
                errno.ENOENT,
                f"there is no such bucket{told}",
                self.root,
                cure="Correct the address, or make the bucket first",
                code="bucket-missing",
            )
        if code and code["code"] == "RequestTimeTooSkewed":
            return StoreTrouble(
                errno.EACCES,
                f"the store refuses this machine's clock{told}",
                self.root,
                cure="Set the clock, and run it again",
                code="bucket-refused",
            )
        refused = (code and code["code"] in _REFUSED) or (status and status["status"] in ("401", "403"))
        if refused or text.startswith(("PermissionDenied", "Unauthenticated")):
            return StoreTrouble(
                errno.EACCES,
                f"the store refuses access{told}",
                self.root,
                cure="Check the credentials, and that they may list, read, write and delete there",
                code="bucket-refused",
            )
        if status is None and _CREDENTIALS.search(text):
            return StoreTrouble(
                errno.EACCES,
                "no credentials were found",
                self.root,
                cure="Set the provider's environment variables, its configuration file or the machine's role",
                code="bucket-refused",
            )
        if status is None or status["status"] in _BUSY:
            what = "the store is busy or out of order" if status else "the store does not answer"
            return StoreTrouble(
                errno.EIO, f"{what}{told}", self.root, cure="Run it again later", code="store-not-answering"
            )
        return StoreTrouble(
            errno.EIO,
            f"the store refuses a request{told}",
            self.root,
            cure="Check the address, the region and the endpoint",
            code="bucket-refused",
        )


class _ObjectReader(io.RawIOBase):
    """Reads an object by ranges, each a request of its own."""

    def __init__(self, files: ObjectFiles, path: str, size: int) -> None:
        self._files, self._path, self._size, self._at = files, path, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = max(0, offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence])
        return self._at

    def readinto(self, buffer: Any) -> int:
        end = min(self._size, self._at + len(buffer))
        if end <= self._at:
            return 0
        content = self._files.range(self._path, self._at, end)
        buffer[: len(content)] = content
        self._at += len(content)
        return len(content)


def _checked(url: str) -> str:
    parts = urlsplit(url)
    bucket, prefix = parts.hostname or "", parts.path.strip("/")
    azure = parts.scheme in ("az", "abfs", "abfss")
    if parts.password is not None or (parts.username is not None and not azure) or parts.query or parts.fragment:
        raise ConfigError(
            "an address of a bucket has no user, password, query or fragment",
            where=f"{parts.scheme}://{bucket}",
            cure="Give credentials in the environment, and the address as scheme://bucket/prefix",
            code="path-not-usable",
        )
    if parts.scheme not in SCHEMES or not bucket or not prefix:
        raise ConfigError(
            "no address of a lake in a bucket",
            where=url,
            cure="Write it as s3://bucket/prefix: the lake needs a prefix of its own",
            code="path-not-usable",
        )
    scheme = "s3" if parts.scheme == "s3a" else parts.scheme
    return f"{scheme}://{parts.netloc}/{prefix}"


def _store(url: str, config: dict[str, str]) -> ObjectStore:
    try:
        from obstore.store import from_url
    except ImportError:
        raise MissingExtra(
            "obstore is not installed", where=url, cure="Run: pip install 'redeliver-mw[object-store]'"
        ) from None
    config = _configured(url, config)
    local = _is_plain(config)
    make: Callable[..., ObjectStore] = from_url  # its overloads want the type of one provider
    return make(
        url,
        config=config or None,
        client_options={"connect_timeout": "5s", "timeout": f"{_SECONDS}s", **({"allow_http": True} if local else {})},
        retry_config={"max_retries": _RETRIES, "retry_timeout": timedelta(seconds=_SECONDS)},
    )


def _configured(url: str, config: dict[str, str]) -> dict[str, str]:
    return {**_s3_settings(os.environ), **config} if url.startswith("s3:") else config


def _is_plain(config: Mapping[str, str]) -> bool:
    """Return whether the endpoint is one without TLS, as a server on this machine is."""
    return str(config.get("endpoint", "")).startswith("http://")


def _s3_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what obstore does not read by itself: the endpoint's newer names, and the profile in AWS's own files.

    The environment wins over the files, as with AWS's own tools. Only static keys are read from the files.
    """
    found: dict[str, str] = {}
    profile = environment.get("AWS_PROFILE") or environment.get("AWS_DEFAULT_PROFILE") or "default"
    home = Path(environment.get("HOME") or "/")
    credentials = _section(environment.get("AWS_SHARED_CREDENTIALS_FILE") or home / ".aws/credentials", profile)
    name = profile if profile == "default" else f"profile {profile}"
    settings = _section(environment.get("AWS_CONFIG_FILE") or home / ".aws/config", name)
    elsewhere = ("AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI")
    if not any(environment.get(one) for one in elsewhere):
        both = {**settings, **credentials}
        names = {
            "aws_access_key_id": "access_key_id",
            "aws_secret_access_key": "secret_access_key",
            "aws_session_token": "session_token",
        }
        found |= {ours: both[theirs] for theirs, ours in names.items() if theirs in both}
    if not (environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION")) and "region" in settings:
        found["region"] = settings["region"]
    names_of_endpoint = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
    endpoint = next(
        (environment[one] for one in names_of_endpoint if environment.get(one)), settings.get("endpoint_url")
    )
    return found | ({"endpoint": endpoint} if endpoint else {})


def _section(path: str | Path, name: str) -> dict[str, str]:
    parser = configparser.RawConfigParser()
    with suppress(OSError, configparser.Error, UnicodeDecodeError):
        parser.read(path, encoding="utf-8")
        return dict(parser.items(name)) if parser.has_section(name) else {}
    return {}
