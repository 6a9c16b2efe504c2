# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Makes text fit to leave the process: credentials become `***`, the length fits, and UTF-8 can encode it.

All functions are linear in the length of the text: no pattern here reads the same stretch twice, and text without a
revealing word is only searched for those words. In doubt too much is hidden rather than too little.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

MARK = "***"
ELLIPSIS = "…"
_LONGEST_SECRET = 8192  # characters within which the end of a quoted secret is searched

_WORDS = (
    *("password", "passwd", "passphrase", "passcode", "pwd", "secret", "token", "credential"),
    *("authorization", "cookie", "sig"),
    *(f"{what}{glue}key" for what in ("api", "access", "account", "private") for glue in ("", "_", "-", " ")),
)
# The word that reveals a secret, what may be attached to its end, and what leads over to the value.
# Quantifiers are possessive (`++`): they never give back what they have matched.
_KEY = re.compile(
    r"(?<![a-z])sig(?==)|(?:password|passwd|passphrase|passcode|pwd|secret|token|credential|authorization|cookie"
    r"|signature|(?:api|access|account|private)[_ -]?key)"
)
_LEAD = re.compile(
    r"(?:s?[_.-][\w.-]{0,40}+|[A-Z][A-Za-z0-9]{0,40}+|s?\d{0,4}+)"
    r"(?:(?:\\{0,4}[\"'])?(?P<sep>[ \t]{0,8}(?:=>|:=|[=:])[ \t]{0,8}|>|%3[dD])"
    r"|\\{0,4}[\"'],[ \t]{0,8}(?=[bBuU]?\\{0,4}[\"']))"  # a pair: ('password', 'value')
)
_LONGEST_LEAD = 64  # characters: a name deeper inside a hidden value has its own value inside, too
_QUOTE = re.compile(r"[bBrRuUfF]{0,2}(\\{0,4}[\"'])")
_BARE = re.compile(
    r"(?:(?:[Bb]earer|[Bb]asic|[Dd]igest|Token)[ \t]{1,8})?"
    r"(?:[^\s;&\"'<\\]|[\"'](?=\w)|<(?!/)|\\(?![\"'nrt]))++"
)
_ELEMENT = re.compile(r"([^<\r\n]{1,512}+)</")
# The value of a header that fills its line: to a quote that closes something around it. Quotes inside it open a part.
_LINE = re.compile(r"(?:[^\r\n\"'\\]|\\{0,4}[\"'](?=\w|[,;][ \t]{0,8}\w{1,40}+=))++")
_HARMLESS = frozenset({"", "{", "[", "None", "null", "True", "False", "true", "false", MARK})

_USER = re.compile(r"([^\s/?#:\"'<>]*+):")
_AUTHORITY = re.compile(r"[^\s/?#\"'<>]*+")
_PORT = re.compile(r"\d{1,5}(?![^\s/?#\"'<>,;)\]}])")
_WORD = re.compile(r"\S*+")

_SCHEME = re.compile(r"(?<![A-Za-z])(bearer|basic)([ \t]{1,8})([\w.~+/=-]{6,}+)", re.IGNORECASE)
_PEM = re.compile(r"(-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY[A-Z ]{0,10}-----)(?s:.*?)(-----END [A-Z0-9 ]{0,60}-----|\Z)")
_SHAPES = re.compile(  # secrets with a recognisable shape of their own; each can begin only where a word begins
    r"(?<![\w-])(?:eyJ[\w-]{4,}+\.[\w-]{4,}+(?:\.[\w-]*+){0,3}"
    r"|(?:AKIA|ASIA|AROA|AIDA)[A-Z0-9]{12,}+|gh[pousr]_[A-Za-z0-9]{16,}+|github_pat_\w{16,}+"
    r"|glpat-[\w-]{16,}+|xox[abeprs]-[\w-]{10,}+|[srp]k_(?:live|test)_\w{10,}+|AIza[\w-]{30,}+)"
)
_STEERING = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_SHAPE_HINTS = ("eyJ", "AKIA", "ASIA", "AROA", "AIDA", "gh", "glpat-", "xox", "k_live_", "k_test_", "AIza")


