# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Makes a site of the pages of docs/, which are plain Markdown.

- The menu: the lists of links in index.md become toctrees, one for each part. A page that stands in no list is a
  warning of Sphinx's, which `make docs` makes an error.
- `llms.txt` (llmstxt.org), written from the same lists, and beside each page its Markdown, which llms.txt links to.
- Diagrams: a forge draws Mermaid. The site shows each arrow of a diagram as the row of a table, for which a browser
  needs no script from elsewhere.
- Docstrings: code in single backticks stays code.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

LIST_ITEM = re.compile(r"^- \[(?P<title>[^\]]+)\]\((?P<target>[^)\s]+)\)(?P<rest>[^\n]*(?:\n  [^\n]+)*)$", re.MULTILINE)
SECTION = re.compile(r"^## (?P<name>[^\n]+)\n(?P<text>.*?)(?=^## |\Z)", re.DOTALL | re.MULTILINE)
MERMAID = re.compile(r"^```mermaid\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Entry:
    """Holds one item of a list of links: a title, a link relative to docs/, and what the page is about."""

    title: str
    target: str
    about: str

    @property
    def docname(self) -> str:
        """Return the page that the link leads to, as Sphinx names it; empty for a place on the same page."""
        return self.target.partition("#")[0].removesuffix(".md")


def entries(text: str) -> list[Entry]:
    """Return the items of the lists of links in a Markdown text, in order."""
    return [
        Entry(item["title"], item["target"], " ".join(item["rest"].split()).lstrip(",: "))
        for item in LIST_ITEM.finditer(text)
    ]


def parts(index: str, names: Sequence[str]) -> dict[str, list[Entry]]:
    """Return the entries of each of these sections of index.md. Raises ValueError if a section is missing or empty."""
    found = {section["name"]: entries(section["text"]) for section in SECTION.finditer(index)}
    if missing := [name for name in names if not found.get(name)]:
        raise ValueError(f"docs/index.md has no list of links under: {', '.join(missing)}")
    return {name: found[name] for name in names}


def toctree(listed: Sequence[Entry], caption: str = "") -> str:
    """Return a hidden toctree, in MyST, of the pages in a list."""
    lines = [f"{entry.title} <{entry.docname}>" for entry in listed if entry.docname]
    return "\n".join(
        ["", "```{toctree}", ":hidden:", *([f":caption: {caption}"] if caption else []), "", *lines, "```", ""]
    )


def llms_txt(title: str, summary: str, listed: dict[str, list[Entry]]) -> str:
    """Return llms.txt: a title, a summary, and for each part its pages with a line about each."""
    lines = [f"# {title}", "", f"> {summary}"]
    for name, items in listed.items():
        lines += ["", f"## {name}", ""]
        for item in items:
            target = item.target if item.docname else f"index.md{item.target}"
            lines.append(f"- [{item.title}]({target})" + (f": {item.about}" if item.about else ""))
    return "\n".join(lines) + "\n"


ARROW = re.compile(
    r"^\s*(?P<from>\S+?)(?:[\[(]+\"?(?P<from_text>[^\"\])]*)\"?[\])]+)?"
    r"\s+(?P<kind><-->|--(?P<middle>[^->][^>]*?)-->|-->)"
    r"\s+(?P<to>[^\s:\[(]+|\[\*\])(?:[\[(]+\"?(?P<to_text>[^\"\])]*)\"?[\])]+)?\s*(?::\s*(?P<after>.+))?$"
)


def arrows(diagram: str) -> Iterator[tuple[str, str, str]]:
    """Yield (from, label, to) for each arrow of a Mermaid diagram. Raises ValueError for a line that is none."""
    texts: dict[str, str] = {}
    found = []
    for line in diagram.splitlines()[1:]:
        if not line.strip():
            continue
        if not (arrow := ARROW.match(line)):
            raise ValueError(f"not an arrow of a diagram: {line.strip()}")
        for end in ("from", "to"):
            if arrow[f"{end}_text"]:
                texts[arrow[end]] = arrow[f"{end}_text"].replace("<br/>", ": ", 1)
        found.append((arrow["from"], (arrow["middle"] or arrow["after"] or "").strip(), arrow["to"], arrow["kind"]))
    ends = {"[*]": ("(start)", "(end)")}
    for one, label, other, kind in found:
        begin = ends[one][0] if one in ends else texts.get(one, one.replace("_", " "))
        finish = ends[other][1] if other in ends else texts.get(other, other.replace("_", " "))
        yield begin, label or ("both ways" if kind == "<-->" else ""), finish


def without_mermaid(text: str) -> str:
    """Return a page with each Mermaid diagram as a table of its arrows, on one line, so that line numbers hold."""

    def table(block: re.Match[str]) -> str:
        rows = list(arrows(block["text"]))
        head = ("from", "by", "to") if any(label for _, label, _ in rows) else ("from", "", "to")
        lines = ["| " + " | ".join(cells) + " |" for cells in (head, ("---",) * 3, *rows)]
        return "\n".join(lines) + "\n"

    return MERMAID.sub(table, text)


def on_source_read(app: Sphinx, docname: str, source: list[str]) -> None:
    text = source[0]
    if docname == "index":
        listed = parts(text, app.config.site_parts)
        text += "\n" + "\n".join(toctree(items, name) for name, items in listed.items())
    elif docname == "api":
        text += "\n" + toctree(entries(text))
    source[0] = without_mermaid(text)


def on_docstring(app: Sphinx, what: str, name: str, obj: object, options: Any, lines: list[str]) -> None:
    """Make code of what stands in single backticks: docstrings are written in the manner of Markdown."""
    lines[:] = [re.sub(r"(?<![`:\w])`([^`\n]+)`(?!`)", r"``\1``", line) for line in lines]


def on_finished(app: Sphinx, error: Exception | None) -> None:
    if error or app.builder.name != "html":
        return
    index = Path(app.srcdir, "index.md").read_text("utf-8")
    listed = parts(index, app.config.site_parts)
    text = llms_txt(app.config.project, app.config.site_summary, listed)
    Path(app.outdir, "llms.txt").write_text(text, "utf-8")
    for docname in app.env.found_docs:
        target = Path(app.outdir, f"{docname}.md")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(app.env.doc2path(docname), target)


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_config_value("site_parts", (), "env", frozenset({tuple, list}))
    app.add_config_value("site_summary", "", "html", frozenset({str}))
    app.connect("source-read", on_source_read)
    app.connect("autodoc-process-docstring", on_docstring)
    app.connect("build-finished", on_finished)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
