# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Checks which element is allowed where in a policy language, and reports misplaced ones. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from ...errors import PolicyError
from .diagnostics import Diagnostics, nearest
from .xml import Element

MOST_FINDINGS = 100  # findings of one file: more would not help, and the search for the nearest name takes time
MOST_COMPARED = 2_000  # names of one file that are compared with ours, which takes time
_ALIKE = 0.8  # similarity from which a foreign name counts as a misspelling of one of ours
_MORE_ALIKE = 0.85  # similarity to a name allowed in this place, even if the name belongs elsewhere
_HOMES = 3  # places that are named as the right ones


@dataclass(frozen=True)
class ElementRule:
    """Defines what is allowed directly inside one element."""

    ours: tuple[str, ...] = ()  # elements that the reader reads
    foreign: frozenset[str] = frozenset()  # other elements of the product there: skipped silently
    open: bool = False  # elements of other products are allowed too, as in Spring's XML
    once: frozenset[str] = frozenset()  # elements that hold others, and yet are allowed only once


@dataclass(frozen=True)
class XmlSchema:
    """Defines the elements of a language.

    A place is found by `PARENT/NAME`, or else by `NAME`; an element without a place is empty.
    """

    language: str
    needed: str  # what a file without a policy lacks
    roots: tuple[str, ...]
    places: Mapping[str, ElementRule]
    common: frozenset[str]  # names of ours with another meaning elsewhere in the product's files
    namespaces: tuple[str, ...] = ()  # parts of the product's own namespaces; empty: all are
    attributes: tuple[str, ...] = field(default=())  # words that are attributes, not elements
    elements: tuple[str, ...] = field(default=())  # words that are elements, not attributes

    @cached_property
    def homes(self) -> dict[str, list[str]]:
        """Return where each element of ours belongs."""
        found: dict[str, list[str]] = {}
        # A place that allows any element is named only for elements without a place of their own.
        for key, place in sorted(self.places.items(), key=lambda item: item[1].open):
            home = key.rpartition("/")[2]
            for name in place.ours:
                homes = found.setdefault(name, [])
                if home not in homes and not (place.open and homes):
                    homes.append(home)
        return found

    @cached_property
    def telling(self) -> frozenset[str]:
        """Return the elements that are policies wherever they are."""
        return frozenset(self.homes) - self.common

    @cached_property
    def known(self) -> frozenset[str]:
        """Return all names of the product's that are listed here."""
        return frozenset(self.homes).union(*(place.foreign for place in self.places.values()))

    def place(self, parent: str, name: str) -> ElementRule:
        """Return what is allowed in the element `name` inside `parent`."""
        return self.places.get(f"{parent}/{name}") or self.places.get(name) or ElementRule()

    def is_foreign(self, element: Element, root: Element) -> bool:
        """Return whether an element belongs to another product, by its namespace."""
        own = element.namespace in ("", root.namespace) or not self.namespaces
        return not own and not any(part in element.namespace for part in self.namespaces)


@dataclass(frozen=True)
class XmlFinding:
    """Describes an element that is not read, or is out of place."""

    where: str
    what: str
    error: str
    hint: str
    code: str  # of the error


def tell(root: Element, schema: XmlSchema, problems: Diagnostics, *, strict: bool, holds: bool) -> None:
    """Report all elements that are unknown or out of place, and values that are given twice.

    They are warnings, or errors with `strict`; a file that holds no policy is always an error.
    """
    found: dict[XmlFinding, None] = {}
    for finding in findings(root, schema):
        found[finding] = None
        if len(found) >= MOST_FINDINGS:
            break
    for finding in found:
        cure = finding.hint[:1].upper() + finding.hint[1:]
        if strict:
            problems.add(finding.error, where=finding.where, cure=cure, code=finding.code)
        else:
            error = PolicyError(finding.error, where=finding.where, cure=cure, code=finding.code)
            problems.suspect(f"{finding.where}: {finding.what}; {finding.hint}", error)
    if not holds:
        problems.add(
            f"no policy of {schema.language} in it",
            where=root.where,
            cure=f"Write {schema.needed}",
            code="policy-not-recognized",
        )


