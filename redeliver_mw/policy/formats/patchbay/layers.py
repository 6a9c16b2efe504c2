# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Combines several `dynamoMessagingSystem.xml` that override each other along ATG's configuration path. Pure.

A later file is combined with the result of the earlier ones, element by element. Two elements, including the roots,
match if they have the same name and the earlier one has all attributes of the later one, with the same values. The name
of a sink, a filter, a port or a destination counts as such an attribute: this is our own choice, because Patch Bay
writes these names as elements. The attribute `xml-combine` of the later element defines how the two are combined:

    replace                    the later one alone
    remove                     neither
    append, prepend            the later one's elements behind or before the earlier one's; those that match are
                               combined in place
    append-without-matching,   the same, and nothing is matched
    prepend-without-matching

Without the attribute, the later element replaces the earlier one if either contains only text; otherwise its elements
are appended.

A later file may be a fragment, such as a `<redelivery-port>` alone: it is combined with every element that it matches.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ....errors import PolicyError
from ..diagnostics import nearest
from ..xml import Element, parse

COMBINE = "xml-combine"
_WAYS = ("replace", "remove", "append", "prepend", "append-without-matching", "prepend-without-matching")
_WHOLE = ("dynamo-message-system",)  # a file with another root is a fragment
_CALLED = {
    **dict.fromkeys(("message-sink", "message-filter", "message-source"), "nucleus-name"),
    **dict.fromkeys(("input-port", "output-port", "redelivery-port"), "port-name"),
    **dict.fromkeys(("input-destination", "output-destination"), "destination-name"),
}


def combined(layers: Sequence[tuple[str, str]]) -> Element:
    """Return the root of several files combined into one: each has a name and a text, the lowest first.

    Raises PolicyError with file, line and column for invalid XML, and for a fragment that matches nothing.
    """
    whole: Element | None = None
    for file, text in layers:
        try:
            root = parse(text, doctype=True)
        except PolicyError as error:
            error.where = f"{file}, {error.where}" if error.where else file
            raise
        for element in root.all_inside():
            element.file = file
        whole = root if whole is None else _with_layer(whole, root)
    if whole is None:
        raise PolicyError("no file", cure="Name at least one", code="policy-file")
    for element in whole.all_inside():
        element.attributes.pop(COMBINE, None)
    return whole


def _with_layer(whole: Element, layer: Element) -> Element:
    if layer.name == whole.name and (layer.name in _WHOLE or _match(whole, layer)):
        found = _pair(whole, layer)
        if found is None:
            raise PolicyError(
                "the root is removed", where=layer.where, cure="Remove what is inside it", code="policy-syntax"
            )
        return found
    parents = [element for element in whole.all_inside() if any(_match(child, layer) for child in element.children)]
    if not parents:
        name = _called(layer)
        what = f"a <{layer.name:.100}>" + (f" {name:.200}" if name else "")
        raise PolicyError(
            f"{what} is not in the files below",
            where=layer.where,
            cure="Put it inside its <message-sink>",
            code="policy-key-misplaced",
        )
    for parent in parents:
        parent.children[:] = _combined_children([parent], [layer])
    return whole


def _pair(below: Element, above: Element) -> Element | None:
    """Return the combination of two elements that match, or None if neither stays."""
    way = above.attributes.get(COMBINE) or ("append" if below.children and above.children else "replace")
    if way not in _WAYS:
        cure = f"Did you mean {nearest(way, _WAYS) or _WAYS[0]}?"
        raise PolicyError(f"{COMBINE}={way!r:.100} is unknown", where=above.where, cure=cure, code="policy-value")
    if way == "remove":
        return None
    if way == "replace":
        return above
    below.attributes |= above.attributes
    below.text = above.text or below.text
    if way == "append":
        below.children[:] = _combined_children([below], above.children)
    elif way == "prepend":
        below.children[:] = _combined_children([below], above.children, before=True)
    elif way == "append-without-matching":
        below.children += above.children
    else:
        below.children[:0] = above.children
    return below


def _combined_children(parents: Iterable[Element], above: Sequence[Element], *, before: bool = False) -> list[Element]:
    below = [child for parent in parents for child in parent.children]
    left, found = list(above), list[Element]()
    for child in below:
        partner = next((one for one in left if _match(child, one)), None)
        if partner is None:
            found.append(child)
            continue
        left = [one for one in left if one is not partner]
        together = _pair(child, partner)
        if together is not None:
            found.append(together)
    left = [one for one in left if one.attributes.get(COMBINE) != "remove"]
    return left + found if before else found + left


def _match(below: Element, above: Element) -> bool:
    if below.name != above.name or _called(below) != _called(above):
        return False
    return all(below.attributes.get(name) == text for name, text in above.attributes.items() if name != COMBINE)


def _called(element: Element) -> str:
    child = element.first(_CALLED[element.name]) if element.name in _CALLED else None
    return child.text if child is not None else ""
