# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Makes a site of the pages of docs/, which are plain Markdown.

- The menu: the lists of links in index.md become toctrees, one for each part. A page that stands in no list is a
  warning of Sphinx's, which `make docs` makes an error.
- `llms.txt` (llmstxt.org), written from the same lists, and beside each page its Markdown, which llms.txt links to.
- Diagrams: a forge draws Mermaid. The site shows each arrow of a diagram as the row of a table, for which a browser
  needs no script from elsewhere.
- The API reference: code in single backticks of a docstring stays code, and the comments beside fields, and beside
  methods without a docstring, are shown, too.
"""

from __future__ import annotations

import ast
import inspect
import io
import re
import shutil
import textwrap
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sphinx.application import Sphinx

LIST_ITEM = re.compile(r"^- \[(?P<title>[^\]]+)\]\((?P<target>[^)\s]+)\)(?P<rest>[^\n]*(?:\n  [^\n]+)*)$", re.MULTILINE)
SECTION = re.compile(r"^## (?P<name>[^\n]+)\n(?P<text>.*?)(?=^## |\Z)", re.DOTALL | re.MULTILINE)
MERMAID = re.compile(r"^```mermaid\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)

LISTS = ("api", "errors")  # pages with lists of pages of their own, beside index.md


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
            about = f": {item.about}" if item.docname and item.about else ""  # "on this page" says nothing here
            lines.append(f"- [{item.title}]({item.target if item.docname else f'index.md{item.target}'}){about}")
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
    """Add the toctrees to a page that lists others, and replace its diagrams."""
    text = source[0]
    if docname == "index":
        listed = parts(text, app.config.site_parts)
        text += "\n" + "\n".join(toctree(items, name) for name, items in listed.items())
    elif docname in LISTS:
        text += "\n" + toctree(entries(text))
    source[0] = without_mermaid(text)


def comments_of(cls: type) -> dict[str, str]:
    """Return what the comments beside, or right above, the fields of a class say about each; empty without a source."""
    try:
        source = textwrap.dedent(inspect.getsource(cls))
    except (OSError, TypeError):
        return {}
    comments = _comments(source)
    (node,) = ast.parse(source).body
    found = {}
    for statement in getattr(node, "body", ()):
        if isinstance(statement, ast.FunctionDef) and statement.name == "__init__":
            fields = [
                (one, target.attr) for one, target in _targets(statement.body) if isinstance(target, ast.Attribute)
            ]
        else:
            fields = [(one, target.id) for one, target in _targets([statement]) if isinstance(target, ast.Name)]
        for one, name in fields:
            if not name.startswith("_") and (comment := _beside(one, comments)):
                found[name] = comment
    return found


def _targets(statements: Sequence[ast.stmt]) -> Iterator[tuple[ast.stmt, ast.expr]]:
    for one in statements:
        if isinstance(one, ast.AnnAssign):
            yield one, one.target
        elif isinstance(one, ast.Assign):
            yield one, one.targets[0]


def _comments(source: str) -> dict[int, tuple[bool, str]]:
    """Return the comments by line: whether the comment has the line for itself, and its text."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return {
        one.start[0]: (one.line.lstrip().startswith("#"), one.string.lstrip("# ").rstrip())
        for one in tokens
        if one.type == tokenize.COMMENT
    }


def _beside(node: ast.stmt, comments: dict[int, tuple[bool, str]]) -> str:
    """Return the comment at the end of a statement's last line, else the comment on the lines above the statement."""
    if node.end_lineno in comments:
        return comments[node.end_lineno][1]
    above: list[str] = []
    line = node.lineno - 1
    while line in comments and comments[line][0]:
        above.insert(0, comments[line][1])
        line -= 1
    return " ".join(above)


def method_comment(method: Any) -> str:
    """Return the comment beside, or right above, a method that has no docstring, as those of a protocol."""
    try:
        source = textwrap.dedent(inspect.getsource(method))
    except (OSError, TypeError):
        return ""
    beside = [text for _, text in _comments(source).values()]
    return " ".join(beside or [line.lstrip("# ").rstrip() for line in (inspect.getcomments(method) or "").splitlines()])


def on_docstring(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Add what comments say of fields and methods, and make code of what stands in single backticks."""
    if what in ("class", "exception"):
        described = {
            field: text for field, text in comments_of(obj).items() if f"{name}.{field}" not in app.config.site_hidden
        }
        if described:
            lines += ["", *(f"- `{field}`: {text}" for field, text in described.items()), ""]
    elif what == "method" and not any(lines) and (text := method_comment(obj)):
        lines += [text[0].upper() + text[1:] + ("" if text.endswith(".") else "."), ""]
    lines[:] = [re.sub(r"(?<![`:\w])`([^`\n]+)`(?!`)", r"``\1``", line) for line in lines]


def on_member(app: Sphinx, what: str, name: str, obj: Any, skip: bool, options: Any) -> bool | None:
    """Leave out what a named tuple says of its own fields; None leaves the choice to autodoc."""
    return True if (getattr(obj, "__doc__", None) or "").startswith("Alias for field number") else None


def on_finished(app: Sphinx, error: Exception | None) -> None:
    """Write llms.txt, and each page's Markdown beside it."""
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
    """Register with Sphinx what this module does."""
    app.add_config_value("site_parts", (), "env", frozenset({tuple, list}))
    app.add_config_value("site_summary", "", "html", frozenset({str}))
    app.add_config_value("site_hidden", (), "env", frozenset({tuple, list, set}))
    app.connect("source-read", on_source_read)
    app.connect("autodoc-process-docstring", on_docstring)
    app.connect("autodoc-skip-member", on_member)
    app.connect("build-finished", on_finished)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
