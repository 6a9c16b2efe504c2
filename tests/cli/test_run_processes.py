# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests `redeliver run --processes`: real processes are killed, told to stop, and left alone by their supervisor."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest

from redeliver_mw.processes.child_process import LOOK
from redeliver_mw.processes.supervisor import FIRST_PAUSE
from tests.cli.running import Running, redeliver
from tests.cli.test_run import READY, one_message, shop, stop_at_once

CONSUMES = r"consuming queue:orders at memory:// .*pid=(\d+) process=(\d)"
NUMBER = "os.environ['REDELIVER_PROCESS']"


def several(folder: Path, body: str, stop_timeout: float = 30.0) -> None:
    """Write an App each of whose processes sends itself one message, for memory:// ends with its process."""
    shop(folder, f"import os; {body}", stop_timeout)


def pids(running: Running, count: int) -> dict[int, int]:
    """Wait for `count` lines; return the ids of the processes that were up, by number, the last one of each."""
    assert running.saw(rf"(?s)({CONSUMES}.*?){{{count}}}"), running.err
    return {int(number): int(pid) for pid, number in re.findall(CONSUMES, running.err)}


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def eventually(what: Callable[[], bool], seconds: float = 15.0) -> bool:
    deadline = time.monotonic() + seconds
    while not what() and time.monotonic() < deadline:
        time.sleep(0.02)  # between two looks at another process
    return what()


def test_each_process_consumes_says_who_it_is_and_all_end_together(tmp_path: Path) -> None:
    several(tmp_path, f"print('handled', {NUMBER})")
    with Running(tmp_path, "run", "shop:app", "--processes", "3") as running:
        assert all(running.saw(f"handled {number}\n") for number in (1, 2, 3))
        living = pids(running, 3)
        running.signal()
        assert running.wait(15) == 0
    assert sorted(living) == [1, 2, 3]
    assert len({*living.values(), running.pid}) == 4
    assert not any(map(is_alive, living.values()))
    stopped = re.findall(r"stopped after .*pid=(\d+) process=(\d)", running.err)
    assert {int(number): int(pid) for pid, number in stopped} == living


def test_the_supervisor_ends_with_the_last_process(tmp_path: Path) -> None:
    """The log shows how long after the last process's last line the supervisor took to end."""
    several(tmp_path, f"print('handled', {NUMBER})")
    with Running(tmp_path, "run", "shop:app", "--processes", "2") as running:
        assert all(running.saw(f"handled {number}\n") for number in (1, 2))
        living = pids(running, 2)
        running.signal()
        assert eventually(lambda: not any(map(is_alive, living.values())))
        ended = time.monotonic()
        assert running.wait(15) == 0
    assert time.monotonic() - ended < LOOK / 2


def test_a_module_that_cannot_be_imported_ends_all_at_once(tmp_path: Path) -> None:
    """The supervisor does not wait out the interval at which it looks at its processes."""
    (tmp_path / "shop.py").write_text("import nowhere\n")
    for _ in range(3):  # a machine may be slow once
        begun = time.monotonic()
        alone = redeliver(tmp_path, "run", "shop:app")
        between = time.monotonic()
        several = redeliver(tmp_path, "run", "shop:app", "--processes", "2")
        assert (several.returncode, several.stderr) == (alone.returncode, alone.stderr)
        if time.monotonic() - between < 2 * (between - begun) + LOOK / 2:
            return
    pytest.fail("the end of all took about as long as an interval more, three times")


def test_one_process_is_supervised_like_several(tmp_path: Path) -> None:
    shop(tmp_path)
    with Running(tmp_path, "run", "shop:app", "--processes", "1") as running:
        first = pids(running, 1)[1]
        os.kill(first, signal.SIGKILL)
        assert pids(running, 2)[1] != first
        running.signal(signal.SIGINT)
        assert running.wait(15) == 0


def test_a_process_that_dies_is_started_again_after_a_pause_and_the_others_go_on(tmp_path: Path) -> None:
    several(tmp_path, "print('handled', delivery.text)")
    with Running(tmp_path, "run", "shop:app", "--processes", "2", "--log-format", "json") as running:
        assert running.saw(r'(?s)(consuming queue:orders.*?){2}"process": 2|"process": 2')
        up = [line for line in map(json.loads, running.err.splitlines()) if READY in line["event"]]
        victim = next(line["pid"] for line in up if line["process"] == 1)
        os.kill(victim, signal.SIGKILL)
        assert running.saw(r"(?s)(consuming queue:orders.*?){3}")
        running.signal()
        assert running.wait(15) == 0
    lines = [json.loads(line) for line in running.err.splitlines()]
    said = next(n for n, line in enumerate(lines) if "SIGKILL" in line["event"])
    assert lines[said]["event"] == f"process 1 (pid {victim}) was killed by SIGKILL. It is started again in 0.5 s"
    again = next(line for line in lines[said:] if READY in line["event"])
    assert again["process"] == 1
    assert again["pid"] != victim
    assert (moment(again) - moment(lines[said])).total_seconds() >= FIRST_PAUSE
    assert sum(READY in line["event"] for line in lines if line.get("process") == 2) == 1


