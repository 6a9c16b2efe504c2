# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Reads and writes a frozen plan in its folder: the letters that go back, their order, and their changes. No Spark.

::

    plan.json                       written last; hashed, and contains the hash of every other file
    letters/bucket-00000.parquet    the table PLAN, by `position`
    left_out.parquet                dl_id, why, detail: the letters that were asked for and are not in the plan

A plan may leave the bodies in the lake: then `body` is null, or redacted for people to read, and `letter` is null.
Files that a replay adds (`ledger/`, `report.json`, its lock) are no part of the plan.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal

from ...errors import ConfigError
from ..errors import lake_error
from ..files import Files, files_at

FORMAT: Final = 1
ABOUT: Final = "plan.json"
LETTERS: Final = "letters"
LEFT_OUT: Final = "left_out.parquet"
_AT_ONCE: Final = 4 << 20  # bytes of a file that are hashed at a time
_MAKE: Final = "Make one with `redeliver pipeline plan`"
_ANEW: Final = "Make a new plan, into another folder: what is in this one is not what was counted and looked at"


Bodies = Literal["plan", "lake"]


@dataclass(frozen=True, slots=True)
class PlanFile:
    """Describes a file of a plan; its path is relative to the plan's folder."""

    path: str
    rows: int
    bytes: int
    sha256: str

    @property
    def bucket(self) -> int:
        """Return the number of the bucket in this file."""
        return int(os.path.basename(self.path).removeprefix("bucket-").removesuffix(".parquet"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Describes a plan. Times in `_us` are microseconds since 1970, UTC.

    `letters` are in `buckets` files at most: a bucket without letters has none. `bodies` says where their bodies are.
    `destinations`, `brokers` and `dialects` count the letters by target, broker and dialect; `left_out` counts the
    letters that were asked for and are not in the plan, by reason (docs/plan.md lists the words). `edits` are those of
    `--set`, and with a minus before them those of `--unset`, as they were given. `errors` are the first exceptions of a
    transform, each after the dl_id of its letter.
    """

    folder: str
    plan_id: str
    created_us: int
    lake: str
    letters: int
    buckets: int
    files: tuple[PlanFile, ...]
    since_us: int | None = None
    until_us: int | None = None
    where: str | None = None
    transform: str | None = None
    edits: tuple[str, ...] = ()
    ordered: bool = False
    bodies: Bodies = "plan"
    redact: str | None = None
    destinations: Mapping[str, int] = field(default_factory=dict)
    brokers: Mapping[str, int] = field(default_factory=dict)
    dialects: Mapping[str, int] = field(default_factory=dict)
    left_out: Mapping[str, int] = field(default_factory=dict)
    left_out_file: PlanFile | None = None
    errors: tuple[tuple[str, str], ...] = ()
    sha256: str = ""


def path_of(bucket: int) -> str:
    """Return the path of a bucket's letters, relative to the plan's folder."""
    return f"{LETTERS}/bucket-{bucket:05d}.parquet"


def freeze(files: Files, plan: Plan) -> Plan:
    """Write `plan.json`, with its hash; all other files of the plan must exist and be synced. Raises OSError."""
    about = _to_json(plan)
    about["sha256"] = _hash(about)
    files.publish(ABOUT, json.dumps(about, indent=2).encode())
    return _from_json(plan.folder, about)


def read_plan(folder: str | os.PathLike[str], *, check_files: bool = True) -> Plan:
    """Return the frozen plan in a folder.

    Raises ConfigError if there is none, if it comes from a newer release, or if any file was changed since it was
    frozen; without `check_files` only `plan.json` is checked. Raises LakeError if the plan cannot be read.
    """
    files = files_at(folder, "plan")
    where = files.url()
    try:
        about = json.loads(files.read(ABOUT))
        plan = _checked(where, about)
        if check_files:
            for file in (*plan.files, *([plan.left_out_file] if plan.left_out_file else ())):
                _check(files, file)
        return plan
    except (FileNotFoundError, NotADirectoryError):
        raise ConfigError(
            f"no plan is here: {ABOUT} is missing", where=where, cure=_MAKE, code="plan-missing"
        ) from None
    except UnicodeDecodeError as error:
        raise _changed(f"not UTF-8, at byte {error.start}", where, ABOUT) from None
    except (ValueError, KeyError, TypeError) as error:
        raise _changed(f"it cannot be read: {error}", where, ABOUT) from None
    except OSError as error:
        raise lake_error(error, where) from error


def hash_of(files: Files, path: str) -> tuple[int, str]:
    """Return the size in bytes and the SHA-256 of a file. Raises OSError."""
    digest, size = hashlib.sha256(), 0
    with open(files.url(path), "rb", buffering=0) as file:
        while part := file.read(_AT_ONCE):
            digest.update(part)
            size += len(part)
    return size, digest.hexdigest()


def _checked(folder: str, about: Any) -> Plan:
    if not isinstance(about, dict):
        raise _changed("it is no JSON object", folder, ABOUT)
    found = about.get("format")
    if not isinstance(found, int) or found > FORMAT:
        what = f"the plan has the format {found!r}, and this release knows {FORMAT}"
        raise ConfigError(what, where=folder, cure="Upgrade redeliver-mw", code="format-newer")
    if about.get("sha256") != _hash(about):
        raise _changed("it was changed after it was frozen", folder, ABOUT)
    plan = _from_json(folder, about)
    if sum(file.rows for file in plan.files) != plan.letters:
        raise _changed(f"{plan.letters} letters, and its files hold others", folder, ABOUT)
    return plan


def _check(files: Files, file: PlanFile) -> None:
    try:
        size, digest = hash_of(files, file.path)
    except FileNotFoundError:
        raise _changed("it is missing", files.url(), file.path) from None
    if (size, digest) != (file.bytes, file.sha256):
        raise _changed("it was changed after the plan was frozen", files.url(), file.path)


def _changed(what: str, folder: str, name: str) -> ConfigError:
    return ConfigError(what, where=os.path.join(folder, name), cure=_ANEW, code="plan-changed")


def _hash(about: Mapping[str, Any]) -> str:
    """Return the hash of `plan.json` except the hash itself.

    It covers the other files, whose hashes are in `plan.json`.
    """
    hashed = {name: value for name, value in about.items() if name != "sha256"}
    return hashlib.sha256(json.dumps(hashed, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _to_json(plan: Plan) -> dict[str, Any]:
    about = {"format": FORMAT, **asdict(plan)}
    del about["folder"]
    about["set"] = list(about.pop("edits"))
    about["files"] = list(about["files"])
    return about


def _from_json(folder: str, about: Mapping[str, Any]) -> Plan:
    given = {name: value for name, value in about.items() if name not in ("format", "set")}
    left_out = given["left_out_file"]
    return Plan(
        **given
        | {
            "folder": folder,
            "edits": tuple(about["set"]),
            "errors": tuple((dl_id, what) for dl_id, what in about["errors"]),
            "files": tuple(PlanFile(**one) for one in given["files"]),
            "left_out_file": None if left_out is None else PlanFile(**left_out),
        }
    )
