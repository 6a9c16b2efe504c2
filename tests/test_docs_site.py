# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests the documentation's site: its menu and llms.txt have every page, and a link that leads nowhere is reported.

`make docs` builds the whole site. Here a few small pages are built with the same configuration.
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from redeliver_mw.message import Past
from redeliver_mw.redelivery import copies
from redeliver_mw.redelivery.copies import Transfer
from redeliver_mw.testing import make_delivery
from tests.redelivery.test_copies import BROKER, DLQ, FAILURE, PAST, SIGNATURE, SOURCE

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PARTS = ("Start", "How to", "Reference", "Explanation")
INDEX = """# Index

## Start

- [An App](#start), on this page
- [One](one.md): the first page,
  in two lines

## How to

- [Two](two.md)

## Reference

- [Three](folder/three.md): the third

## Explanation

- [Four](four.md): the fourth

## Not a part

- [One](one.md): again
"""
ORIGINALS = ("message_id", "correlation_id", "timestamp", "user_id", "exchange", "routing_key", "topic")
API_PAGES = {
    "redeliver_mw": "redeliver_mw.md",
    "redeliver_mw.policy": "policy.md",
    "redeliver_mw.message": "message.md",
    "redeliver_mw.testing": "testing.md",
    "redeliver_mw.testing.contract": "testing.md",
    "redeliver_mw.journal": "journal.md",
    "redeliver_mw.pipeline": "pipeline.md",
    "redeliver_mw.adapter": "adapter.md",
    "redeliver_pika": "drop-ins.md",
    "redeliver_stomp": "drop-ins.md",
    "redeliver_proton": "drop-ins.md",
}
DIRECTIVE = re.compile(r"^\.\. (?P<kind>currentmodule|auto\w+):: (?P<name>[\w.]+)$", re.MULTILINE)


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("site_pages", DOCS / "_ext" / "site_pages.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["site_pages"] = module  # where its dataclass looks for its own module
    spec.loader.exec_module(module)
    return module


site_pages = load()


def pages() -> set[str]:
    return {path.relative_to(DOCS).with_suffix("").as_posix() for path in DOCS.rglob("*.md")} - {"index"}


def build(pages: dict[str, str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Build pages as `make docs` does; the site is in `folder/site`."""
    for name, text in pages.items():
        (folder / "docs" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "docs" / name).write_text(text)
    line = re.search(r"-m sphinx (.*) docs build/docs$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert line is not None
    options = line[1].replace("build/doctrees", str(folder / "doctrees")).split()
    argv = [sys.executable, "-m", "sphinx", "--no-color", *options, "-c", DOCS, folder / "docs", folder / "site"]
    return subprocess.run([*map(str, argv)], cwd=folder, capture_output=True, text=True, timeout=240)


def documented() -> Iterator[tuple[str, str, str]]:
    """Yield (page, module, name) for each name that the pages of docs/api show."""
    for page in sorted((DOCS / "api").glob("*.md")):
        current = ""
        for directive in DIRECTIVE.finditer(page.read_text()):
            if directive["kind"] == "currentmodule":
                current = directive["name"]
            elif "." in directive["name"]:
                yield page.name, *directive["name"].rsplit(".", 1)
            else:
                yield page.name, current, directive["name"]


def test_every_page_is_in_one_list_of_the_menu() -> None:
    listed = [
        *(entry for part in site_pages.parts((DOCS / "index.md").read_text(), PARTS).values() for entry in part),
        *(entry for page in site_pages.LISTS for entry in site_pages.entries((DOCS / f"{page}.md").read_text())),
    ]
    names = [entry.docname for entry in listed if entry.docname]
    assert sorted(names) == sorted(pages()), "add each page to a list in docs/index.md, once"


def test_each_page_of_a_list_says_what_it_is_about() -> None:
    listed = site_pages.parts((DOCS / "index.md").read_text(), PARTS).values()
    assert [entry.title for part in listed for entry in part if not entry.about] == []


def test_llms_txt_has_a_title_a_summary_and_a_section_of_links_for_each_part() -> None:
    text = site_pages.llms_txt("a-name", "What it is.", site_pages.parts(INDEX, PARTS))
    assert text == (
        "# a-name\n\n> What it is.\n\n"
        "## Start\n\n- [An App](index.md#start)\n- [One](one.md): the first page, in two lines\n\n"
        "## How to\n\n- [Two](two.md)\n\n"
        "## Reference\n\n- [Three](folder/three.md): the third\n\n"
        "## Explanation\n\n- [Four](four.md): the fourth\n"
    )


def test_an_index_without_one_of_the_parts_is_refused() -> None:
    with pytest.raises(ValueError, match="Explanation"):
        site_pages.parts(INDEX.replace("## Explanation", "## Other"), PARTS)


def test_a_site_has_its_menu_llms_txt_and_the_markdown_of_each_page(tmp_path: Path) -> None:
    given = {
        "index.md": INDEX,
        "one.md": "# One\n\nSee [two](two.md#a-heading) and `--an-option`.\n",
        "two.md": "# Two\n\n## A heading\n\nText.\n",
        "folder/three.md": "# Three\n\n[Up](../one.md).\n",
        "four.md": "# Four\n\n```mermaid\nflowchart LR\n    a --> b\n```\n",
    }
    done = build(given, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    made = tmp_path / "site"
    menu = re.findall(
        r'caption-text">([^<]+)<|<a class="reference internal" href="([\w/.]+)">', (made / "index.html").read_text()
    )
    assert [caption or link for caption, link in menu][:8] == [
        "Start",
        "one.html",
        "How to",
        "two.html",
        "Reference",
        "folder/three.html",
        "Explanation",
        "four.html",
    ]
    assert (made / "llms.txt").read_text().startswith("# redeliver-mw\n\n> Redelivery policies")
    links = re.findall(r"\]\(([^)#]+)", (made / "llms.txt").read_text())
    assert [link for link in links if not (made / link).is_file()] == []
    assert (made / "folder" / "three.md").read_text() == given["folder/three.md"]
    assert "<td><p>a</p></td>" in (made / "four.html").read_text()
    assert (made / "searchindex.js").is_file()


def test_a_link_that_leads_nowhere_is_an_error_with_file_and_line(tmp_path: Path) -> None:
    given = {
        "index.md": INDEX,
        "one.md": "# One\n\nText.\n\nA [page](gone.md).\n\nA [place](two.md#gone).\n\nA [place](#nowhere) here.\n",
        "two.md": "# Two\n",
        "folder/three.md": "# Three\n\n![A picture](gone.png)\n",
        "four.md": "# Four\n",
        "lost.md": "# A page that no list has\n",
    }
    done = build(given, tmp_path)
    assert done.returncode == 1
    told = {line.removeprefix(f"{tmp_path.resolve()}/docs/") for line in done.stderr.splitlines() if "WARNING" in line}
    assert {re.split(r" \[", line)[0] for line in told} == {
        "one.md:5: WARNING: 'myst' cross-reference target not found: 'gone.md'",
        "one.md:7: WARNING: local id not found in doc 'two': 'gone'",
        "one.md:9: WARNING: 'myst' cross-reference target not found: 'nowhere'",
        "folder/three.md:3: WARNING: image file not readable: folder/gone.png",
        "lost.md: WARNING: document isn't included in any toctree",
    }


def test_a_diagram_becomes_a_table_of_its_arrows() -> None:
    diagram = (
        "flowchart LR\n"
        '    broker[(broker)] <--> adapter["adapter<br/>one driver, two threads"]\n'
        "    adapter -- news --> handler\n"
        "    [*] --> in_hand\n"
        "    in_hand --> [*]: settled\n"
    )
    assert list(site_pages.arrows(diagram)) == [
        ("broker", "both ways", "adapter: one driver, two threads"),
        ("adapter: one driver, two threads", "news", "handler"),
        ("(start)", "", "in hand"),
        ("in hand", "settled", "(end)"),
    ]


def test_a_line_of_a_diagram_that_is_not_understood_is_refused() -> None:
    with pytest.raises(ValueError, match="subgraph"):
        list(site_pages.arrows("flowchart LR\n    subgraph one\n"))


class Commented:
    """Stands for a class whose comments the reference shows."""

    first: int  # beside it
    # above it,
    # in two lines
    second: int
    third: int
    _private: int = 0  # not shown

    def __init__(self) -> None:
        self.fourth = 4  # in __init__


def test_the_reference_shows_the_comments_of_fields() -> None:
    assert site_pages.comments_of(Commented) == {
        "first": "beside it",
        "second": "above it, in two lines",
        "fourth": "in __init__",
    }


@pytest.mark.parametrize("module", API_PAGES)
def test_the_reference_has_every_public_name(module: str) -> None:
    shown = {(where, name) for _, where, name in documented()}
    public = import_module(module).__all__
    fronts = {name for where, name in shown if where == "redeliver_mw"}  # names of the front door stand there alone
    # `records` is asked for by the table of verbs
    missing = [name for name in public if (module, name) not in shown and name not in {*fronts, "records"}]
    if module == "redeliver_mw.pipeline":
        assert {(where, name) for page, where, name in documented() if page == "errors.md"} >= {
            (module, "LakeError"),
            (module, "SparkError"),
        }
    assert [name for name in missing if name not in ("AdapterContract", "World")] == []


def test_the_page_on_errors_of_the_reference_has_every_public_exception() -> None:
    errors = import_module("redeliver_mw.errors")
    kinds = {name for name, one in vars(errors).items() if isinstance(one, type) and one.__module__ == errors.__name__}
    assert kinds <= {name for _, _, name in documented()}


def test_the_page_on_headers_names_every_header_that_the_code_writes() -> None:
    source = Path(copies.__file__).read_text()
    written = set(re.findall(r'"((?:redeliver_|original-)[a-z_-]+[a-z])"', source))
    written |= {f"redeliver_{name}_at" for name in ("first_attempt", "first_failed", "last_failed")}
    written |= {f"redeliver_original_{name}" for name in ORIGINALS}
    assert sorted(marks_of_headers()) == sorted(written)


def marks_of_headers() -> dict[str, tuple[str, str, str]]:
    """Return the marks R, D and P of each header on the page on headers."""
    table = (DOCS / "headers.md").read_text().partition("<!-- headers -->")[2].partition("<!-- /headers -->")[0]
    rows = re.findall(r"^\| `([\w-]+)` \| ([^|]*)\| ([^|]*)\| ([^|]*)\|", table, re.MULTILINE)
    return {name: (r.strip(), d.strip(), p.strip()) for name, r, d, p in rows}


@pytest.mark.parametrize("full", [True, False], ids=["all known", "little known"])
@pytest.mark.parametrize("mark", ["R", "D", "P"])
def test_a_copy_has_the_headers_that_the_page_on_headers_marks(mark: str, full: bool) -> None:
    past = replace(PAST, replay_id="r1", expires_at_us=PAST.not_before_us) if full else Past(failures=1)
    given = {"message_id": "m1", "correlation_id": "c1", "timestamp_us": 1_767_323_045_000_006, "user_id": "u"}
    delivery = make_delivery(b"one lamp", **(given if full else {}))
    failure = FAILURE if full else None
    if mark == "R":
        move = Transfer("redelivered", (SOURCE,), 4.0, not_before_us=1_767_323_050_000_006, failure=failure)
    else:
        move = Transfer("dead_lettered", (DLQ,), reason="exhausted", failure=failure)
    (out,) = copies.copies_of(delivery, past, "L", move, SIGNATURE, BROKER)
    if mark == "P":
        letter = make_delivery(out.body, out.headers, **(given if full else {}))
        out = copies.replay_copy(letter, SOURCE, BROKER, replay_id="r2", lineage="L")
    marks = {name: row["RDP".index(mark)] for name, row in marks_of_headers().items()}
    written = {name for name in out.headers if name.startswith("redeliver_") or name == "original-destination"}
    assert written <= {name for name, found in marks.items() if found}
    assert written >= {name for name, found in marks.items() if found == mark}
    if full:
        elsewhere = {"redeliver_uncopyable"} | {
            f"redeliver_original_{at}" for at in ("exchange", "routing_key", "topic")
        }
        assert written >= {name for name, found in marks.items() if found} - elsewhere
