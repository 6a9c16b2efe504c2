# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Kills discard and import with `kill -9` at lines picked by chance: no letter is lost, and none is there twice."""

from __future__ import annotations

import json
import signal
from io import BytesIO
from pathlib import Path

import pytest

from redeliver_mw.operations import Selection, Store, counts, last_operations
from redeliver_mw.operations.discard import plan_discard
from redeliver_mw.operations.export import export
from redeliver_mw.operations.import_ import import_letters
from tests.cli.running import REPOSITORY, redeliver
from tests.operations.killing import site
from tests.operations.taking import ids, put
from tests.pipeline.letters import letter

MANY = 700
KILLS = 3
SEEDS = [1, 2, 3, 4, 5, 6]
NAMES = [f"copy-{n:04d}" for n in range(MANY)]
COMMON = "operations/runs.py operations/letter_lines.py"
OF_DISCARD = f"{COMMON} operations/discard.py operations/letter_files.py"
OF_IMPORT = "operations/letter_lines.py operations/import_.py"


class Killed:
    """Runs a command that kills itself, at the latest when it calls the function `sure` so often."""

    def __init__(self, folder: Path, files: str, command: str, seed: int, sure: str, sure_often: int) -> None:
        site(folder)
        often = "6" if seed % 2 else "300"  # kills among the first letters, and among all
        self._folder, self._seed, self._runs = folder, f"{command}-{seed}", 0
        self._log = folder / "kills"
        self._extra = {
            "KILL_CODE": str(REPOSITORY),
            "KILL_LOG": str(self._log),
            "KILL_FILES": files,
            "KILL_PICKS": "100" if seed % 2 else "20",
            "KILL_OFTEN": often,
            "KILL_SURE": sure,
            "KILL_SURE_OFTEN": str(sure_often),
        }

    def run(self, *words: str) -> None:
        """Run the command, which has to be killed."""
        killed = redeliver(self._folder, *words, extra=self._extra | {"KILL_SEED": f"{self._seed}-{self._runs}"})
        self._runs += 1
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        assert len(self._log.read_text().splitlines()) == self._runs


def filled(url: str) -> None:
    with Store(url) as store:
        put(store, *(letter(b"%d" % n, {"n": n}, copy_id=name) for n, name in enumerate(NAMES)))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_discard_that_is_killed_has_each_discarded_letter_in_its_file(url: str, tmp_path: Path, seed: int) -> None:
    filled(url)
    file = tmp_path / "gone.jsonl"
    with Store(url) as store:
        operation = plan_discard(store, Selection(), file=file).operation_id
    command = Killed(tmp_path, OF_DISCARD, "discard", seed, "operations/letter_lines.py:_line", MANY // KILLS)
    words = "dead", "discard", "--resume", operation, "--yes", "--store", url
    for _ in range(KILLS):
        command.run(*words)
        with Store(url) as store:
            found = counts(store)
            gone = {row.get("dl_id") for row in map(json.loads, whole_lines(file))}
            assert found.get("discarded", 0) + found.get("waiting", 0) == MANY
            assert set(NAMES) - set(ids(store)) <= gone
    done = redeliver(tmp_path, *words)
    assert done.returncode == 0, done.stderr
    with Store(url) as store:
        [found_operation] = last_operations(store, kind="discard")
        assert (found_operation.state, found_operation.done) == ("done", MANY)
        assert counts(store) == {"discarded": MANY}
    with Store(f"sqlite:///{tmp_path}/other.db") as other, file.open("rb") as source:
        assert import_letters(other, source).added == MANY
        assert ids(other) == NAMES


@pytest.mark.parametrize("seed", SEEDS)
def test_an_import_that_is_killed_and_repeated_has_each_letter_once(url: str, tmp_path: Path, seed: int) -> None:
    text = BytesIO()
    first = f"sqlite:///{tmp_path}/first.db"
    filled(first)
    with Store(first) as store:
        export(store, text.write)
    file = tmp_path / "letters.jsonl"
    file.write_bytes(text.getvalue())
    with Store(url):
        pass
    command = Killed(tmp_path, OF_IMPORT, "import", seed, "operations/letter_lines.py:read_line", MANY)
    for _ in range(KILLS):
        command.run("dead", "import", str(file), "--store", url)
    done = redeliver(tmp_path, "dead", "import", str(file), "--store", url)
    assert done.returncode == 0, done.stderr
    with Store(url) as store:
        assert ids(store) == NAMES
        again = BytesIO()
        export(store, again.write)
    assert again.getvalue() == text.getvalue()


def whole_lines(file: Path) -> list[bytes]:
    """Return the lines of a file that end with a line end; of a file that is not there, none."""
    if not file.exists():
        return []
    return [line for line in file.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]
