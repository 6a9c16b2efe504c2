# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Lets a command, such as `redeliver dead collect`, kill itself at a line picked by chance.

`site` writes a sitecustomize module, which Python imports by itself where its folder is on the path. When the process
starts, KILL_SEED settles the line, which of the KILL_FILES it is in, and at which of its runs the process ends.
KILL_SURE names a function, as FILE:NAME, that the process certainly calls KILL_SURE_OFTEN times: the process does not
live longer than that.
"""

from __future__ import annotations

from pathlib import Path

SITE = """
import ast, os, random, signal, sys, threading
from pathlib import Path

COLLECT = "dead_letters/drain.py operations/collect.py operations/recognition.py"
FILES = os.environ.get("KILL_FILES", COLLECT).split()
OFTEN = int(os.environ.get("KILL_OFTEN", "6"))  # so many times at most a line is passed first
SURE = os.environ.get("KILL_SURE", "")
SURE_OFTEN = int(os.environ.get("KILL_SURE_OFTEN", "1"))
PICKS = int(os.environ.get("KILL_PICKS", "12"))  # of which the first that comes counts: some lines are never reached


def lines(path):
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef):
            found |= {one.lineno for part in node.body for one in ast.walk(part) if isinstance(one, ast.stmt)}
    return [(path.as_posix(), line) for line in sorted(found)]


def first_line(path, name):
    found = [node for node in ast.walk(ast.parse(path.read_text())) if getattr(node, "name", "") == name]
    [body] = [node.body for node in found if isinstance(node, ast.FunctionDef)]
    is_text = isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant)  # which is no line that runs
    return path.as_posix(), body[is_text].lineno


def arm(seed):
    root = Path(os.environ["KILL_CODE"]) / "redeliver_mw"
    places = [place for name in FILES for place in lines(root / name)]
    chance = random.Random(seed)
    left = {place: chance.randint(1, OFTEN) for place in chance.choices(places, k=PICKS)}
    if SURE:
        file, _, name = SURE.partition(":")
        left.setdefault(first_line(root / file, name), chance.randint(1, SURE_OFTEN))
    files = {file for file, _ in left}

    def watch(frame, event, _):
        place = frame.f_code.co_filename, frame.f_lineno
        if event == "line" and place in left:
            left[place] -= 1
            if left[place] == 0:
                with open(os.environ["KILL_LOG"], "a") as log:
                    log.write("{}:{}\\n".format(*place))
                os.kill(os.getpid(), signal.SIGKILL)
        return watch

    def enter(frame, event, _):
        return watch if frame.f_code.co_filename in files else None

    threading.settrace(enter)
    sys.settrace(enter)


if "KILL_SEED" in os.environ:
    arm(os.environ["KILL_SEED"])
"""


def site(folder: Path) -> None:
    """Write the module into the folder that `tests.cli.running` puts on the path."""
    (folder / "site").mkdir(exist_ok=True)
    (folder / "site" / "sitecustomize.py").write_text(SITE)
