# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""The policy languages: one module each, and the table of them.

A reader takes the text and `strict`, and returns a policy or raises one PolicyError. To add a language: write
its module, and put its reader into READERS.
"""

from __future__ import annotations

from collections.abc import Callable

from ..model import RedeliveryPolicy
from . import jmsjca

Reader = Callable[[str, bool], RedeliveryPolicy]

LANGUAGES = ("jmsjca", "activemq", "patchbay", "weblogic", "artemis", "native")
READERS: dict[str, Reader] = {"jmsjca": jmsjca.read}
