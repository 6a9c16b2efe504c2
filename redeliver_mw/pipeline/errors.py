# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Turns errors of Spark and the lake into errors that a person can act on. Both have exit code 1."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager

from ..errors import ConfigError, MissingExtra, RedeliverError


class LakeError(RedeliverError):
    """Means that the lake's disk is full or refuses, another process writes to the lake, or something is not in it.

    Nothing is half-written: readers see the lake as it was before.
    """


class StoreTrouble(OSError):
    """Carries an object store's refusal, in words for people: `what` happened, the `cure` and the `code`.

    The store's own text is not kept, because it may contain the name of a key.
    """

    def __init__(self, number: int, what: str, where: str, *, cure: str, code: str) -> None:
        super().__init__(number, what, where)
        self.what, self.cure, self.code = what, cure, code


class SparkError(RedeliverError):
    """Means that Spark cannot be started or reached, or gave up a job."""


_FULL = re.compile(r"No space left on device|Disk quota exceeded|ENOSPC|EDQUOT", re.IGNORECASE)
_GONE = re.compile(
    r"\[(?:FAILED_READ_FILE\.FILE_NOT_EXIST|PATH_NOT_FOUND)\].*?(?P<path>\S+\.parquet)"
    r"|FileNotFoundException: File (?P<file>\S+\.parquet) does not exist"
)
_NO_CLIENT = re.compile(r"S3AFileSystem not found|No FileSystem for scheme \"?(?:s3a|gs|abfss?|az)\b")
_CAUSE = re.compile(r"^(?:Caused by: )?(?P<cause>(?:[\w.$]+(?:Error|Exception)): .+)$", re.MULTILINE)
_ABSENT = re.compile(r"(?:ModuleNotFound|Import)Error: ")
_OF_DISK = re.compile(r"\w+: \[Errno \d+\]")
_OURS = re.compile(r'File "[^"]*redeliver_mw/pipeline/')
_LONG = 300  # characters of another program's error text


def missing_spark(error: ImportError) -> MissingExtra:
    """Return the error for a part of the extra that is not installed."""
    name = (error.name or "pyspark").partition(".")[0]
    return MissingExtra(f"{name} is not installed", where="pipeline", cure="Run: pip install 'redeliver-mw[spark]'")


def lake_error(error: OSError, where: str) -> LakeError:
    """Return the error of a disk or an object store with its place and its cure."""
    if isinstance(error, StoreTrouble):
        return LakeError(error.what, where=where, cure=error.cure, code=error.code)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return LakeError("the disk is full", where=where, cure="Make room and run it again", code="lake-disk")
    what = f"cannot be read or written: {error.strerror or error}"
    return LakeError(
        what,
        where=where,
        cure="See to it that it is there, and that this user may read and write it",
        code="lake-disk",
    )


@contextmanager
def readable_errors(where: str) -> Iterator[None]:
    """Turn errors of Spark, Arrow and the disk in the block into one error about `where`.

    Our own errors pass unchanged.
    """
    try:
        yield
    except RedeliverError:
        raise
    except OSError as error:
        raise lake_error(error, where) from error
    except Exception as error:
        if (spark := _of_spark(error, where)) is None:
            raise
        raise spark from error


def _of_spark(error: Exception, where: str) -> RedeliverError | None:
    """Return an error of Spark for people; None for a bug of ours, here or in a task, which keeps its traceback."""
    if not type(error).__module__.startswith(("py4j.", "pyspark.", "grpc")):
        return None
    text = str(error)
    if _FULL.search(text):
        return lake_error(OSError(errno.ENOSPC, ""), where)
    if gone := _GONE.search(text):
        path = gone["path"] or gone["file"]
        cure = "Run it again; if that does not help, compact the journal, or make the marts, anew"
        return LakeError(f"a file is missing: {path}", where=where, cure=cure, code="lake-damaged")
    if _NO_CLIENT.search(text):
        return SparkError(
            "Spark has no client for this kind of bucket",
            where=where,
            cure="For s3:// give --conf spark.jars.packages=org.apache.hadoop:hadoop-aws:VERSION, with the version of "
            "Spark's own Hadoop",
            code="bucket-client-missing",
        )
    causes = [found["cause"] for found in _CAUSE.finditer(text)]
    what = (causes[-1] if causes else text.strip().partition("\n")[0] or type(error).__name__)[:_LONG]
    if _ABSENT.match(what):
        return SparkError(
            f"a worker lacks a package: {what}",
            where=where,
            cure="Run `redeliver pipeline doctor` there",
            code="spark-worker-package",
        )
    if _OF_DISK.match(what):
        return LakeError(
            f"cannot be read or written: {what}",
            where=where,
            cure="See to the disk, and run it again",
            code="lake-disk",
        )
    if _OURS.search(text):
        return None
    cure = "Look at Spark's own log, which --conf spark.log.level=WARN shows"
    return SparkError(f"Spark gave up: {what}", where=where, cure=cure, code="spark-job-failed")


def no_lake(what: str, where: str, cure: str, *, code: str) -> ConfigError:
    """Return the error for the user's path that is no lake, or a lake that this release cannot read."""
    return ConfigError(what, where=where, cure=cure, code=code)
