# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Reads ActiveMQ's plug-in and map of policies that are written as beans of Spring's or Blueprint's. Pure.

`<bean class="org.apache.activemq.broker.region.policy.RedeliveryPolicyMap">` is read as `<redeliveryPolicyMap>`, and
the content or reference of its properties as the content of that element. A referenced bean is found by its id.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import replace

from ..xml import Element
from .names import IDENTITY

OF_A_BEAN = ("class", "name", "scope", "parent", "lazy-init")
_CLASSES = {"RedeliveryPlugin": "redeliveryPlugin", "RedeliveryPolicyMap": "redeliveryPolicyMap"}
_COLLECTIONS, _REFERENCES = ("list", "set", "array"), ("ref", "reference")


def is_policy_bean(element: Element) -> bool:
    """Return whether an element is a bean of the class RedeliveryPolicy, and not Camel's class of that name."""
    return element.name == "bean" and _class_of(element) == "RedeliveryPolicy"


def without_beans(root: Element) -> Element:
    """Return the tree with maps and plug-ins as elements; a bean that one of them refers to is moved inside it."""
    beans = root.find("bean")
    whole = [bean for bean in beans if _class_of(bean) in _CLASSES]
    if not whole:
        return root
    known = {bean.attributes["id"]: bean for bean in beans if "id" in bean.attributes}
    referred = {name for bean in whole for each in bean.all_inside() for name in _references(each)}
    return _elements(root, known, referred)


def _elements(element: Element, known: Mapping[str, Element], referred: Set[str]) -> Element:
    name = _CLASSES.get(_class_of(element)) if element.name == "bean" else None
    if name is None:
        kept = [c for c in element.children if not (c.name == "bean" and c.attributes.get("id") in referred)]
        return replace(element, children=[_elements(child, known, referred) for child in kept])
    attributes = {key: text for key, text in element.attributes.items() if key not in OF_A_BEAN}
    children = [child for child in element.children if child.name not in ("property", "description")]
    for each in element.all("property"):
        if inside := list(_inside(each, known)):
            children.append(replace(each, name=each.attributes.get("name", ""), attributes={}, children=inside))
        else:
            attributes[each.attributes.get("name", "")] = _value(each)
    return replace(element, name=name, attributes=attributes, children=children)


def _inside(given: Element, known: Mapping[str, Element]) -> Iterator[Element]:
    """Yield the objects that a property, or a list in it, holds or refers to."""
    for name in _references(given):
        if name in known:
            # A bean that refers to itself ends here.
            yield _object(known[name], {key: bean for key, bean in known.items() if key != name})
    for child in given.children:
        if child.name in (*_COLLECTIONS, *_REFERENCES):
            yield from _inside(child, known)
        elif child.name != "value":
            yield _object(child, known)


def _references(element: Element) -> list[str]:
    names = ("ref",) if element.name == "property" else ("bean", "component-id", "local")
    return [element.attributes[key] for key in names if key in element.attributes]


def _object(element: Element, known: Mapping[str, Element]) -> Element:
    if not is_policy_bean(element):
        return _elements(element, known, frozenset())
    attributes = {key: text for key, text in element.attributes.items() if key not in OF_A_BEAN}
    children = []
    for each in element.children:
        name = each.attributes.get("name", "") if each.name == "property" else ""
        if name in IDENTITY:
            attributes[name] = _value(each)
        elif name == "destination":
            inside = [destination_of(one) for one in _inside(each, known)]
            children.append(replace(each, name=name, attributes={}, children=inside))
        else:
            children.append(each)
    return replace(element, name="redeliveryPolicy", attributes=attributes, children=children)


def _value(given: Element) -> str:
    value = given.first("value")
    return given.attributes.get("value", value.text if value else given.text)


def _class_of(bean: Element) -> str:
    kind = bean.attributes.get("class", "")
    return "" if "camel" in kind else kind.rpartition(".")[2]


def destination_of(element: Element) -> Element:
    """Return `<queue physicalName="...">` or `<topic>`, also for a bean of the class ActiveMQQueue or ActiveMQTopic."""
    if element.name != "bean":
        return element
    kind = "topic" if element.attributes.get("class", "").endswith("Topic") else "queue"
    parts = [*element.all("constructor-arg"), *element.all("argument"), *element.all("property")]
    name = next((each.attributes["value"] for each in parts if "value" in each.attributes), "")
    return replace(element, name=kind, attributes={"physicalName": name}, children=[])
