# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Configures the documentation's site, which `make docs` builds with Sphinx, MyST and Furo.

The pages are plain Markdown that also reads well on a forge. What the site adds to them is in `_ext/site_pages.py`.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx

DOCS = Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS / "_ext"))
sys.path[1:1] = [str(DOCS.parent), str(DOCS.parent / "adapters")]

_PROJECT = tomllib.loads((DOCS.parent / "pyproject.toml").read_text("utf-8"))["project"]

project = _PROJECT["name"]
author = "The redeliver-mw authors"
project_copyright = "2026 The redeliver-mw authors"
version = release = _PROJECT["version"]
language = "en"
smartquotes = False  # `--option` stays what it is

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_copybutton", "site_pages"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_ext", "bench"]
needs_sphinx = "9.0"

# A link to a page or a heading that is not there is a warning, and `make docs` makes an error of each warning.
nitpicky = True
# Python's own names, and those of drivers, are not documented here.
nitpick_ignore_regex = [("py:.*", ".*")]
suppress_warnings = ["myst.header"]  # some pages begin their sections at the third level on purpose
myst_heading_anchors = 4  # the same anchors that a forge makes

autodoc_default_options = {"members": True}
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autodoc_class_signature = "mixed"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
add_module_names = False
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = f"redeliver-mw {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False  # each page's Markdown lies beside it instead, see `site_pages`
html_last_updated_fmt = None
html_theme_options = {"navigation_with_keys": True, "footer_icons": []}
pygments_style = "friendly"
pygments_dark_style = "monokai"
copybutton_prompt_text = "$ "
copybutton_only_copy_prompt_lines = True
copybutton_exclude = ".linenos, .gp, .go"

site_parts = ("Start", "How to", "Reference", "Explanation")  # sections of index.md, which become the menu
site_summary = _PROJECT["description"]
# Fields that are not for handlers.
site_hidden = [
    f"redeliver_mw.Delivery.{name}" for name in ("generation", "tag", "own_key", "known", "in_line", "outbox", "plan")
]


def setup(app: Sphinx) -> None:
    """Show queries as plain text: Pygments does not know their languages."""
    for language in ("jq", "logql"):
        app.add_lexer(language, TextLexer)
