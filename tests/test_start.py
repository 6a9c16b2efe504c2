# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""The pages of docs/start work as one thread: their files are written and their commands run, in the order of reading.

A block that is marked with a file's name is that file, in one folder for all pages. A block marked `console` is a
command and all of its stdout. A block marked `text` that is no command is a part of what the last command logs on
stderr. A block marked `text` that begins with `$` needs a broker: the test on RabbitMQ runs its commands.
"""

from __future__ import annotations

import html
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from tests.brokers import Broker
from tests.cli.running import Running
from tests.pages import FENCE, own_name, write_files

REPOSITORY = Path(__file__).resolve().parent.parent
START = REPOSITORY / "docs" / "start"
PAGES = ["install.md", "first-handler.md", "first-dead-letter.md", "first-replay.md"]
LAST = "journal-to-report.md"
REDELIVER = [sys.executable, "-c", "from redeliver_mw.cli.main import main; main()"]


def blocks(name: str, language: str) -> Iterator[tuple[str, str]]:
    """Yield the words behind the language, and the text, of each block of a page in that language."""
    for block in FENCE.finditer((START / name).read_text("utf-8")):
        first, _, rest = block["info"].partition(" ")
        if first == language:
            yield rest, block["text"]


def environment(url: str | None = None) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "REDELIVER_"))}
    path = os.pathsep.join(map(str, (REPOSITORY, REPOSITORY / "adapters")))
    return kept | {"PYTHONPATH": path, "PYTHONUNBUFFERED": "1"} | ({"REDELIVER_URL": url} if url else {})


def argv(command: str) -> list[str]:
    """Return a command of the pages as one that runs this Python and this checkout."""
    program, *words = shlex.split(command, comments=True)
    return [*{"python": [sys.executable], "redeliver": REDELIVER}[program], *words]


def execute(command: str, folder: Path, url: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        argv(command), cwd=folder, env=environment(url), capture_output=True, text=True, timeout=900, check=False
    )


def tidy(text: str) -> list[str]:
    return "\n".join(line.rstrip() for line in text.splitlines()).strip("\n").splitlines()


def follow(name: str, folder: Path) -> int:
    """Do what a reader of the page does; return how many commands that were."""
    commands, logged = 0, ""
    for block in FENCE.finditer((START / name).read_text("utf-8")):
        write_files(block[0] + "\n", folder)
        if block["info"] == "console":
            command, _, output = block["text"].removeprefix("$ ").partition("\n")
            done = execute(command, folder)
            assert done.returncode == 0, done.stderr
            assert tidy(done.stdout) == tidy(output), f"{name}: {command}"
            commands, logged = commands + 1, done.stderr
        elif block["info"] == "text" and not block["text"].startswith("$"):
            assert block["text"].strip() in logged, f"{name}: {logged}"
    return commands


def test_the_pages_work_one_after_the_other_in_one_folder(tmp_path: Path) -> None:
    assert [follow(name, tmp_path) for name in PAGES] == [2, 2, 2, 2]


@pytest.mark.spark
@pytest.mark.timeout(1200)
def test_the_last_page_works_from_the_journal_to_the_report(tmp_path: Path) -> None:
    assert follow(LAST, tmp_path) == 4
    report = plain((tmp_path / "report.html").read_text("utf-8"))
    said = quoted((START / LAST).read_text("utf-8"))
    assert len(said) == 4
    assert [words for words in said if words not in report] == []


def plain(page: str) -> str:
    """Return the words of an HTML page, with one blank between them."""
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page)).split())


def quoted(page: str) -> list[str]:
    """Return what a Markdown page quotes, each quotation on one line."""
    return [
        " ".join(block.replace("\n> ", " ").split()[1:])
        for block in re.findall(r"^> .*(?:\n> .*)*", page, re.MULTILINE)
    ]


def test_a_console_block_holds_one_command_and_no_page_has_a_language_that_is_not_followed() -> None:
    for name in (*PAGES, LAST):
        assert all(text.startswith("$ ") and text.count("\n$ ") == 0 for _, text in blocks(name, "console"))
        languages = {block["info"].partition(" ")[0] for block in FENCE.finditer((START / name).read_text("utf-8"))}
        assert languages <= {"console", "py", "sh", "text"}


def test_each_page_leads_to_the_next_one_and_the_first_page_of_all_to_each() -> None:
    pages = [*PAGES, LAST]
    assert {page.name for page in START.glob("*.md")} == set(pages)
    for name, following in pairwise(pages):
        assert re.search(rf"^Next: \[[^]]+\]\({following}\)", (START / name).read_text("utf-8"), re.MULTILINE)
    index = (START.parent / "index.md").read_text("utf-8")
    assert [name for name in pages if f"(start/{name})" not in index] == []


# On a real broker


def commands_on_a_broker(name: str) -> list[str]:
    """Return the commands of the page's blocks that need a broker."""
    return [
        line.removeprefix("$ ")
        for _, text in blocks(name, "text")
        if text.startswith("$")
        for line in text.splitlines()
        if line.startswith("$ ")
    ]


def test_the_steps_on_a_real_broker_do_what_the_pages_say(rabbitmq43: Broker, tmp_path: Path) -> None:
    queue = own_name("orders")
    for name in PAGES:
        page = (START / name).read_text("utf-8")
        write_files(page.replace('"orders"', f'"{queue}"').replace("DLQ.orders", f"DLQ.{queue}"), tmp_path)
    url = rabbitmq43.url
    run, send_lamp = commands_on_a_broker("first-handler.md")
    send_sofa, listing, showing = commands_on_a_broker("first-dead-letter.md")
    (replay,) = commands_on_a_broker("first-replay.md")
    listing, showing, replay = (c.replace("DLQ.orders", f"DLQ.{queue}") for c in (listing, showing, replay))

    with running(run, tmp_path, url) as app:
        execute_until_done(send_lamp, tmp_path, url)  # the queue is there when the App has started
        assert app.saw("attempt 1: lamp")
        assert execute(send_sofa, tmp_path, url).returncode == 0
        assert app.saw(f"dead-lettered to queue:DLQ.{queue}")
        listed = execute(listing, tmp_path, url).stdout
        assert f"queue:{queue}" in listed
        assert "LookupError: no sofa in stock" in listed
        assert "redeliver_reason" in execute(showing, tmp_path, url).stdout
        app.signal()
        assert app.wait() == 0

    shop = tmp_path / "shop.py"
    shop.write_text(shop.read_text().replace('{"lamp": 10}', '{"lamp": 10, "sofa": 1}'))
    with running(run, tmp_path, url) as app:
        done = execute(replay, tmp_path, url)
        assert done.returncode == 0, done.stderr
        assert "1 of 1 replayed" in done.stdout + done.stderr
        assert app.saw("attempt 1: sofa")
        app.signal()
        assert app.wait() == 0


def execute_until_done(command: str, folder: Path, url: str) -> None:
    """Repeat a command that fails, for a minute at most."""
    end = time.monotonic() + 60
    while (done := execute(command, folder, url)).returncode:
        assert time.monotonic() < end, done.stderr


def running(command: str, folder: Path, url: str) -> Running:
    _, *words = shlex.split(command, comments=True)
    return Running(folder, *words, extra={"REDELIVER_URL": url})
