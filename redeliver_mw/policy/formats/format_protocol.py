# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Defines the interfaces that the modules of the languages share: readers and writers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..destinations import PolicyMap

FormatReader = Callable[[str, bool], PolicyMap]  # text, strict; raises one PolicyError


@dataclass(frozen=True)
class Conversion:
    """Holds a text in the target's language, and, entry by entry, what that language cannot express.

    `names_nothing`: the text covers none of the named destinations, so that it is not a policy for them.
    """

    text: str
    lost: tuple[str, ...] = ()
    names_nothing: bool = False


FormatWriter = Callable[[PolicyMap], Conversion]
