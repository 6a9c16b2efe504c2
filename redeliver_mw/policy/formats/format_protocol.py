# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""The shapes that the modules of the languages share: what a reader and a writer are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..destinations import PolicyMap

FormatReader = Callable[[str, bool], PolicyMap]  # text, strict; raises one PolicyError


@dataclass(frozen=True)
class Conversion:
    """A text in the target's language, and, entry by entry, what that language cannot say.

    `names_nothing`: the text says nothing of any destination that was named, so that it is no policy of theirs.
    """

    text: str
    lost: tuple[str, ...] = ()
    names_nothing: bool = False


FormatWriter = Callable[[PolicyMap], Conversion]
