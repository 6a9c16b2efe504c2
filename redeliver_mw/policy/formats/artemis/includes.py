# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Expands `<xi:include href="FILE">` in Artemis' `broker.xml`. Pure: the caller reads the files.

The included content takes the place of the element, as in Artemis. The whole file is included: `xpointer` and
`parse="text"` are refused, and an `xi:fallback` is not used, because it would hide that a file is missing. FILE is the
name of a file below the folder of the file that includes it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from ....errors import PolicyError
from ..diagnostics import Diagnostics
from ..xml import Element, parse

# returns the text of a file, by its folders and name. Raises PolicyError if there is none
TextOf = Callable[[tuple[str, ...]], str]
NAMESPACE = "http://www.w3.org/2001/XInclude"
DEEPEST = 5  # nested files
MOST = 50  # files
LARGEST = 2_000_000  # characters of all of them together
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_BELOW = "Name a file below the folder of the one that includes it"


@dataclass
class Includes:
    """Puts included files in their places; problems are reported to `problems`."""

    text_of: TextOf | None  # None: the including text is not a file, and so has no folder
    problems: Diagnostics
    files: int = 0
    characters: int = 0
    _open: list[tuple[str, ...]] = field(default_factory=list)

    def expand(self, root: Element) -> None:
        """Replace all includes inside an element by the files that they name."""
        self._expand(root, ())

    def _expand(self, root: Element, folder: tuple[str, ...]) -> None:
        waiting = [root]
        while waiting:
            element = waiting.pop()
            # The included content has been expanded already, relative to its own folder.
            waiting.extend(child for child in element.children if not _is_include(child))
            if any(_is_include(child) for child in element.children):
                element.children[:] = [self._instead_of(child, folder) for child in element.children]

    def _instead_of(self, element: Element, folder: tuple[str, ...]) -> Element:
        if not _is_include(element):
            return element
        try:
            return self._included(element, folder)
        except PolicyError as error:
            self.problems.take(error)
            return element

    def _included(self, element: Element, folder: tuple[str, ...]) -> Element:
        parts = _parts(element)
        if self.text_of is None:
            cure = "Hand the file over by its name; in Python, as a Path"
            raise PolicyError(
                "a text that is no file cannot include one", where=element.where, cure=cure, code="policy-include"
            )
        path = (*folder, *parts)
        name = "/".join(path)
        if path in self._open:
            raise PolicyError(
                f"{name:.200} includes itself",
                where=element.where,
                cure="Take one of the includes out",
                code="policy-include",
            )
        if len(self._open) >= DEEPEST or self.files >= MOST:
            many = f"more than {DEEPEST} levels or {MOST} files of includes"
            raise PolicyError(
                many, where=element.where, cure="Write what they hold into one file", code="policy-too-large"
            )
        self.files += 1
        try:
            text = self.text_of(path)
        except PolicyError as error:
            raise PolicyError(
                f"{name:.200}: {error.what}", where=element.where, cure=error.cure or _BELOW, code=error.code
            ) from None
        self.characters += len(text)
        if self.characters > LARGEST:
            cure = "Cut them down to what concerns redelivery"
            raise PolicyError(
                f"more than {LARGEST} characters in all includes",
                where=element.where,
                cure=cure,
                code="policy-too-large",
            )
        try:
            root = parse(text)
        except PolicyError as error:
            where = f"{name:.200}, {error.where}" if error.where else f"{name:.200}"
            raise PolicyError(error.what, where=where, cure=error.cure, code=error.code) from None
        for one in root.all_inside():
            one.file = name
        self._open.append(path)
        # A file whose root is another include is not valid XML of Artemis; it is reported as an unknown element.
        self._expand(root, path[:-1])
        self._open.pop()
        return root


def _is_include(element: Element) -> bool:
    # A misspelt include, or one in a namespace that is nearly XInclude's, is reported; otherwise its file would be
    # missing silently.
    return "xinclude" in element.namespace.lower()


def _parts(element: Element) -> tuple[str, ...]:
    if element.name != "include" or element.namespace != NAMESPACE:
        cure = f'Write <xi:include href="FILE"/>, with xmlns:xi="{NAMESPACE}"'
        raise PolicyError("no include of XInclude", where=element.where, cure=cure, code="policy-include")
    href = element.attributes.get("href", "")
    if "xpointer" in element.attributes or element.attributes.get("parse", "xml") != "xml":
        raise PolicyError(
            "a part or the text of a file",
            where=element.where,
            cure='Write <xi:include href="FILE"/>',
            code="policy-include",
        )
    if not href:
        raise PolicyError(
            "an include without href",
            where=element.where,
            cure='Write <xi:include href="FILE"/>',
            code="policy-include",
        )
    if _URL.match(href) or href.startswith(("/", "~")) or "\\" in href or "\0" in href or "%" in href:
        raise PolicyError(
            f"{href!r:.200} is not below this folder", where=element.where, cure=_BELOW, code="policy-include"
        )
    parts = tuple(part for part in href.split("/") if part not in ("", "."))
    if not parts or ".." in parts:
        raise PolicyError(
            f"{href!r:.200} is not below this folder", where=element.where, cure=_BELOW, code="policy-include"
        )
    return parts