def redact(text: str) -> str:
    """Return `text` with every credential replaced by `***`; the name before it shows what was hidden.

    Recognised: passwords in URLs, `name=value`, `name: value` and JSON where the name indicates a secret,
    `Authorization` headers, JWTs, AWS-like keys, tokens of known makers, PEM private keys, connection strings.
    Thread-safe; linear time; a second call changes nothing more.
    """
    if "-----BEGIN " in text:
        text = _PEM.sub(rf"\1{MARK}\2", text)
    if "://" in text:
        head, *rest = text.split("://")
        text = "://".join([head, *map(_without_password, rest)])
    lowered = text.lower()
    if any(word in lowered for word in _WORDS):
        text = "".join(_without_values(text, lowered))
    if "bearer" in lowered or "basic" in lowered:
        text = _SCHEME.sub(_without_token, text)
    if any(hint in text for hint in _SHAPE_HINTS):
        text = _SHAPES.sub(MARK, text)
    return text


def redact_bytes(data: bytes) -> bytes:
    """Return bytes that are shown in hex, with every credential in them that is ASCII replaced by `***`."""
    return redact(data.decode("latin-1")).encode("latin-1")


def redact_url(url: str) -> str:
    """Return a URL, or several separated by commas, for messages and logs.

    User and hosts stay; password and secrets are hidden.
    """
    return redact(clean(url).strip().replace(" ", "%20"))


def visible(text: str, *, lines: bool = False) -> str:
    """Return `text` with everything that would steer a terminal spelled out.

    These are control characters, marks of direction, and lone surrogates.

    `lines` keeps line ends and tabs. Thread-safe; linear time.
    """
    return _STEERING.sub(lambda c: c[0] if lines and c[0] in "\n\t" else ascii(c[0])[1:-1], text)


def one_line(text: str, max_bytes: int) -> str:
    """Return at most `max_bytes` of UTF-8 that begin no other line and move no terminal's cursor."""
    return trim_utf8("".join(c if c.isprintable() else " " for c in text[: 2 * max_bytes]), max_bytes)


def safe(text: str) -> str:
    """Return text that is clean and redacted. Thread-safe; linear time."""
    return redact(clean(text))


def label(text: str, max_bytes: int = 256) -> str:
    """Return a short text that is clean, at most `max_bytes` of UTF-8, such as the name of a class or a frame.

    Thread-safe.
    """
    return trim_utf8(clean(text), max_bytes)


def labels(texts: Sequence[str]) -> list[str]:
    """Return each of several short texts as `label` does."""
    return [label(text) for text in texts]


def clean(text: str) -> str:
    """Return text that UTF-8 and every store can carry: lone surrogates and NUL are spelled out in letters."""
    if "\x00" in text:
        text = text.replace("\x00", "\\x00")
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace").decode()
    return text


def trim_utf8(text: str, max_bytes: int) -> str:
    """Return at most `max_bytes` of UTF-8, cut between characters; a cut is marked with `…` if that fits."""
    if len(text) <= max_bytes and text.isascii():
        return text
    raw = text[: max_bytes + 1].encode("utf-8", "backslashreplace")
    if len(raw) <= max_bytes and len(text) <= max_bytes:
        return raw.decode()
    mark = ELLIPSIS if max_bytes >= len(ELLIPSIS.encode()) else ""
    return raw[: max(0, max_bytes - len(mark.encode()))].decode("utf-8", "ignore") + mark


def trim_middle(text: str, max_bytes: int, tail_share: float = 0.75) -> str:
    """Return at most `max_bytes` of UTF-8, the middle cut out and marked; `tail_share` of the rest is the end."""
    raw = text.encode("utf-8", "backslashreplace")
    if len(raw) <= max_bytes:
        return raw.decode()
    mark = f"\n{ELLIPSIS} {len(raw)} bytes, cut here {ELLIPSIS}\n"
    room = max(0, max_bytes - len(mark.encode()))
    tail = int(room * tail_share)
    head = raw[: room - tail].decode("utf-8", "ignore")
    return head + mark + (raw[len(raw) - tail :].decode("utf-8", "ignore") if tail else "")


