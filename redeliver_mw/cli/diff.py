# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Implements `redeliver dead diff`: compares two letters of a store."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from ..redaction import redact
from .arguments import Json
from .bodies import Body, check_form
from .output import plain, print_json, print_table
from .store import StoreUrl, opened

if TYPE_CHECKING:
    from ..operations.diff import Difference, LetterDiff

First = Annotated[str, typer.Argument(metavar="ID", help="A letter; the beginning of its id is enough")]
Second = Annotated[str, typer.Argument(metavar="OTHER", help="Another letter")]


def diff(first: First, second: Second, body: Body = None, store: StoreUrl = None, as_json: Json = False) -> None:
    """Compare two letters of a store: what is known of them, their headers, and their bodies line by line."""
    from ..operations.bodies import BODY_FORMS
    from ..operations.diff import diff as compare

    check_form(body)
    form = next((one for one in BODY_FORMS if one == body), None)
    with opened(store) as there:
        found = compare(there, first, second, form)
    if as_json:
        print_json(
            {
                "first": found.first.dl_id,
                "second": found.second.dl_id,
                "fields": [asdict(one) for one in found.fields],
                "headers": [asdict(one) for one in found.headers],
                "body_form": found.form,
                "body": list(found.body),
                "hidden": found.hidden,
                "cut": found.cut,
                "rest_differs": found.rest_differs,
                "head_differs": found.head_differs,
                "equal": found.equal,
            }
        )
    else:
        _print(found)


def _print(found: LetterDiff) -> None:
    one, other = found.first.dl_id, found.second.dl_id
    for kind, differences in (("field", found.fields), ("header", found.headers)):
        if differences:
            print_table((kind, plain(one), plain(other)), [_row(each) for each in differences])
    if found.head_differs:
        print("their headers are alike; another property, or a part of a header that is not listed, differs")
    if found.body:
        print(f"body, as {found.form}:")
        for line in found.body:
            print(plain(line))
    elif found.hidden:
        print("body: they differ only where a secret is hidden")
    elif not found.rest_differs:
        print("body: they are equal")
    if found.cut:
        rest = "differ" if found.rest_differs else "are equal"
        print(f"of the bodies {found.cut} bytes were compared line by line; the bytes after them {rest}")


def _row(each: Difference) -> tuple[str, str, str]:
    first, second = ("" if text is None else plain(redact(text)) for text in (each.first, each.second))
    return plain(each.name), first, second
