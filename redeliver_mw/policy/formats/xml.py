# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Reads XML as the policy languages need it: elements by their local names, with their places. Pure.

Texts are parsed with defusedxml: a document type, and entities of their own or external ones, are refused. A text has
at most 10 MB, 100 levels, 50 000 elements and 1 000 attributes of each, so that time and memory are bounded.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from xml.etree.ElementTree import ParseError
from xml.parsers.expat import errors as expat_errors

from defusedxml.common import DefusedXmlException
from defusedxml.ElementTree import DefusedXMLParser

from ...errors import PolicyError

LARGEST = 10_000_000  # characters
DEEPEST = 100
MOST = 50_000  # elements
MOST_ATTRIBUTES = 1_000  # of one element
PIECE = 10_000  # characters that are read first if only the root is asked for


@dataclass(slots=True)
class Element:
    """Is one element. `name` and the names of `attributes` have no namespace and no prefix.

    `text` is the text directly in the element, without blanks around it; `line` and `column` count from 1. `namespace`
    is empty if there is none. `file` is the included file that the element is in, and `called` names its place if it is
    not an element of XML.
    """

    name: str
    attributes: dict[str, str]
    children: list[Element]
    text: str
    line: int
    column: int
    namespace: str = ""
    _parts: list[str] = field(default_factory=list, repr=False, compare=False)
    file: str = ""
    called: str = ""

    def all(self, name: str) -> list[Element]:
        """Return its own children of that name."""
        return [child for child in self.children if child.name == name]

    def first(self, name: str) -> Element | None:
        """Return its first child of that name, or None."""
        for child in self.children:
            if child.name == name:
                return child
        return None

    def all_inside(self) -> Iterator[Element]:
        """Yield the element itself and everything inside it, in no particular order."""
        waiting = [self]
        while waiting:
            element = waiting.pop()
            yield element
            waiting.extend(element.children)

    def find(self, *names: str) -> list[Element]:
        """Return the element itself and everything inside it that has one of these names, in the order of the text."""
        found, waiting = [], [self]
        while waiting:
            element = waiting.pop()
            if element.name in names:
                found.append(element)
            if element.children:
                waiting.extend(reversed(element.children))
        return found

    @property
    def where(self) -> str:
        """Return the place, such as `line 3, column 5, <redelivery>`."""
        file = f"{self.file}, " if self.file else ""
        if self.called:
            return f"{file}line {self.line}, {self.called:.200}"
        return f"{file}line {self.line}, column {self.column}, <{self.name:.100}>"


def parse(text: str, *, doctype: bool = False) -> Element:
    """Return the root element of an XML text.

    Raises PolicyError with line and column if the text is invalid, or refused.

    `doctype`: a document type is allowed. It is skipped: no file and no address that it names is read.
    """
    return _parsed(text, None, doctype)


def root_of(text: str) -> Element:
    """Return the root element without its content: the rest of the text is not read.

    Raises PolicyError as `parse` does.
    """
    return _parsed(text, PIECE, doctype=True)  # the reader of its language may refuse it


def _parsed(text: str, piece: int | None, doctype: bool) -> Element:
    if len(text) > LARGEST:
        raise PolicyError(
            f"more than {LARGEST} characters",
            cure="Cut the file down to what concerns redelivery",
            code="policy-too-large",
        )
    # Nothing is allowed before an XML declaration; text that was there still counts for the places.
    body = text.lstrip().lstrip("\ufeff").lstrip()
    before = text[: len(text) - len(body)]
    tree = _Tree(before.count("\n"), len(before) - before.rfind("\n") - 1)
    parser: Any = DefusedXMLParser(target=tree, forbid_dtd=not doctype, forbid_entities=True, forbid_external=True)
    tree.expat = parser.parser
    # Called by expat directly, without the detour through ElementTree's names; forbidden content stays forbidden.
    tree.expat.StartElementHandler, tree.expat.EndElementHandler = tree.start, tree.end
    try:
        read = 0
        while piece and read < len(body):
            parser.feed(body[read : read + piece])
            if tree.root is not None:
                return tree.root
            read += piece
            piece *= 2  # expat scans a comment again, as long as it has no end
        parser.feed(body[read:])
        parser.close()
    except ParseError as error:
        line, column = tree.place(*error.position)
        what, cure = tree.why(error)
        raise PolicyError(
            f"not XML: {what}", where=f"line {line}, column {column}", cure=cure, code="policy-syntax"
        ) from None
    except DefusedXmlException:
        raise PolicyError(
            "a document type or an entity of its own",
            where=tree.where,
            cure="Take <!DOCTYPE ...> out, and write what the entities stand for",
            code="policy-syntax",
        ) from None
    except (UnicodeError, ValueError) as error:
        raise PolicyError(
            f"not XML: {error}", where=tree.where, cure="Save it as UTF-8", code="policy-syntax"
        ) from None
    if tree.root is None:
        raise PolicyError("not XML: no element in it", cure="Name a file with XML in it", code="policy-syntax")
    return tree.root


