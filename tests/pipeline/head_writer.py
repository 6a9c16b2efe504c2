# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Publishes runs of one file each, without Spark; test_head runs this module as a program.

`python head_writer.py PLACE ENDPOINT race RUNS` publishes as many runs, beginning anew when another writer was faster,
and prints each run that it has published. `… kill STEP` publishes one run, and kills itself before its step of this
number.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from redeliver_mw.pipeline.files import Files, files_at
from redeliver_mw.pipeline.head import LostRace
from redeliver_mw.pipeline.lake import snapshots
from redeliver_mw.pipeline.manifests import DataFile, Manifest, run_after
from redeliver_mw.pipeline.object_files import ObjectFiles
from tests.pipeline.s3_server import config

DAY = "events/dt=2026-11-01"


def files_of(place: str, endpoint: str) -> Files:
    return ObjectFiles(place, config(endpoint)) if place.startswith("s3:") else files_at(place)


def begin(files: Files, base: snapshots.Snapshot) -> Manifest:
    """Write a run's file, its manifest and its snapshot."""
    run = run_after(base.head.generation)
    path = f"{DAY}/run={run}/{run}.parquet"
    with snapshots.unpublished(files, base, run):
        files.publish(path, b"rows")
        manifest = Manifest(run=run, created_us=1, journal="/j", files=[DataFile(path, 1, 4)])
        snapshots.write(files, base, manifest)
    return manifest


def publish_one(files: Files) -> str:
    """Publish a run as a job does it, and return the run's name."""
    base = snapshots.current(files)
    snapshots.remove_dead(files, base)
    manifest = begin(files, base)
    now = snapshots.publish(files, base, manifest)
    snapshots.remove_dead(files, now)
    return manifest.run


def die_before(step: int) -> None:
    """Kill this process before its step of this number.

    A step is a file that is opened, renamed, removed or locked, or a request.
    """
    left = [step]

    def count() -> None:
        left[0] -= 1
        if left[0] < 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def watch(event: str, args: tuple[Any, ...]) -> None:
        if event in ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "fcntl.flock") or (
            event == "open" and isinstance(args[0], str) and "/lake" in args[0]
        ):
            count()

    sys.addaudithook(watch)
    import obstore

    for name in ("put", "get", "delete", "list", "list_with_delimiter"):
        original = getattr(obstore, name)

        def counted(*args: Any, _original: Any = original, **options: Any) -> Any:
            count()
            return _original(*args, **options)

        setattr(obstore, name, counted)


def main() -> None:
    place, endpoint, what, number = sys.argv[1:]
    files = files_of(place, endpoint)
    if what == "kill":
        die_before(int(number))
        print(publish_one(files), flush=True)
        return
    sys.stdin.readline()  # all begin together
    done = 0
    while done < int(number):
        try:
            print(publish_one(files), flush=True)
            done += 1
        except LostRace:
            continue


if __name__ == "__main__":
    main()