def _without_password(rest: str) -> str:
    """Return the text after a `://` with its password hidden. Passwords with raw `/`, `?`, `#` or quotes exist."""
    user = _USER.match(rest)
    if user is None:
        return rest
    start = user.end()
    authority = _AUTHORITY.match(rest, start)
    at = rest.rfind("@", start, authority.end() if authority else start)
    if at < 0:
        if _PORT.match(rest, start):
            return rest
        word = _WORD.match(rest, start)
        at = rest.rfind("@", start, word.end() if word else start)
    return rest if at < 0 else f"{rest[:start]}{MARK}{rest[at:]}"


def _without_values(text: str, lowered: str) -> Iterator[str]:
    """Yield the pieces of `text` with the values behind revealing names replaced."""
    if len(lowered) != len(text):  # some capitals grow when lowered; then positions would not agree
        lowered = re.sub("[A-Z]+", lambda found: found[0].lower(), text)
    done = 0
    for key in _KEY.finditer(lowered):
        if key.end() + _LONGEST_LEAD < done:
            continue
        lead = _LEAD.match(text, key.end())
        if lead is None:
            continue
        if lead["sep"] == ">":  # leads to a value only in XML
            element = _ELEMENT.match(text, lead.end())
            start, end = element.span(1) if element else (0, 0)
        else:
            start, end = _value(text, lead.end(), whole_line=key[0] in ("authorization", "cookie"))
        if end <= done or text[start:end].rstrip(",:;)]}") in _HARMLESS:
            continue
        if start > done or not done:  # a name inside a hidden value may have a value that goes on behind it
            yield text[done:start]
            yield MARK
        done = end
    yield text[done:]


def _value(text: str, at: int, *, whole_line: bool) -> tuple[int, int]:
    """Return where the secret that begins at `at` starts and ends, its quotes not counted."""
    if text[at : at + 1] in ("{", "["):
        return at, _nested_end(text, at)
    quote = _QUOTE.match(text, at)
    if quote is not None:
        return quote.end(), _closing(text, quote.end(), quote[1])
    found = (_LINE if whole_line else _BARE).match(text, at)
    if found is None:
        return at, at
    end = found.end()
    while not whole_line and end > at and text[end - 1] in ",)]}":
        end -= 1
    return at, end


def _nested_end(text: str, at: int) -> int:
    """Return the position behind the bracket that closes the one at `at`.

    If none does, return the end of the searched text.
    """
    limit, depth = min(len(text), at + _LONGEST_SECRET), 0
    place = at
    while place < limit:
        found = text[place]
        if found == '"' or (found == "'" and text[place - 1] in "{[(,: "):
            place = _closing(text, place + 1, found)
        elif found in "{[":
            depth += 1
        elif found in "}]":
            depth -= 1
            if not depth:
                return place + 1
        place += 1
    return limit


def _closing(text: str, at: int, quote: str) -> int:
    """Return the position of the closing quote, or the end of the line or of the searched text if there is none."""
    limit = min(len(text), at + _LONGEST_SECRET)
    place = text.find(quote, at, limit)
    while len(quote) == 1 and place > at and _escaped(text, place, at):
        place = text.find(quote, place + 1, limit)
    if place >= 0:
        return place
    newline = text.find("\n", at, limit)
    return newline if newline >= 0 else limit


def _escaped(text: str, place: int, floor: int) -> bool:
    """Return whether an odd number of backslashes stands before `place`."""
    start = place
    while start > floor and text[start - 1] == "\\":
        start -= 1
    return (place - start) % 2 == 1


def _without_token(found: re.Match[str]) -> str:
    """Return a match of `Bearer` or `Basic` with its token hidden.

    Both are English words too, so only what looks like a token is hidden.
    """
    token = found[3]
    telling = any(c.isdigit() or c in "=+_/" for c in token) or token[1:] != token[1:].lower() or len(token) > 24
    return f"{found[1]}{found[2]}{MARK}" if telling else found[0]
