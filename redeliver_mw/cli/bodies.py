# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Shows a letter's body as JSON, text or hex, or what a function of the user's makes of it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple, cast

import typer

from ..errors import ConfigError
from ..redaction import redact
from .output import body_of, plain

Decode = Annotated[
    str | None,
    typer.Option("--decode", metavar="MODULE:FUNCTION", help="Show what this function returns for the body's bytes"),
]
Body = Annotated[str | None, typer.Option("--body", metavar="FORM", help="json, text or hex; else what suits the body")]

Decoder = Callable[[bytes], object]


class Decoded(NamedTuple):
    """Holds what a function has made of a body: a text for people, or the error that it raised."""

    text: str
    error: str = ""


def decoder_of(given: str | None) -> Decoder | None:
    """Return the function that --decode names, with the current folder on the path. Raises ConfigError."""
    if given is None:
        return None
    from ..dead_letters.edits.user_functions import load_function

    sys.path.insert(0, os.getcwd())
    found: Any = load_function(given, "--decode")
    return cast(Decoder, found)


def check_form(form: str | None) -> None:
    """Raise ConfigError for a form that does not exist."""
    from ..operations.bodies import BODY_FORMS

    if form is not None and form not in BODY_FORMS:
        raise ConfigError(
            f"there is no form {form!r}",
            where="--body",
            cure=f"Write one of {', '.join(BODY_FORMS)}",
            code="option-value",
        )


def decoded(body: bytes, decoder: Decoder) -> Decoded:
    """Return what a function makes of a body, without secrets. An error of the function is reported."""
    try:
        found = decoder(body)
        if isinstance(found, bytes | bytearray | memoryview):
            return Decoded(body_of(bytes(found))["body"])
        if isinstance(found, str):
            return Decoded(redact(found))
        try:
            text = json.dumps(found, ensure_ascii=False, indent=2, default=repr)
        except (TypeError, ValueError, RecursionError):
            text = repr(found)
    except (Exception, SystemExit) as error:
        return Decoded("", redact(" ".join(f"{type(error).__name__}: {error}".split())))
    return Decoded(redact(text))


def body_text(body: bytes, form: str | None) -> str:
    """Return a body for people, without secrets. Raises ConfigError if the body has not this form."""
    from ..operations.bodies import BODY_FORMS, form_of, text_of

    wanted = next((one for one in BODY_FORMS if one == form), None)
    if wanted is None and form_of(body) == "hex":
        return f"{body_of(body)['body']} (hex)"
    return redact(text_of(body, wanted or form_of(body)))


def body_as_json(body: bytes, decoder: Decoder | None) -> dict[str, str]:
    """Return the fields of a body in JSON, with those of `--decode` if there is one."""
    fields = body_of(body)
    if decoder is not None:
        found = decoded(body, decoder)
        fields |= {"decode_error": found.error} if found.error else {"decoded": found.text}
    return fields


def print_body(body: bytes, form: str | None, decoder: Decoder | None) -> bool:
    """Print a body, or what a function makes of it. Return whether the function, if there is one, has not failed."""
    found = None if decoder is None else decoded(body, decoder)
    if found is not None and not found.error:
        print(f"\n{plain(found.text, lines=True)}")
        return True
    print(f"\n{plain(body_text(body, form), lines=True)}")
    if found is not None:
        print(f"--decode: the function raises {plain(found.error)}; this is the body as it is", file=sys.stderr)
    return found is None