def findings(root: Element, schema: XmlSchema) -> Iterator[XmlFinding]:
    """Yield all elements that are unknown, out of place or given twice, in no particular order."""
    if root.name in schema.roots:
        waiting = [(root, schema.place("", root.name))]
    elif root.name in schema.homes:
        yield _misplaced(root, schema)
        waiting = [(root, schema.place("", root.name))]
    else:
        # The root does not belong to the language, but surrounds parts of it.
        near = _near(root.name, tuple(schema.telling | set(schema.roots)))
        if near:
            yield _unknown(root, near, schema, (near,))
        waiting = [(root, schema.places.get(near or "") or ElementRule((*schema.roots, *schema.telling), open=True))]
    seen: dict[tuple[str, int], str | None] = {}
    attributes: dict[str, str | None] = {}
    while waiting:
        element, place = waiting.pop()
        if place is not _ELSEWHERE:
            yield from _attributes(element, place, schema, attributes)
        inside: list[tuple[Element, ElementRule]] = []
        once: set[str] = set()
        for child in element.children:
            if schema.is_foreign(child, root):
                continue
            if child.name in place.ours:
                its = schema.place(element.name, child.name)
                if child.name in once and ((its == _VALUE and not place.open) or child.name in place.once):
                    yield XmlFinding(
                        child.where,
                        "a second one",
                        "a second element of this name",
                        "leave one out",
                        code="policy-conflict",
                    )
                once.add(child.name)
                inside.append((child, its))
            elif child.name in place.foreign:
                inside.append((child, _ELSEWHERE))
            elif child.name in schema.homes and (not place.open or child.name in schema.telling):
                yield _misplaced(child, schema)
                inside.append((child, schema.place("", child.name)))
            else:
                key = (child.name, id(place))
                if key not in seen and len(seen) < MOST_COMPARED:
                    seen[key] = _meant(child.name, place, schema)
                near = seen.get(key)
                if near or not place.open:
                    yield _unknown(child, near, schema, place.ours)
                inside.append((child, schema.place(element.name, near) if near in schema.homes else _ELSEWHERE))
        waiting.extend(reversed(inside))


_ELSEWHERE = ElementRule(open=True)  # inside elements that are not ours
_VALUE = ElementRule()  # inside an element that holds only text


def _meant(name: str, place: ElementRule, schema: XmlSchema) -> str | None:
    if place.open:
        return None if name in schema.known else _near(name, tuple(schema.telling))
    if name in schema.attributes:
        return name
    if here := nearest(name, place.ours, _MORE_ALIKE):
        return here
    # A name with a more similar spelling may belong elsewhere: redelivery beside redelivery-port.
    ours = list(filter(None, (nearest(name, place.ours), _near(name, tuple(schema.telling)))))
    return nearest(name, ours) or nearest(name, place.foreign)


def _near(name: str, allowed: tuple[str, ...]) -> str | None:
    return nearest(name, allowed, _ALIKE)


def _attributes(
    element: Element, place: ElementRule, schema: XmlSchema, seen: dict[str, str | None]
) -> Iterator[XmlFinding]:
    """Yield the attributes of an element that are elements in this language, with correct spelling or not."""
    for name in element.attributes:
        if name not in seen and len(seen) < MOST_COMPARED:
            seen[name] = _near(name, schema.elements)
        if near := seen.get(name):
            inside = "" if near in place.ours else f" in {_homes(near, schema)}"
            hint = f"write it as an element, <{near}>{inside}"
            what, error = f"{name:.80}=... is passed over", f"{name:.80}=... is no attribute"
            yield XmlFinding(element.where, what, error, hint, code="policy-key-misplaced")


def _unknown(element: Element, near: str | None, schema: XmlSchema, here: tuple[str, ...]) -> XmlFinding:
    if near in schema.attributes:
        hint = f'write it as an attribute, {near}="..."'
    elif near is None:
        hint = "it is not known here"
    elif near in here or near not in schema.homes:
        hint = f"did you mean {near}?"
    else:
        hint = f"did you mean {near}? It belongs in {_homes(near, schema)}"
    return XmlFinding(element.where, "passed over", "an unknown element", hint, code="policy-key-unknown")


def _misplaced(element: Element, schema: XmlSchema) -> XmlFinding:
    hint = f"it belongs in {_homes(element.name, schema)}"
    return XmlFinding(
        element.where, "out of its place", "an element out of its place", hint, code="policy-key-misplaced"
    )


def _homes(name: str, schema: XmlSchema) -> str:
    return " or ".join(f"<{home}>" for home in schema.homes[name][:_HOMES])


def words(text: str) -> frozenset[str]:
    """Return the names in a text, which are separated by spaces."""
    return frozenset(text.split())
