# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""The policy languages: one module each, and the tables of them.

A reader takes the text and `strict`, and returns a PolicyMap or raises one PolicyError; a writer takes a
PolicyMap. To add a language: write its module, and put its functions into READERS and WRITERS. Writers of a
language that has no arms do not see any.
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
from .armless import armless
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
    "artemis": armless(artemis_writer.write),
    "weblogic": armless(weblogic_writer.write),
    "activemq": armless(activemq.write),
    "jmsjca": armless(jmsjca_writer.write),
    "native": native_writer.write,
    "patchbay": armless(patchbay_writer.write),
}

__all__ = ["LANGUAGES", "READERS", "WRITERS", "Reader", "Writer", "Written"]
