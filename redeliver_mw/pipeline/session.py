# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Makes a SparkSession with the required settings: UTC, this Python for the workers, and few resources on one machine.

`master` is any of Spark's own (`local[4]`, `yarn`, `k8s://…`), a Spark Connect address (`sc://host:15002`), or
`local-connect`, a Connect server started here, for trying jobs that are to run on a server elsewhere. Without `master`:
the value of spark-submit or SPARK_REMOTE, otherwise `local[*]`. Settings in `conf` override everything set here.
"""

from __future__ import annotations

import os
import re
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Final

from ..errors import ConfigError, MissingExtra, RedeliverError
from .errors import SparkError, missing_spark
from .java import require_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL_CONNECT: Final = "local-connect"
_CONNECT_PORT: Final = 15002
_PATIENCE: Final = 10.0  # seconds until an address that does not answer is given up
_GIB: Final = 1 << 30
_TAIL: Final = 16_384  # bytes of Spark's own messages that are read if Spark does not start
_YOURS: Final = re.compile(
    r"Could not parse Master|Master must|IllegalArgument|INVALID_CONF|Invalid maximum heap|unresolved dep"
)
_COMPLAINT: Final = re.compile(r"Exception|Error|Invalid|not found|refused", re.IGNORECASE)


def session(master: str | None = None, conf: Mapping[str, str] | None = None, *, quiet: bool = True) -> SparkSession:
    """Return the SparkSession of this process, made if there is none; `conf` holds Spark's own settings.

    `quiet` hides the JVM's output on stderr, for as long as the JVM lives, unless `conf` has a `spark.log.level`.
    Raises MissingExtra without pyspark, ConfigError if Java is missing or too old and for settings that Spark refuses,
    SparkError if Spark does not start.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise missing_spark(error) from None
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    given = dict(conf or {})
    where = master or given.get("spark.master") or _told_by_the_environment() or "local[*]"
    builder = SparkSession.builder.appName("redeliver")
    if _is_remote(where):
        if where.startswith(LOCAL_CONNECT) and not _there_is_one():
            _require_free_port(where)
        _require_listener(where)
        builder = builder.remote(_remote(where))
    elif not _launched():
        require_java()
        builder = builder.master(where)
    for name, value in {**_settings(where), **given}.items():
        builder = builder.config(name, value)
    with _heard(quiet and "spark.log.level" not in given) as log:
        try:
            started = builder.getOrCreate()
            started.conf.get("spark.sql.session.timeZone")  # Spark checks the settings when the first one is read
            return started
        except ImportError as error:
            raise MissingExtra(str(error), where=where, cure="Run: pip install 'pyspark[connect]'") from None
        except Exception as error:  # whatever Spark, py4j or grpc raise: their texts are not meant for people
            raise _no_start(error, where, log) from error


