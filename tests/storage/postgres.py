# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Runs a PostgreSQL server of the tests' own: the installed one, on a free port, with its data in a folder of its own.

The server refuses to be root; where the tests are root, the server is the user `postgres`, or `nobody`.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.brokers._install import BrokerMissing
from tests.brokers._process import Leash, free_ports, wait_until

CURE = "Install PostgreSQL (Debian: apt-get install postgresql), and psycopg (the extra `postgres`)"
_numbers = itertools.count(1)


class Postgres:
    """Runs a server. Not thread-safe. Raises BrokerMissing where there is none to run.

    With a `primary` the server is a standby of that one, which from then on commits nothing that both do not have.
    """

    def __init__(self, *, primary: Postgres | None = None) -> None:
        if importlib.util.find_spec("psycopg") is None:
            raise BrokerMissing("psycopg is not installed", CURE)
        self._programs = _programs()
        self._as_user = _as_somebody()
        self._folder = Path(tempfile.mkdtemp(prefix="redeliver-postgres-"))
        self._log = self._folder / "log"
        self._log.touch()
        (self.port,) = free_ports(1)
        self._leash = Leash(self._folder)
        try:
            if primary is None:
                self._initialise()
            else:
                self._copy(primary)
            self.start()
            if primary is not None:
                primary._wait_for_standby()
        except BaseException:
            self.stop()
            raise

    def _initialise(self) -> None:
        self._run("initdb", "-U", "test", "-A", "trust", "-E", "UTF8", "--no-locale", "-N")

    def _copy(self, primary: Postgres) -> None:
        self._run("pg_basebackup", "-R", "-c", "fast", "-h", "127.0.0.1", "-p", str(primary.port), "-U", "test")

    def _run(self, program: str, *words: str) -> None:
        """Let a program of the server's fill the data folder."""
        data = self._folder / "data"
        data.mkdir(mode=0o700)
        if self._as_user:
            user = pwd.getpwnam(self._as_user)
            for path in (self._folder, self._log, data):
                os.chown(path, user.pw_uid, user.pw_gid)
        argv = self._mine(str(self._programs / program), "-D", str(data), *words)
        done = subprocess.run(argv, capture_output=True, text=True, cwd=self._folder)
        assert done.returncode == 0, done.stdout + done.stderr

    def _wait_for_standby(self) -> None:
        self._tell("ALTER SYSTEM SET synchronous_standby_names = '*'")
        self._tell("SELECT pg_reload_conf()")

        def follows() -> bool:
            return self._tell("SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'") is not None

        wait_until(follows, alive=lambda: bool(self._leash.pids()), logs=[self._log], what="PostgreSQL's standby")

    def promote(self) -> None:
        """Make a standby the primary, and return when it is the primary."""
        self._tell("SELECT pg_promote()")

    def _tell(self, statement: str) -> object:
        """Return the first row of the answer to a statement; None if there is none."""
        import psycopg

        with psycopg.connect(self.dsn("postgres"), autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchone() if cursor.description else None

    def _mine(self, *argv: str) -> list[str]:
        if not self._as_user:
            return list(argv)
        user = pwd.getpwnam(self._as_user)
        change = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
        return [*change, *argv]

    def start(self) -> None:
        """Start it, again after `kill`, unless it runs; returns when it answers."""
        if self._leash.pids():
            return
        argv = [
            str(self._programs / "postgres"),
            "-D",
            str(self._folder / "data"),
            "-p",
            str(self.port),
            "-h",
            "127.0.0.1",
            "-k",
            "",
            "-c",
            "shared_buffers=16MB",
            "-c",
            "max_connections=30",
        ]
        self._leash.run(self._mine(*argv), {"LC_ALL": "C", "PATH": os.environ["PATH"]}, self._log)
        wait_until(self._answers, alive=lambda: bool(self._leash.pids()), logs=[self._log], what="PostgreSQL")

    def _answers(self) -> bool:
        import psycopg

        try:
            psycopg.connect(self.dsn("postgres"), connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    def kill(self) -> None:
        """Kill the server with SIGKILL; its data stays."""
        self._leash.kill()
        (self._folder / "data" / "postmaster.pid").unlink(missing_ok=True)

    def pause(self) -> None:
        """Stop all its processes where they are, until `resume`."""
        self._leash.pause()

    def resume(self) -> None:
        self._leash.resume()

    def stop(self) -> None:
        """End it, and delete its data."""
        self._leash.end()
        shutil.rmtree(self._folder, ignore_errors=True)

    def dsn(self, database: str) -> str:
        return f"postgresql://test@127.0.0.1:{self.port}/{database}"

    def new_database(self) -> str:
        """Return the URL of an empty schema, which is all of the database that its users see.

        A schema is cheaper than a database.
        """
        import psycopg

        name = f"limbo{next(_numbers)}"
        with psycopg.connect(self.dsn("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {name}".encode())
        return self.dsn("postgres") + f"?options=-csearch_path%3D{name}"


def _programs() -> Path:
    """Return the folder of the server's programs; Debian has them in one that is on nobody's PATH."""
    if found := shutil.which("postgres"):
        folder = Path(found).resolve().parent
        if (folder / "initdb").exists():
            return folder
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    if not versions:
        raise BrokerMissing("PostgreSQL is not installed", CURE)
    return versions[-1].parent


def _as_somebody() -> str:
    """Return the user that runs the server; an empty name is the user of this process."""
    if os.geteuid() != 0:
        return ""
    for name in ("postgres", "nobody"):
        try:
            pwd.getpwnam(name)
        except KeyError:
            continue
        return name
    raise BrokerMissing("PostgreSQL refuses to be run by root, and there is no other user", CURE)
