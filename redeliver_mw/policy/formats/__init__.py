# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""The policy languages: one module each, and the tables of them.

A reader takes the text and `strict`, and returns a PolicyMap or raises one PolicyError; a writer takes a
PolicyMap. To add a language: write its module, and put its functions into READERS and WRITERS. Writers of a
language that has no arms do not see any. A module is loaded with the first text of its language: some bring
XML along, which takes a tenth of a second and megabytes that most programs never need.
"""

from __future__ import annotations

from importlib import import_module
from typing import cast

from ..destinations import PolicyMap
from .armless import armless
from .written import Reader, Writer, Written

LANGUAGES = ("jmsjca", "activemq", "patchbay", "weblogic", "artemis", "native")


def _reader(module: str, name: str = "read") -> Reader:
    def read(text: str, strict: bool) -> PolicyMap:
        return cast(Reader, getattr(import_module(f".{module}", __name__), name))(text, strict)

    return read


def _writer(module: str) -> Writer:
    def write(policies: PolicyMap) -> Written:
        return cast(Writer, import_module(f".{module}", __name__).write)(policies)

    return write


READERS: dict[str, Reader] = {
    "activemq": _reader("activemq"),
    "weblogic": _reader("weblogic"),
    "artemis": _reader("artemis"),
    "jmsjca": _reader("jmsjca", "read_map"),
    "native": _reader("native"),
    "patchbay": _reader("patchbay"),
}
WRITERS: dict[str, Writer] = {
    "artemis": armless(_writer("artemis_writer")),
    "weblogic": armless(_writer("weblogic_writer")),
    "activemq": armless(_writer("activemq")),
    "jmsjca": armless(_writer("jmsjca_writer")),
    "native": _writer("native_writer"),
    "patchbay": armless(_writer("patchbay_writer")),
}

__all__ = ["LANGUAGES", "READERS", "WRITERS", "Reader", "Writer", "Written"]
