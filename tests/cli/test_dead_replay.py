# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests redeliver dead replay of a store: preview and confirmation, editor and transform, Ctrl-C, and bad input."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest

from redeliver_mw.cli.main import run
from redeliver_mw.operations import Selection, Store, counts, last_operations, page
from redeliver_mw.operations.audit import last_entries
from redeliver_mw.operations.became import replayed_letters
from redeliver_mw.operations.replay_plan import StoreReplayOptions, plan_replay
from tests.brokers import Broker
from tests.cli.running import COMMAND, REPOSITORY, Running, environment, redeliver
from tests.operations.filling import arrived, fill
from tests.operations.killing import site
from tests.operations.taking import put
from tests.pipeline.letters import letter

Capture = pytest.CaptureFixture[str]
URL = "rabbitmq+pika://127.0.0.1:1"  # nothing listens there
TRANSFORM = """
def fix(letter):
    if letter.body == b"2":
        raise ValueError("no such lamp, password=hunter2")
    return letter.changed(body=letter.body + b" fixed")
"""


@pytest.fixture
def store_url(tmp_path: Path) -> str:
    """Return the URL of a store with three letters of orders, and a stranger's letter.

    The stranger's letter has control characters in its headers.
    """
    url = f"sqlite:///{tmp_path}/store.db"
    with Store(url) as store:
        put(
            store,
            *(letter(b"%d" % n, {"redeliver_error_type": "KeyError"}, copy_id=f"copy-{n}") for n in range(3)),
            letter(b"odd", {"x\x1b[2J": "y"}, message_id="m\x1b[2J"),
        )
    return url


def said(capsys: Capture, *words: str, code: int = 0) -> tuple[str, str]:
    assert run(["dead", "replay", *words]) == code
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    assert "hunter2" not in out + err
    assert "\x1b" not in out + err
    return out, err


# -- without a broker -------------------------------------------------------------------------------


def test_without_a_terminal_and_yes_only_a_preview_is_printed_and_nothing_is_sent(
    store_url: str, capsys: Capture
) -> None:
    out, err = said(capsys, URL, "--store", store_url, "--all")
    assert re.search(r"3 +queue:orders +orders", out)
    assert re.search(r"1 +stay +no dead letter", out)
    assert "3 of 4 letters would be sent" in out
    [command] = re.findall(r"To send them: redeliver (.*)", err)
    with Store(store_url) as store:
        [operation] = last_operations(store, kind="replay")
        assert (operation.state, operation.total) == ("planned", 4)
        assert counts(store) == {"waiting": 4}
    assert command == f"dead replay {URL} --store {store_url} --resume {operation.operation_id} --yes"
    again, _ = said(capsys, *command.removeprefix("dead replay ").removesuffix(" --yes").split())
    assert "3 of 4 letters would be sent" in again


def test_the_preview_as_json(store_url: str, capsys: Capture) -> None:
    out, _ = said(capsys, URL, "--store", store_url, "--all", "--to", "other", "--json")
    found = json.loads(out)
    assert (found["sent"], found["letters"], found["going"]) == (None, 4, 4)
    assert {(one["to"], one["redirected"]) for one in found["routes"]} == {("other", False)}


@pytest.mark.parametrize(
    ("words", "number"),
    [
        (["--id", "copy-1"], 1),
        (["--id", "copy-1", "--id", "copy-2"], 2),
        (["--where", "error = KeyError"], 3),
        (["--group", "error=KeyError"], 3),
        (["--queue", "DLQ.orders", "--limit", "2"], 2),
        (["--all", "--limit", "3"], 3),
    ],
)
def test_letters_are_chosen_in_each_way(store_url: str, capsys: Capture, words: list[str], number: int) -> None:
    said(capsys, URL, "--store", store_url, *words)
    with Store(store_url) as store:
        assert last_operations(store)[0].total == number