class _Tree:
    """Is called by the parser; makes Elements with places."""

    def __init__(self, lines: int, columns: int) -> None:
        self._lines, self._columns = lines, columns  # before the first character that is parsed
        self.root: Element | None = None
        self.expat: Any = None
        self._open: list[Element] = []
        self._count = 0

    @property
    def where(self) -> str:
        line, column = self.place(self.expat.CurrentLineNumber, self.expat.CurrentColumnNumber)
        return f"line {line}, column {column}"

    def place(self, line: int, column: int) -> tuple[int, int]:
        """Return line and column in the text, from 1, for expat's counts in its part of the text."""
        return line + self._lines, column + 1 + (self._columns if line == 1 else 0)

    def why(self, error: ParseError) -> tuple[str, str]:
        """Return what is wrong at the place of an error, and the cure."""
        inside = self._open[-1] if self._open else None
        opened = f"<{inside.name:.100}> of line {inside.line}" if inside else ""
        close = f"Write </{inside.name:.100}>" if inside else "Name a file with XML in it"
        match expat_errors.messages.get(error.code):
            case expat_errors.XML_ERROR_NO_ELEMENTS | expat_errors.XML_ERROR_UNCLOSED_TOKEN if inside:
                return f"it ends before {opened} is closed", f"{close}; the rest of the file may be missing"
            case expat_errors.XML_ERROR_NO_ELEMENTS | expat_errors.XML_ERROR_UNCLOSED_TOKEN:
                return "it ends before an element is complete", close
            case expat_errors.XML_ERROR_TAG_MISMATCH:
                return f"another element than {opened} is closed here", f"{close} first, or correct the name"
            case expat_errors.XML_ERROR_JUNK_AFTER_DOC_ELEMENT:
                return "something stands behind the end of the root element", "Take it out, or put it inside"
            case expat_errors.XML_ERROR_DUPLICATE_ATTRIBUTE:
                return "an attribute is given twice", "Leave one of the two out"
            case expat_errors.XML_ERROR_UNDEFINED_ENTITY:
                return "an entity that nothing declares", "Write its character, or &amp; for an & of its own"
            case expat_errors.XML_ERROR_UNBOUND_PREFIX:
                return "a prefix that no xmlns: declares", "Declare it at the root, or leave it out"
            case _:
                within = f", inside {opened}" if opened else ""
                cure = "Look for a < or & that should be &lt; or &amp;, a missing quote or a missing >"
                return f"{str(error).partition(':')[0]}{within}", cure

    def start(self, tag: str, attributes: list[str]) -> None:
        self._count += 1
        if len(self._open) >= DEEPEST:
            raise PolicyError(
                f"more than {DEEPEST} levels of elements", where=self.where, cure="Flatten it", code="policy-too-large"
            )
        if self._count > MOST:
            raise PolicyError(
                f"more than {MOST} elements", where=self.where, cure="Split the file", code="policy-too-large"
            )
        line, column = self.place(self.expat.CurrentLineNumber, self.expat.CurrentColumnNumber)
        namespace, _, name = tag.rpartition("}")
        if len(attributes) > MOST_ATTRIBUTES * 2:  # names and values alternate
            what = f"<{name:.100}> has more than {MOST_ATTRIBUTES} attributes"
            raise PolicyError(what, where=self.where, cure="Leave out what is no policy", code="policy-too-large")
        element = Element(name, _plain(attributes) if attributes else {}, [], "", line, column, namespace)
        if self._open:
            self._open[-1].children.append(element)
        else:
            self.root = element
        self._open.append(element)

    def data(self, text: str) -> None:
        if self._open:
            self._open[-1]._parts.append(text)

    def end(self, tag: str) -> None:
        element = self._open.pop()
        element.text = "".join(element._parts).strip()
        element._parts.clear()

    def close(self) -> Element | None:
        return self.root


def _plain(attributes: list[str]) -> dict[str, str]:
    return {_local(name): value for name, value in zip(attributes[::2], attributes[1::2], strict=True)}


def _local(name: str) -> str:
    return name.rpartition("}")[2]
