# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests the project's texts: no address of the machine they were written on, no dead link, no snippet that fails.

Every block marked `python` in README.md, docs/ and the examples' pages is run as it stands, each in a process
and a folder of its own, beside the files that its page shows. A block marked `python continued` is run after the
blocks before it, back to the last one that is not. Broker URLs become `memory://`, and `app.run()` gets its SIGTERM
after a while. A block that must not be run is marked `py`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pages import FENCE, write_files

REPOSITORY = Path(__file__).resolve().parent.parent
# Put together here, so that this file does not name what it looks for.
DOT = "."
REGISTRIES = [
    DOT.join(parts)
    for parts in (
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("registry", "npmjs"),
        ("crates", "io"),
        ("proxy", "golang", "org"),
        ("maven", "org"),
        ("repo", "maven", "apache"),
        ("deb", "debian", "org"),
        ("security", "debian", "org"),
    )
]
MACHINE = ["/".join(("", *parts)) for parts in (("work", "main"), ("work", "shared"), ("tmp", "w", ""), ("root", "."))]

LINK = re.compile(r"!?\[[^\]\n]*\]\((?P<target>[^)\s]+)(?:\s+\"[^\"]*\")?\)")
BROKER_URL = re.compile(r"\b(?:activemq|rabbitmq|artemis)(?:\+\w+)?://[^\s\"'`]*")
RUN_FOR = 3.0  # seconds until a snippet that runs an App is told to stop
# What is run in front of a snippet. The timer is a daemon: a snippet that ends by itself ends at once.
BEFORE = f"""\
def _stop_later():
    import os, signal, threading, time
    def stop():
        while signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            time.sleep(0.05)  # it does not run yet, or never will
        time.sleep({RUN_FOR})
        os.kill(os.getpid(), signal.SIGTERM)
    threading.Thread(target=stop, daemon=True).start()
_stop_later()
"""


def files(*patterns: str) -> list[Path]:
    """Return the project's files: those in git, and new files that git does not ignore."""
    argv = ["git", "ls-files", "-co", "--exclude-standard", "--", *patterns]
    listed = subprocess.run(argv, cwd=REPOSITORY, capture_output=True, text=True)
    found = {REPOSITORY / name for name in listed.stdout.splitlines()}
    return sorted(file for file in found if file.is_file())


def snippets(page: str) -> Iterator[tuple[int, str]]:
    """Yield each Python block of a Markdown page as (line of the block, program to run)."""
    before = ""
    for block in FENCE.finditer(page):
        words = block["info"].split()
        if not words or words[0] != "python":
            continue
        before = before + "\n" + block["text"] if "continued" in words else block["text"]
        yield page.count("\n", 0, block.start()) + 1, before


def run_snippet(program: str, folder: Path) -> subprocess.CompletedProcess[str]:
    program = BEFORE + BROKER_URL.sub("memory://", program)
    source = folder / "snippet.py"
    source.write_text(program)
    environment = {**os.environ, "REDELIVER_URL": "memory://", "PYTHONWARNINGS": "error"}
    return subprocess.run(
        [sys.executable, source], cwd=folder, env=environment, capture_output=True, text=True, timeout=60
    )


def dead_links(page: Path, root: Path) -> list[str]:
    """Return the relative links of a Markdown page that lead nowhere, anchors included."""
    text = FENCE.sub("", page.read_text())
    return [link["target"] for link in LINK.finditer(text) if not leads_somewhere(link["target"], page, root)]


def leads_somewhere(target: str, page: Path, root: Path) -> bool:
    if re.match(r"[a-z]+:", target):
        return True  # elsewhere on the net: not asked
    path, _, anchor = target.partition("#")
    file = (page.parent / path).resolve() if path else page
    if not file.exists() or not file.is_relative_to(root.resolve()):
        return False
    return not anchor or anchor in anchors(file.read_text())


def anchors(page: str) -> set[str]:
    """Return the anchors that a forge makes of a page's headings: lower case, no punctuation, spaces to hyphens."""
    headings = re.findall(r"^#+ +(.+?)\s*#*$", FENCE.sub("", page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


PAGES = files("*.md")
SNIPPETS = [
    pytest.param(page, program, id=f"{page.relative_to(REPOSITORY)}:{line}")
    for page in PAGES
    if page.name == "README.md" or page.is_relative_to(REPOSITORY / "docs")
    for line, program in snippets(page.read_text())
]


@pytest.mark.parametrize("word", [*REGISTRIES, *MACHINE])
def test_no_file_names_a_registry_or_the_machine_it_was_written_on(word: str) -> None:
    named = [file for file in files() if word.encode() in file.read_bytes()]
    assert [str(file.relative_to(REPOSITORY)) for file in named] == []


def test_no_file_names_the_folder_this_checkout_lies_in() -> None:
    here = str(REPOSITORY).encode()
    assert [str(file.relative_to(REPOSITORY)) for file in files() if here in file.read_bytes()] == []


def test_every_source_file_says_its_licence() -> None:
    wanted = "# SPDX-FileCopyrightText: 2026 The redeliver-mw authors\n# SPDX-License-Identifier: Apache-2.0\n"
    without = [file for file in files("*.py") if not file.read_text().startswith(wanted)]
    assert [str(file.relative_to(REPOSITORY)) for file in without] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_every_relative_link_of_a_page_leads_somewhere(page: Path) -> None:
    assert dead_links(page, REPOSITORY) == []


@pytest.mark.parametrize(("page", "program"), SNIPPETS)
def test_a_snippet_of_the_documentation_runs(page: Path, program: str, tmp_path: Path) -> None:
    write_files(page.read_text(), tmp_path)
    done = run_snippet(program, tmp_path)
    assert done.returncode == 0, f"{done.stderr}\n{program}"


def test_a_snippet_that_fails_is_noticed(tmp_path: Path) -> None:
    page = "Text\n\n```python\nx = 1\n```\n\n```toml\nx\n```\n\n```python continued\nassert x == 2\n```\n"
    (first, fine), (second, bad) = snippets(page)
    assert (first, second) == (3, 11)
    assert run_snippet(fine, tmp_path).returncode == 0
    assert "AssertionError" in run_snippet(bad, tmp_path).stderr


def test_a_snippet_never_reaches_a_real_broker(tmp_path: Path) -> None:
    done = run_snippet('print("rabbitmq://guest:guest@localhost:5672/", "artemis+proton://h")', tmp_path)
    assert done.stdout == "memory:// memory://\n"


def test_a_dead_link_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "there.md").write_text("# The one heading: `x`\n")
    page = tmp_path / "page.md"
    page.write_text(
        "[a](there.md) [b](there.md#the-one-heading-x) [c](https://example.org/gone) [d](#own)\n\n# Own\n\n"
        "[e](gone.md) [f](there.md#gone) [g](#gone) [h](../outside.md)\n"
    )
    assert dead_links(page, tmp_path) == ["gone.md", "there.md#gone", "#gone", "../outside.md"]