@pytest.mark.parametrize(
    ("words", "what"),
    [
        ([], "it is not said which letters are meant"),
        (["--all", "--id", "copy-1"], "all letters, and some of them"),
        (["--all", "--limit", "0"], "is no number from 1 on"),
        (["--where", "error ="], "--where"),
        (["--id", "copy-9"], "no such letter"),
        (["--id", "copy-"], "begins the ids of 3 letters"),
        (["--group", "colour=red"], "there are no groups by"),
        (["--all", "--edit"], "one letter is edited at a time"),
        (["--all", "--rate", "0"], "messages a second"),
        (["--all", "--canary", "lots"], "is no canary"),
        (["--all", "--stop-at", "20"], "is no share"),
        (["--all", "--wait", "-1"], "no time to wait"),
        (["--all", "--transform", "nowhere:fix"], "there is no module 'nowhere'"),
        (["--all", "--policy", "3", "--settles-within", "5"], "both say"),
        (["--all", "--to", "topic:t"], "names no subscription"),
        (["--all", "--state", "discarded"], "cannot be replayed"),
        (["--resume", "2020", "--all"], "goes on has its letters"),
        (["--resume", "2020"], "no such operation"),
    ],
)
def test_bad_input_is_refused_before_anything_is_connected(
    store_url: str, capsys: Capture, words: list[str], what: str
) -> None:
    code = 1 if what in ("no such letter", "no such operation") else 2
    _, err = said(capsys, URL, "--store", store_url, *words, code=code)
    assert what in err
    assert "[" in err.rstrip().splitlines()[-1]


@pytest.mark.parametrize("option", ["--all", "--yes", "--edit", "--other-broker"])
def test_options_of_a_store_are_refused_for_a_queue(option: str, capsys: Capture) -> None:
    _, err = said(capsys, URL, "dlq", option, code=2)
    assert "for letters in a store" in err
    assert "several ids" in said(capsys, URL, "dlq", "--id", "a", "--id", "b", code=2)[1]


def test_a_policy_says_how_long_a_message_may_take(store_url: str, capsys: Capture) -> None:
    said(capsys, URL, "--store", store_url, "--all", "--policy", "5:100")
    said(capsys, URL, "--store", store_url, "--all", "--policy", "3:3600000")
    with Store(store_url) as store:
        longer, short = last_operations(store, 2)
    assert short.options["settles_within_s"] >= 60
    assert longer.options["settles_within_s"] >= 3600


def test_an_edit_that_changes_nothing_sends_nothing(store_url: str, capsys: Capture, tmp_path: Path) -> None:
    edits = editor(tmp_path, "pass")
    done = redeliver(tmp_path, "dead", "replay", URL, "--store", store_url, "--id", "copy-1", "--edit", extra=edits)
    assert (done.returncode, done.stdout) == (0, "")
    assert "nothing was changed" in done.stderr
    with Store(store_url) as store:
        assert last_operations(store, kind="replay") == []


def test_an_edited_text_that_is_no_letter_is_kept_in_its_file(store_url: str, tmp_path: Path) -> None:
    edits = editor(tmp_path, "text = text.replace(b'\\n\\n', b'\\nx-new\\n\\n', 1)")
    done = redeliver(tmp_path, "dead", "replay", URL, "--store", store_url, "--id", "copy-1", "--edit", extra=edits)
    assert done.returncode == 2
    assert "is no header" in done.stderr
    [path] = re.findall(r"error: (\S+): line", done.stderr)
    assert b"x-new" in Path(path).read_bytes()
    assert os.stat(path).st_mode & 0o077 == 0


def editor(folder: Path, change: str) -> dict[str, str]:
    """Return the variables that make a program the editor, which changes the text `text`."""
    script = folder / "editor.py"
    script.write_text(
        f"import sys\nfile = sys.argv[1]\ntext = open(file, 'rb').read()\n{change}\nopen(file, 'wb').write(text)\n"
    )
    temporary = folder / "tmp"
    temporary.mkdir(exist_ok=True)
    return {"EDITOR": f"{COMMAND[0]} {script}", "TMPDIR": str(temporary)}


# -- with a broker ----------------------------------------------------------------------------------


@pytest.fixture
def source(request: pytest.FixtureRequest) -> str:
    return f"orders.{abs(hash(request.node.nodeid)):x}"