@contextmanager
def lent(master: str | None = None, conf: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """Yield a session for as long as the block runs; an existing session stays. Raises the errors of `session`."""
    before = _there_is_one()
    started = session(master, conf)
    try:
        yield started
    finally:
        if not before:
            started.stop()


def _there_is_one() -> bool:
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise missing_spark(error) from None
    return SparkSession.getActiveSession() is not None


def _told_by_the_environment() -> str | None:
    if remote := os.environ.get("SPARK_REMOTE"):
        return remote
    submitted = re.search(r"--master[= ](\S+)", os.environ.get("PYSPARK_SUBMIT_ARGS", ""))
    return submitted[1] if submitted else "spark-submit" if _launched() else None


def _launched() -> bool:
    """Return whether spark-submit has started the JVM, and given a master."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _is_remote(master: str) -> bool:
    return master.startswith(("sc://", LOCAL_CONNECT)) or "SPARK_REMOTE" in os.environ


def _remote(master: str) -> str:
    """Return the remote for a master: Spark's name for `local-connect[2]` is the remote `local[2]`."""
    local = re.fullmatch(rf"{LOCAL_CONNECT}(\[[^\]]+\])?", master)
    return f"local{local[1] or '[*]'}" if local else master


def _require_listener(master: str) -> None:
    """Raise SparkError if no server listens there: Spark itself would retry for minutes without a message."""
    address = re.match(r"sc://(?P<host>\[[^\]]+\]|[^:/;]+)(?::(?P<port>\d+))?", master)
    if address is None:
        return
    try:
        host, port = address["host"].strip("[]"), int(address["port"] or _CONNECT_PORT)
        socket.create_connection((host, port), timeout=_PATIENCE).close()
    except OSError as error:
        what = f"nobody answers there: {error.strerror or error}"
        raise SparkError(
            what, where=master, cure="Start its Spark Connect server, or correct --master", code="spark-not-started"
        ) from None


def _require_free_port(master: str) -> None:
    """Raise SparkError if something has the port of a server that is started here. Spark's client knows no other."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as Java does: a closed connection holds no port
        try:
            probe.bind(("127.0.0.1", _CONNECT_PORT))
        except OSError as error:
            raise SparkError(
                f"port {_CONNECT_PORT} of this machine, which its server needs, is not to be had: {error.strerror}",
                where=master,
                cure="End what listens there; if it is a Spark Connect server, give --master sc://localhost",
                code="spark-not-started",
            ) from None


def _settings(master: str) -> dict[str, str]:
    """Return the settings, which the user can override. A cluster's own defaults stay, because they fit the cluster."""
    always = {"spark.sql.session.timeZone": "UTC"}
    if not master.startswith("local"):
        return always
    return always | {
        "spark.sql.shuffle.partitions": str(_cores(master)),
        "spark.driver.memory": _driver_memory(),
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.warehouse.dir": os.path.join(tempfile.gettempdir(), "redeliver-spark-warehouse"),
        "spark.log.level": "ERROR",
        **_s3_settings(os.environ),
    }


def _s3_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what Spark's S3 client on this machine does not read from the environment by itself: no credentials."""
    names = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
    endpoint = next((environment[name] for name in names if environment.get(name)), None)
    if endpoint is None:
        return {}
    region = environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION") or "us-east-1"
    return {
        "spark.hadoop.fs.s3a.endpoint": endpoint,
        "spark.hadoop.fs.s3a.endpoint.region": region,
        "spark.hadoop.fs.s3a.path.style.access": "true",
    }


def _cores(master: str) -> int:
    wanted = re.search(r"\[(\d+)", master)
    return int(wanted[1]) if wanted else os.cpu_count() or 1


def _driver_memory() -> str:
    """Return a quarter of this machine's memory, from 1 to 8 GiB; the workers in Python need some, too."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return f"{max(1, min(8, pages // 4 // _GIB))}g"


@contextmanager
def _heard(quiet: bool) -> Iterator[IO[bytes] | None]:
    """Make stderr a nameless file while the JVM is started: the JVM inherits the file and continues to write to it."""
    if not quiet:
        yield None
        return
    sys.stderr.flush()
    with tempfile.TemporaryFile() as log:
        kept = os.dup(2)
        try:
            os.dup2(log.fileno(), 2)
            yield log
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def _no_start(error: Exception, master: str, log: IO[bytes] | None) -> RedeliverError:
    output = str(error)
    if log is not None:
        log.seek(max(0, log.seek(0, os.SEEK_END) - _TAIL))
        output += "\n" + log.read().decode(errors="replace")
    what = _reason(output)
    if _YOURS.search(output):
        return ConfigError(
            f"Spark does not take this: {what}", where=master, cure="Correct --master or --conf", code="spark-settings"
        )
    return SparkError(
        f"Spark does not start: {what}", where=master, cure="Run `redeliver pipeline doctor`", code="spark-not-started"
    )


def _reason(output: str) -> str:
    """Return the most informative line of Spark's and the JVM's output: the innermost cause, or the first complaint."""
    causes = re.findall(r"^(?:Caused by|Exception in thread \S+|): *(\S.*)$", output, re.MULTILINE)
    complaints = [line for line in output.splitlines() if _COMPLAINT.search(line)]
    return next(iter([*causes[-1:], *complaints, *output.splitlines()]), "").strip()[:300]
