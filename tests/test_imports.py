# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Shows that the import contracts of pyproject.toml can fail. `make imports` checks that they are kept."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
# One import for each contract that it forbids: where it is planted, what it says.
PLANTED = {
    "Higher layers import lower ones, never the reverse": (
        "redeliver_mw/redelivery/states.py",
        "import redeliver_mw.journal.writer",
    ),
    "Adapters and memory know messages, and no policy": (
        "redeliver_mw/adapter/protocol.py",
        "import redeliver_mw.policy",
    ),
    "What decides has no I/O, no clock, no thread": ("redeliver_mw/redelivery/states.py", "import time"),
    "The core imports no driver and no adapter": ("redeliver_mw/adapter/registry.py", "import redeliver_pika"),
    "Adapters never import each other": ("redeliver_stomp/__init__.py", "import redeliver_pika"),
    "An adapter needs no application around it": ("redeliver_pika/amqp/values.py", "import redeliver_mw.app"),
    "Nothing imports testing": ("redeliver_pika/amqp/values.py", "import redeliver_mw.testing"),
    "Nothing inside imports the front door": ("redeliver_pika/amqp/values.py", "import redeliver_mw"),
    "typer and rich are the command line's": ("redeliver_mw/journal/writer.py", "import rich"),
    "prometheus_client is telemetry's": ("redeliver_mw/journal/writer.py", "import prometheus_client"),
    "opentelemetry is telemetry's": ("redeliver_mw/journal/writer.py", "import opentelemetry"),
    "sqlalchemy is the database modules' own": ("redeliver_mw/app.py", "import sqlalchemy"),
    "numpy, pyarrow and pyspark are the pipeline's": ("redeliver_mw/journal/records.py", "import pyspark"),
}


def contracts() -> list[str]:
    settings = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    return [contract["name"] for contract in settings["tool"]["importlinter"]["contracts"]]


def test_every_contract_has_an_import_planted_against_it() -> None:
    assert contracts() == list(PLANTED)


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return what import-linter says of a copy of the sources in which every planted import stands."""
    copy = tmp_path_factory.mktemp("planted")
    shutil.copytree(REPOSITORY / "redeliver_mw", copy / "redeliver_mw")
    for adapter in (REPOSITORY / "adapters").iterdir():
        shutil.copytree(adapter, copy / adapter.name)
    shutil.copy(REPOSITORY / "pyproject.toml", copy)
    for file, line in PLANTED.values():
        with (copy / file).open("a") as planted:
            planted.write(f"\n{line}\n")
    linter = [sys.executable, "-c", "import sys; from importlinter.cli import lint_imports_command as c; sys.exit(c())"]
    environment = {**os.environ, "PYTHONPATH": str(copy), "COLUMNS": "200"}
    done = subprocess.run(
        [*linter, "--no-cache"], cwd=copy, env=environment, capture_output=True, text=True, timeout=120
    )
    assert "Broken contracts" in done.stdout, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("contract", PLANTED)
def test_a_contract_is_broken_by_the_import_planted_against_it(contract: str, verdicts: str) -> None:
    file, line = PLANTED[contract]
    importer = file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    imported = line.removeprefix("import ")
    about_this = verdicts.partition(f"\n{contract}\n---")[2].partition("-\n\n")[2].partition("\n---")[0]
    assert f"{contract} BROKEN" in verdicts, verdicts
    assert f"{importer} -> {imported} (l." in about_this, verdicts