def filled(broker: Broker, folder: Path, source: str, number: int) -> str:
    """Return the URL of a store with so many letters of a source."""
    url = f"sqlite:///{folder}/store.db"
    with Store(url) as store:
        fill(broker, store, source, [b"%d" % n for n in range(number)])
    return url


@pytest.mark.broker
def test_letters_are_sent_with_yes_and_the_report_says_how_many(
    rabbitmq43: Broker, source: str, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = filled(rabbitmq43, tmp_path, source, 4)
    (tmp_path / "repairs.py").write_text(TRANSFORM)
    monkeypatch.chdir(tmp_path)
    words = (rabbitmq43.url, "--store", url, "--all", "--transform", "repairs:fix", "--yes")
    out, err = said(capsys, *words, code=3)
    assert "3 of 4 replayed" in out
    assert re.search(r"1 +the transform: ValueError: no such lamp", out)
    assert "3 sent in" in err
    assert [one.body for one in arrived(rabbitmq43, source)] == [b"0 fixed", b"1 fixed", b"3 fixed"]
    out, _ = said(capsys, rabbitmq43.url, "--store", url, "--all", "--yes", "--json")
    found = json.loads(out)
    assert (found["state"], found["replayed"], found["letters"], found["left"]) == ("done", 1, 1, 0)
    assert found["became"] == {"recovered": 0, "failed_again": 0, "in_flight": 1, "unknown": 0}
    assert [one.body for one in arrived(rabbitmq43, source)] == [b"2"]


@pytest.mark.broker
@pytest.mark.parametrize(("typed", "sent"), [("3", 3), ("4", 0), ("yes", 0)])
def test_on_a_terminal_the_exact_number_has_to_be_typed(
    rabbitmq43: Broker, source: str, tmp_path: Path, typed: str, sent: int
) -> None:
    url = filled(rabbitmq43, tmp_path, source, 3)
    ours, theirs = pty.openpty()
    words = ["dead", "replay", rabbitmq43.url, "--store", url, "--all"]
    process = subprocess.Popen(
        [*COMMAND, *words], stdin=theirs, stdout=subprocess.PIPE, stderr=theirs, env=environment(tmp_path), cwd=tmp_path
    )
    os.close(theirs)
    seen = b""
    while b"type 3 to send them" not in seen:
        seen += os.read(ours, 4096)
    os.write(ours, typed.encode() + b"\n")
    try:
        while chunk := os.read(ours, 4096):
            seen += chunk
    except OSError:
        pass  # the other end is closed
    out = process.communicate(timeout=60)[0].decode()
    os.close(ours)
    assert process.returncode == 0
    assert len(arrived(rabbitmq43, source)) == sent
    with Store(url) as store:
        assert last_operations(store, kind="replay")[0].state == ("done" if sent else "cancelled")
    assert ("3 of 3 replayed" in out) == bool(sent)
    assert (b"nothing was sent" in seen) == (not sent)


@pytest.mark.broker
def test_an_edit_is_sent_once_and_one_that_comes_too_late_is_kept(
    rabbitmq43: Broker, source: str, tmp_path: Path
) -> None:
    url = filled(rabbitmq43, tmp_path, source, 2)
    words = ["dead", "replay", rabbitmq43.url, "--store", url, "--edit", "--yes", "--id"]
    edits = editor(tmp_path, "text = text.replace(b'\\n\\n0', b'\\n\\nmended')")
    done = redeliver(tmp_path, *words, f"dlq.{source}-copy-0", extra=edits)
    assert (done.returncode, done.stderr.count("error")) == (0, 0), done.stderr
    assert list((tmp_path / "tmp").iterdir()) == []
    [found] = arrived(rabbitmq43, source)
    assert (found.body, found.headers["redeliver_lineage"]) == (b"mended", f"dlq.{source}-0")
    # While the editor is open, somebody else replays the letter.
    rival = [*COMMAND, "dead", "replay", rabbitmq43.url, "--store", url, "--all", "--yes"]
    edits = editor(tmp_path, f"import subprocess\nsubprocess.run({rival!r}, check=True)\ntext += b'mended'")
    late = redeliver(tmp_path, *words, f"dlq.{source}-copy-1", extra=edits)
    assert late.returncode == 1
    assert "letter-changed" in late.stderr
    [path] = re.findall(r"your text is kept in (\S+)", late.stderr)
    assert Path(path).read_bytes().endswith(b"mended")
    assert [one.body for one in arrived(rabbitmq43, source)] == [b"1"]


@pytest.mark.broker
def test_ctrl_c_ends_it_after_the_batch_in_hand_and_the_printed_command_goes_on(
    rabbitmq43: Broker, source: str, tmp_path: Path
) -> None:
    url = filled(rabbitmq43, tmp_path, source, 60)
    words = ["dead", "replay", "env:BROKER", "--store", url, "--all", "--rate", "10", "--yes"]
    extra = {"BROKER": rabbitmq43.url}
    with Running(tmp_path, *words, extra=extra) as running, Store(url) as store:
        deadline = time.monotonic() + 30
        while counts(store).get("replayed", 0) < 10 and time.monotonic() < deadline:
            time.sleep(0.05)
        running.signal(signal.SIGINT)
        assert running.wait() == 130
        left = counts(store)
        assert set(left) == {"waiting", "replayed"}
        assert running.saw(r"interrupted; \d+ not sent")
        [command] = re.findall(r"To go on: redeliver (.*)", running.err)
        done = redeliver(tmp_path, *command.split(), "--rate", "1000", extra=extra)
        assert done.returncode == 0, done.stderr
        assert "60 of 60 replayed" in done.stdout
        assert [entry.what for entry in last_entries(store)] == ["replay", "replay", "collect"]
    assert sorted(int(one.body) for one in arrived(rabbitmq43, source)) == list(range(60))


# -- kill -9 ----------------------------------------------------------------------------------------

SEEDS = range(1, 13)
KILLS = 3
KILLED_IN = "operations/replay.py operations/replay_letters.py dead_letters/sending/batch_publisher.py"


@pytest.mark.broker
@pytest.mark.long
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", ["rabbitmq43", "artemis244", "activemq63"])
def test_a_replay_that_is_killed_at_random_lines_loses_nothing_and_explains_each_double(
    request: pytest.FixtureRequest, name: str, seed: int, source: str, tmp_path: Path
) -> None:
    """Every second seed kills early; the others also when some batches are sent."""
    broker: Broker = request.getfixturevalue(name)
    number = 600
    url = filled(broker, tmp_path, source, number)
    site(tmp_path)
    log = tmp_path / "kills"
    extra = {"KILL_CODE": str(REPOSITORY), "KILL_LOG": str(log), "KILL_FILES": KILLED_IN}
    extra |= {"KILL_SURE": "dead_letters/sending/batch_publisher.py:_publish", "KILL_SURE_OFTEN": str(number // KILLS)}
    extra |= {"KILL_OFTEN": "6"} if seed % 2 else {"KILL_OFTEN": "200", "KILL_PICKS": "10"}
    in_doubt: Counter[bytes] = Counter()  # how many kills have left each body in doubt
    with Store(url) as store:
        operation = plan_replay(store, Selection(), options=StoreReplayOptions(batch=50))
        words = ["dead", "replay", broker.url, "--store", url, "--resume", operation.operation_id, "--yes"]
        for run_number in range(KILLS):
            killing = extra | {"KILL_SEED": f"replay-{seed}-{name}-{run_number}"}
            killed = redeliver(tmp_path, *words, extra=killing, patience=120)
            assert killed.returncode == -signal.SIGKILL, killed.stderr
            found = page(store, Selection(state="replaying"), limit=number).letters
            in_doubt.update(one.dl_id.rpartition("-")[2].encode() for one in found)
        assert len(log.read_text().splitlines()) == KILLS
        done = redeliver(tmp_path, *words, patience=120)
        assert done.returncode == 0, done.stderr
        assert counts(store) == {"replayed": number}
        outcomes = Counter(one.outcome for one in replayed_letters(store, operation.operation_id, limit=number))
    assert outcomes == {"done": number}
    times = Counter(one.body for one in arrived(broker, source))
    assert times.keys() == {b"%d" % n for n in range(number)}
    doubles = times - Counter(times.keys())
    assert not doubles if name == "artemis244" else doubles <= in_doubt  # Artemis drops the second copy
