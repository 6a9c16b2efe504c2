# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Reads `jms.redeliveryPolicy.*` on a connection URL of ActiveMQ. Pure."""

from __future__ import annotations

import re
from urllib.parse import unquote_plus

from ..diagnostics import nearest
from .options import PROPERTIES, ActiveMQOptions, ReportProblem, read_options, read_switch, unknown

LONGEST_URL = 100_000  # characters
PREFIX = "jms.redeliveryPolicy."
NON_BLOCKING = "jms.nonBlockingRedelivery"
_ESCAPED = re.compile(r"&(?:amp;|#38;|#x26;)+", re.IGNORECASE)  # & as in XML, perhaps escaped more than once


def read_url(url: str, report: ReportProblem, where: str = "") -> tuple[ActiveMQOptions, str]:
    """Return the options of a URL, and their original spelling.

    The spelling leaves out the rest of the URL, which may hold a password.
    """
    given: dict[str, str] = {}
    kept: list[str] = []
    if escaped := _ESCAPED.search(url):
        report.doubt(
            f"{escaped[0]:.20} between two options is read as &",
            where=where or "URL",
            cure="Write & there: &amp; is its spelling inside XML",
        )
        url = _ESCAPED.sub("&", url)
    for part in _query(url, report, where).split("&"):
        name, _, value = part.partition("=")
        name = _decoded(name, report, where)
        if name.startswith(PREFIX):
            kept.append(part)
            _take(name.removeprefix(PREFIX), _decoded(value, report, where), given, report, where)
        elif name == NON_BLOCKING:
            kept.append(part)
            read_switch(_decoded(value, report, where), _join(where, name), report)
        elif PREFIX in name:
            right = name[name.index(PREFIX) :][:80]
            report.doubt(f"{_join(where, name)[:200]} is not read", cure=f"Write {right}, without what stands before")
        elif meant := _meant(name):
            report.problems.warn(f"{_join(where, name)[:200]} is not read: it is spelled {meant}")
    return read_options(given, where or "URL", report), "&".join(kept)


def misspelt(url: str) -> tuple[str, str] | None:
    """Return the first option that is nearly one of ActiveMQ's, without its value, and the right spelling."""
    for part in re.split("[?&]", _ESCAPED.sub("&", url[:LONGEST_URL])):
        name = unquote_plus(part.partition("=")[0])
        if "://" not in name and (meant := _meant(name)):
            return name[:80], meant
    return None


def _meant(name: str) -> str | None:
    # Different upper and lower case is a mistake too, because Java compares case.
    head, dot, rest = name.partition(".")
    if not dot or head.lower() != "jms" or name.startswith(PREFIX) or name == NON_BLOCKING:
        return None
    word, _, last = rest.partition(".")
    if nearest(rest, (NON_BLOCKING.partition(".")[2],)):
        return NON_BLOCKING
    if not nearest(word, ("redeliveryPolicy",), alike=0.75):  # prefetchPolicy is a different option
        return None
    return PREFIX + (nearest(last, PROPERTIES) or PROPERTIES[0])


def _take(name: str, value: str, given: dict[str, str], report: ReportProblem, where: str) -> None:
    if name not in PROPERTIES:
        what, cure = unknown(name, PROPERTIES)
        report.problems.add(what, where=_join(where, PREFIX + name[:80]), cure=cure, code="policy-key-unknown")
        return
    if given.get(name, value) != value:
        report.doubt(f"{PREFIX}{name} stands there twice, and the last one counts", where=where, cure="Leave one out")
    given[name] = value


def _query(url: str, report: ReportProblem, where: str) -> str:
    # In a composite, failover:(tcp://a,tcp://b)?..., the text in the parentheses belongs to the transports.
    head, bracket, tail = url.rpartition(")")
    if PREFIX in head:
        report.problems.add(
            f"{PREFIX}... inside the parentheses is an option of one transport",
            where=where,
            cure="Put it behind the closing parenthesis",
            code="policy-key-misplaced",
        )
    if not bracket and "?" not in tail and "=" in tail:
        return tail.strip()  # only the options
    return tail.partition("?")[2].strip()


def _decoded(text: str, report: ReportProblem, where: str) -> str:
    try:
        return unquote_plus(text, errors="strict")
    except UnicodeDecodeError:
        report.problems.add(
            "percent-encoded bytes that are no UTF-8", where=where or "URL", cure="Encode UTF-8", code="policy-encoding"
        )
        return ""


def _join(where: str, name: str) -> str:
    return f"{where}, {name}" if where else name
