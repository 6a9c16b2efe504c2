# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Holds the policy languages, one module each, and the tables of them.

A reader takes the text and `strict`, and returns a PolicyMap or raises one PolicyError; a writer takes a PolicyMap. To
add a language, write its module, and put its functions into READERS and WRITERS. Writers of a language without arms
never get policies with arms. A module is loaded with the first text of its language: some import XML, which takes a
tenth of a second and megabytes that most programs never need.
"""

from __future__ import annotations

from importlib import import_module
from typing import cast

from ..destinations import PolicyMap
from .format_protocol import Conversion, FormatReader, FormatWriter
from .without_arms import without_arms

LANGUAGES = ("jmsjca", "activemq", "patchbay", "weblogic", "artemis", "native")


def _reader(module: str, name: str = "read") -> FormatReader:
    def read(text: str, strict: bool) -> PolicyMap:
        return cast(FormatReader, getattr(import_module(f".{module}", __name__), name))(text, strict)

    return read


def _writer(module: str, name: str = "write") -> FormatWriter:
    def write(policies: PolicyMap) -> Conversion:
        return cast(FormatWriter, getattr(import_module(f".{module}", __name__), name))(policies)

    return write


READERS: dict[str, FormatReader] = {
    "activemq": _reader("activemq.reader"),
    "weblogic": _reader("weblogic.reader"),
    "artemis": _reader("artemis.reader"),
    "jmsjca": _reader("jmsjca.reader", "read_map"),
    "native": _reader("native.reader"),
    "patchbay": _reader("patchbay.reader"),
}
WRITERS: dict[str, FormatWriter] = {
    "artemis": without_arms(_writer("artemis.writer")),
    "weblogic": without_arms(_writer("weblogic.writer")),
    "activemq": without_arms(_writer("activemq.reader")),
    "jmsjca": without_arms(_writer("jmsjca.writer")),
    "native": _writer("native.writer"),
    "patchbay": without_arms(_writer("patchbay.writer")),
}
# Languages that have a second way to write names, with the prefixes of JMS.
WRITERS_WITH_PREFIXES: dict[str, FormatWriter] = {
    "artemis": without_arms(_writer("artemis.writer", "write_with_prefixes"))
}
# Languages that write a policy under the name of one destination, and leave all others alone.
WRITERS_OF_ONE: dict[str, FormatWriter] = {
    "artemis": without_arms(_writer("artemis.writer", "write_one")),
    "activemq": without_arms(_writer("activemq.writer", "write_one")),
    "native": _writer("native.writer", "write_one"),
    "weblogic": WRITERS["weblogic"],
    "patchbay": WRITERS["patchbay"],
}
WRITERS_OF_ONE_WITH_PREFIXES: dict[str, FormatWriter] = {
    "artemis": without_arms(_writer("artemis.writer", "write_one_with_prefixes"))
}

__all__ = [
    "LANGUAGES",
    "READERS",
    "WRITERS",
    "WRITERS_OF_ONE",
    "WRITERS_OF_ONE_WITH_PREFIXES",
    "WRITERS_WITH_PREFIXES",
    "Conversion",
    "FormatReader",
    "FormatWriter",
]