def moment(line: dict[str, str]) -> datetime:
    return datetime.fromisoformat(line["timestamp"])


def test_a_signal_lets_every_process_finish(tmp_path: Path) -> None:
    several(tmp_path, f"print('begun', {NUMBER}); import time; time.sleep(2); print('finished', {NUMBER})")
    with Running(tmp_path, "run", "shop:app", "--processes", "2") as running:
        assert running.saw("begun 1\n")
        assert running.saw("begun 2\n")
        running.signal()
        assert running.wait(15) == 0
    assert "finished 1\n" in running.out
    assert "finished 2\n" in running.out
    assert running.err.count("unsettled: 0") == 2


def test_a_second_signal_stops_all_at_once(tmp_path: Path) -> None:
    several(tmp_path, f"print('begun', {NUMBER}); threading.Event().wait()", stop_timeout=600.0)
    with Running(tmp_path, "run", "shop:app", "--processes", "2") as running:
        assert running.saw("begun 1\n")
        assert running.saw("begun 2\n")
        stop_at_once(running)
    assert running.err.count("unsettled: 1") == 2


def test_a_signal_that_every_process_gets_by_itself_is_taken_for_one(tmp_path: Path) -> None:
    """Ctrl-C does it, and so does a service manager that asks all of a group to end."""
    several(tmp_path, f"print('begun', {NUMBER}); import time; time.sleep(2); print('finished', {NUMBER})")
    with Running(tmp_path, "run", "shop:app", "--processes", "2", own_group=True) as running:
        assert running.saw("begun 1\n")
        assert running.saw("begun 2\n")
        os.killpg(running.pid, signal.SIGINT)
        assert running.wait(15) == 0
    assert running.err.count("unsettled: 0") == 2
    assert "started again" not in running.err


def test_a_process_that_is_asked_to_end_by_somebody_else_finishes_and_is_started_again(tmp_path: Path) -> None:
    several(tmp_path, f"print('begun', {NUMBER}); import time; time.sleep(1); print('finished', {NUMBER})")
    with Running(tmp_path, "run", "shop:app", "--processes", "2") as running:
        assert running.saw("begun 2\n")
        os.kill(pids(running, 2)[2], signal.SIGTERM)
        assert running.saw("finished 2\n")
        pids(running, 3)
        running.signal()
        assert running.wait(15) == 0
    assert "ended with exit code 0. It is started again" in running.err


def test_when_the_supervisor_is_killed_the_others_finish_what_is_in_hand_and_end(tmp_path: Path) -> None:
    several(
        tmp_path,
        f"open('begun' + {NUMBER}, 'w').close(); import time; time.sleep(1); open('done' + {NUMBER}, 'w').close()",
    )
    with Running(tmp_path, "run", "shop:app", "--processes", "2") as running:
        living = pids(running, 2)
        assert eventually(lambda: all((tmp_path / f"begun{n}").exists() for n in (1, 2)))
        running.signal(signal.SIGKILL)
        assert eventually(lambda: not any(map(is_alive, living.values())))
        running.wait(15)
    assert (tmp_path / "done1").exists()
    assert (tmp_path / "done2").exists()
    assert running.err.count("the supervisor is gone: stopping") == 2
    assert running.err.count("unsettled: 0") == 2


def test_a_supervisor_that_is_killed_while_it_starts_leaves_nobody_behind(tmp_path: Path) -> None:
    shop(tmp_path)
    source = (tmp_path / "shop.py").read_text()
    (tmp_path / "shop.py").write_text("import os, time\nprint('importing', os.getpid())\ntime.sleep(1)\n" + source)
    with Running(tmp_path, "run", "shop:app", "--processes", "2") as running:
        assert running.saw(r"importing (\d+)\n")
        pid = int(running.out.split()[1])
        running.signal(signal.SIGKILL)
        assert eventually(lambda: not is_alive(pid))
        running.wait(15)
    assert READY not in running.err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_all_while_the_first_still_imports_the_app_is_no_error(
    tmp_path: Path, number: signal.Signals
) -> None:
    shop(tmp_path)
    source = (tmp_path / "shop.py").read_text()
    (tmp_path / "shop.py").write_text("import time\nprint('importing')\ntime.sleep(30)\n" + source)
    with Running(tmp_path, "run", "shop:app", "--processes", "2", own_group=True) as running:
        assert running.saw("importing")
        os.killpg(running.pid, number)
        assert running.wait(15) == 0
    assert running.err == ""


