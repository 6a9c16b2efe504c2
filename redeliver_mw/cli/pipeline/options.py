# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Holds the options, the Spark session and the progress display that the commands of `redeliver pipeline` share."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from ...errors import ConfigError
from ...redaction import redact

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MASTERS = re.compile(
    r"local(?:-connect)?(?:\[\s*(?:\d+|\*)\s*(?:,\s*\d+\s*)?\])?|local-cluster\[[\d\s,]+\]|yarn|(?:spark|k8s|sc)://\S+"
)


def _known_master(given: str | None) -> str | None:
    """Raise ConfigError for a master that Spark would reject, even if no session has to be started."""
    if given is not None and not _MASTERS.fullmatch(given):
        cure = "Take local[N], spark://…, yarn, k8s://… or sc://…; start another cluster manager with spark-submit"
        raise ConfigError(
            "this is no master of Spark's", where=f"--master {redact(given)}", cure=cure, code="spark-settings"
        )
    return given


def _known_settings(given: list[str] | None) -> list[str] | None:
    """Raise ConfigError for a setting that is not KEY=VALUE, even if no session has to be started."""
    _known_master(read_conf(given).get("spark.master"))
    return given


LakeFolder = Annotated[str, typer.Argument(metavar="LAKE", help="The lake: a folder, or s3://bucket/prefix")]
Since = Annotated[
    str | None, typer.Option("--since", metavar="TIME", help="Records from this day or time on (ISO 8601, UTC)")
]
Until = Annotated[
    str | None, typer.Option("--until", metavar="TIME", help="Records before this day or time (ISO 8601, UTC)")
]
Master = Annotated[
    str | None,
    typer.Option(
        "--master",
        metavar="URL",
        callback=_known_master,
        help="Spark's master, sc://host for Spark Connect; by default spark-submit's, else local[*]",
    ),
]
Conf = Annotated[
    list[str] | None,
    typer.Option(
        "--conf", metavar="KEY=VALUE", callback=_known_settings, help="A setting of Spark's own; may be repeated"
    ),
]


@contextmanager
def spark(master: str | None, conf: Sequence[str] | None) -> Iterator[SparkSession]:
    """Yield a session for one command. Raises ConfigError for an invalid setting, and the errors of `session`."""
    from ...pipeline.session import lent

    with ExitStack() as stack:
        settings = read_conf(conf)
        with telling("starting Spark"):
            started = stack.enter_context(lent(master, settings))
        yield started


def read_conf(given: Sequence[str] | None) -> dict[str, str]:
    """Return `KEY=VALUE` settings as a mapping. Raises ConfigError if one is invalid."""
    pairs = [one.partition("=") for one in given or ()]
    for key, mark, value in pairs:
        if not mark or not key.strip():
            where = f"--conf {key}{mark}{value}"
            raise ConfigError(
                "no KEY=VALUE", where=where, cure="Write it as in --conf spark.executor.memory=4g", code="option-value"
            )
    return {key.strip(): value.strip() for key, _, value in pairs}


@contextmanager
def telling(what: str) -> Iterator[Callable[[str, int, int], None] | None]:
    """Yield a function that shows progress on stderr, or None if stderr is no terminal.

    The function takes the current step, and how many of how many bytes are done.
    """
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(binary_units=True), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(what, total=None)
        yield lambda now, done, of: shown.update(task, description=now, completed=done, total=of)
