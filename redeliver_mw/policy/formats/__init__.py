# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""The policy languages: one module each, and the tables of them.

A reader takes the text and `strict`, and returns a PolicyMap or raises one PolicyError; a writer takes a
PolicyMap. To add a language: write its module, and put its functions into READERS and WRITERS.
"""

from __future__ import annotations

from . import (
    activemq,
    artemis,
    artemis_writer,
    jmsjca,
    jmsjca_writer,
    native,
    native_writer,
    patchbay,
    patchbay_writer,
    weblogic,
    weblogic_writer,
)
from .written import Reader, Writer, Written

LANGUAGES = ("jmsjca", "activemq", "patchbay", "weblogic", "artemis", "native")
READERS: dict[str, Reader] = {
    "activemq": activemq.read,
    "weblogic": weblogic.read,
    "artemis": artemis.read,
    "jmsjca": jmsjca.read_map,
    "native": native.read,
    "patchbay": patchbay.read,
}
WRITERS: dict[str, Writer] = {
    "artemis": artemis_writer.write,
    "weblogic": weblogic_writer.write,
    "activemq": activemq.write,
    "jmsjca": jmsjca_writer.write,
    "native": native_writer.write,
    "patchbay": patchbay_writer.write,
}

__all__ = ["LANGUAGES", "READERS", "WRITERS", "Reader", "Writer", "Written"]