@pytest.mark.parametrize("count", ["0", "-1"])
def test_fewer_than_one_process_is_refused(tmp_path: Path, count: str) -> None:
    shop(tmp_path)
    done = redeliver(tmp_path, "run", "shop:app", "--processes", count)
    assert done.returncode == 2
    assert (
        one_message(done.stderr)
        == f"error: --processes: {count} processes consume nothing. Write 1 or more [option-value]\n"
    )


WRONG = [
    ("shop:ap", "", "module 'shop' has no 'ap'"),
    ("raising:app", "raise KeyError('x')", "raising.py:1: importing 'raising' raises KeyError"),
    ("policy:app", "from redeliver_mw import App\napp = App('memory://', policy='3:')", "policy.py:2: "),
    ("empty:app", "from redeliver_mw import App\napp = App('memory://')", "no handler is registered"),
    (
        "circle:app",
        "from redeliver_mw import App\napp = App('memory://')\n"
        "app.handler('a', key='k')(print)\napp.handler('DLQ.a', key='k')(print)",
        "queue:DLQ.a takes the dead letters of queue:a and is consumed under the same policy",
    ),
]


@pytest.mark.parametrize(("target", "text", "what"), WRONG, ids=[target for target, _, _ in WRONG])
def test_a_wrong_configuration_is_one_message_however_many_processes(
    tmp_path: Path, target: str, text: str, what: str
) -> None:
    shop(tmp_path)
    if text:
        (tmp_path / f"{target.partition(':')[0]}.py").write_text(text + "\n")
    done = redeliver(tmp_path, "run", target, "--processes", "4")
    assert done.returncode == 2
    assert what in one_message(done.stderr)


def test_a_broker_that_is_absent_at_the_start_is_one_error_as_with_one_process(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(
        "from redeliver_mw import App\napp = App('rabbitmq://127.0.0.1:1')\napp.handler('orders')(print)\n"
    )
    alone = redeliver(tmp_path, "run", "shop:app")
    several = redeliver(tmp_path, "run", "shop:app", "--processes", "3")
    assert (several.returncode, several.stderr) == (alone.returncode, alone.stderr)
    assert several.returncode == 1
    one_message(several.stderr)


def test_a_process_that_dies_before_it_was_up_is_an_error_and_not_started_again(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n")
    done = redeliver(tmp_path, "run", "shop:app", "--processes", "2")
    assert done.returncode == 1
    assert re.fullmatch(r"error: process 1 \(pid \d+\) was killed by SIGSEGV before it was up\n", done.stderr)


def test_a_configuration_that_is_wrong_when_a_process_is_started_again_ends_all(tmp_path: Path) -> None:
    several(tmp_path, f"print('begun', {NUMBER}); import time; time.sleep(3); print('finished', {NUMBER})")
    with Running(tmp_path, "run", "shop:app", "--processes", "3") as running:
        assert running.saw("begun 3\n")
        living = pids(running, 3)
        (tmp_path / "shop.py").write_text("app = 1\n")
        os.kill(living[1], signal.SIGKILL)
        assert running.wait(60) == 2
    assert "finished 3\n" in running.out
    assert len(re.findall("^error: ", running.err, re.MULTILINE)) == 1
    assert running.err.endswith(
        "error: shop.py: 'app' is no App, but of type int. Name an App: app = App(url) [app-not-found]\n"
    )


def test_a_process_whose_app_stops_itself_is_not_started_again_and_the_last_one_ends_all(tmp_path: Path) -> None:
    several(tmp_path, "threading.Thread(target=app.stop).start()")
    with Running(tmp_path, "run", "shop:app", "--processes", "2") as running:
        assert running.wait(60) == 0
    assert running.err.count("has ended by itself") == 2
    assert "started again" not in running.err


def test_a_signal_ends_a_start_that_waits_for_the_broker_in_another_process(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(
        "from redeliver_mw import App\n"
        "from redeliver_mw.memory import MemoryBroker, register_broker\n"
        "broker = MemoryBroker(name='down')\nbroker.kill()\nregister_broker('down', broker)\n"
        "app = App('memory://down')\napp.handler('orders')(print)\nprint('imported')\n"
    )
    with Running(tmp_path, "run", "shop:app", "--processes", "2") as running:
        assert running.saw("imported")
        time.sleep(1.0)  # between the import and the wait for the broker nothing can be seen from outside
        running.signal()
        assert running.wait(15) == 0
    assert "error" not in running.err


def test_a_process_that_would_have_nothing_to_consume_is_not_started(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(
        "from redeliver_mw import App\napp = App('memory://', declare='all')\n"
        "app.handler('b', key='customer')(print)\napp.handler('a', key='customer')(print)\n"
    )
    with Running(tmp_path, "run", "shop:app", "--processes", "5") as running:
        assert running.saw(r"consuming queue:a at .*process=1")
        assert running.saw(r"consuming queue:b at .*process=2")
        running.signal()
        assert running.wait(15) == 0
    assert "2 of 5 processes: " in running.err
    assert "process=3" not in running.err
