# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Loads policies from a text, a URL or a file, in any of the languages.

This is the only module here that reads a file, and only when it gets a `Path`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from ..errors import ConfigError, PolicyError
from .destinations import PolicyMap
from .formats import LANGUAGES, READERS
from .model import RedeliveryPolicy, parse_texts_with

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
# The root elements that are read, and the language of each.
_ROOTS = {
    "beans": "activemq",
    "broker": "activemq",
    "redeliveryPlugin": "activemq",
    "redeliveryPolicyMap": "activemq",
    "redeliveryPolicy": "activemq",
    "connectionFactory": "activemq",
    "destinationPolicy": "activemq",
    "blueprint": "activemq",
    "dynamo-message-system": "patchbay",
    "patchbay": "patchbay",
    "patch-bay": "patchbay",
    "message-sink": "patchbay",
    "message-filter": "patchbay",
    "weblogic-jms": "weblogic",
    "template": "weblogic",
    "queue": "weblogic",
    "topic": "weblogic",
    "uniform-distributed-queue": "weblogic",
    "uniform-distributed-topic": "weblogic",
    "configuration": "artemis",
    "core": "artemis",
    "address-settings": "artemis",
    "address-setting": "artemis",
    "server": "artemis",
    "domain": "artemis",
}
# Parts of these: their language's reader reports where they belong.
_PARTS = {
    "brokerService": "activemq",
    "plugins": "activemq",
    "redeliveryPolicyEntries": "activemq",
    "policyMap": "activemq",
    "policyEntries": "activemq",
    "policyEntry": "activemq",
    "deadLetterStrategy": "activemq",
    "input-port": "patchbay",
    "input-destination": "patchbay",
    "redelivery": "patchbay",
    "redelivery-port": "patchbay",
    "delivery-failure-params": "weblogic",
    "delivery-params-overrides": "weblogic",
    "default-delivery-params": "weblogic",
    "deployment": "artemis",
    "redelivery-delay": "artemis",
    "max-delivery-attempts": "artemis",
    "dead-letter-address": "artemis",
}
# Roots of many products: the parts of a namespace that make them ours.
_SHARED = {
    "beans": ("springframework", "activemq"),
    "blueprint": ("blueprint", "activemq"),
    "broker": ("activemq", "springframework", "blueprint"),
    "configuration": ("urn:activemq", "urn:hornetq", "urn:jboss"),
    "core": ("urn:activemq", "urn:hornetq", "urn:jboss"),
    "deployment": ("urn:hornetq", "urn:jboss:messaging", "urn:jboss-messaging"),
    "server": ("urn:jboss:domain",),
    "domain": ("urn:jboss:domain",),
    **dict.fromkeys(("template", "queue", "topic"), ("weblogic", "bea.com")),
}
# The content that makes such a root ours if it has none of these namespaces.
_INSIDE = {
    "configuration": ("core", "address-settings", "address-setting", "persistence-enabled"),
    **dict.fromkeys(("deployment", "server", "domain"), ("core", "address-settings", "address-setting")),
    **dict.fromkeys(
        ("template", "queue", "topic"),
        ("delivery-failure-params", "delivery-params-overrides", "group-params", "sub-deployment-name"),
    ),
}
MARKED = 4096  # bytes in which UTF-16 is recognised
LARGEST = 40_000_000  # bytes of a file; a reader accepts less
_DECLARED = re.compile(rb"""<\?xml\s[^>]*?encoding\s*=\s*["']([A-Za-z0-9._-]+)["']""")
_ENCODINGS = (b"iso-8859-1", b"iso-8859-15", b"latin-1", b"windows-1252")
_NOTHING = " \t\r\n\f\v\ufeff\0"  # characters that a text may be full of without any content
_HALF = re.compile("[\ud800-\udfff]")  # a text with one of these cannot be sent or hashed
_INCLUDES = "http://www.w3.org/2001/XInclude"  # in a broker.xml of Artemis that is split into several files
_PROPERTIES = re.compile(r"^\s*a[A-Za-z]{7,24}\.", re.MULTILINE)  # addressSettings, perhaps misspelt
_NO_PROPERTIES = (b"JMSJCA.", b"jms.redeliveryPolicy.", b"</")  # in a .properties file, these show another language
_ODD_OPTION = re.compile(r"\bJMSJCA\s*\.\s*redelivery_?handling\s*[=:]", re.IGNORECASE)
_TOML = re.compile(r"^\s*(\[[\w.\"*# -]+\]|[\w.\"-]+\s*=)", re.MULTILINE)
_PATH = re.compile(r"[\w./\\:~-]+\.(xml|toml|txt|conf|cfg|policy|properties)|[~.]{0,2}/[\w./~-]+")


def load_policies(
    source: str | Path | Sequence[Path], language: str | None = None, *, strict: bool = False
) -> PolicyMap:
    """Return the policies of a text or URL (`str`) or of a file (`Path`); the language is detected by content.

    Several files override each other along a configuration path, the lowest first: only Patch Bay has that. Raises one
    PolicyError with file, line or element, what is wrong and the cure; ConfigError for a language that is not
    implemented.
    """
    given: object = source
    if isinstance(given, bytes) or not isinstance(given, str | Path | Sequence):
        raise PolicyError(
            f"{given!r:.200} is no policy text and no file",
            cure="Give a policy's text or a URL as a str, or the Path of a file",
            code="policy-missing",
        )
    if not isinstance(source, str | Path):
        return _read_layers(list(source), language, strict)
    if isinstance(source, str):
        return _read(source, language, strict)
    return policies_in(bytes_of(source), source, language, strict=strict)


def policy_of(given: str | Path | RedeliveryPolicy | PolicyMap | None) -> RedeliveryPolicy | PolicyMap:
    """Return what a user gave as a policy, as something with `.resolve(name, kind)`; None is the default policy.

    A `str` is a policy's text or a URL that carries one, a `Path` is a file. Raises PolicyError or ConfigError for any
    other value.
    """
    if given is None:
        return RedeliveryPolicy()
    if isinstance(given, RedeliveryPolicy | PolicyMap):
        return given
    if isinstance(given, str | Path):
        return load_policies(given)
    raise PolicyError(
        f"{given!r:.200} is no policy",
        cure="Give a policy's text, a RedeliveryPolicy, a PolicyMap, or the Path of a file",
        code="policy-missing",
    )


def _read_layers(files: list[Path], language: str | None, strict: bool) -> PolicyMap:
    if len(files) == 1:
        return load_policies(files[0], language, strict=strict)
    layers = []
    for file in files:
        if not isinstance(file, Path):
            raise PolicyError(f"{file!r:.200} is no file", cure="Give several files as Paths", code="policy-file")
        text = _text_of(bytes_of(file), file)
        try:
            found = language or detect(text)
        except PolicyError as error:
            error.where = f"{file}: {error.where}" if error.where else str(file)
            raise
        if found != "patchbay":
            cure = "Name one file; only Patch Bay's lie over each other"
            raise PolicyError(f"it is in {found:.80}", where=str(file), cure=cure, code="policy-encoding")
        layers.append((str(file), text))
    from .formats.patchbay.reader import read_layers

    return read_layers(layers, strict)


def _text_of(found: bytes, path: Path) -> str:
    try:
        # An editor ends the last line of a file; that newline is not part of the policy.
        return _decoded(found).rstrip("\r\n")
    except UnicodeDecodeError as error:
        what = f"not {error.encoding.upper()}, at byte {error.start}"
        raise PolicyError(what, where=str(path), cure="Save it as UTF-8", code="policy-encoding") from None
    except PolicyError as error:
        error.where = str(path)
        raise


def policies_in(found: bytes, path: Path, language: str | None = None, *, strict: bool = False) -> PolicyMap:
    """Return the policies in the file `path`, whose whole content is `found`.

    Raises errors as `load_policies` does. Pure.
    """
    if language is None and path.suffix == ".toml":
        language = "native"  # a pyproject.toml may hold any text, even another language's
    if language is None and path.suffix == ".properties" and not any(mark in found for mark in _NO_PROPERTIES):
        language = "artemis"  # even one without any redelivery settings
    text = _text_of(found, path)
    try:
        return _read(text, language, strict, path)
    except ConfigError as error:
        error.where = f"{path}: {error.where}" if error.where else str(path)
        raise


def parse(text: str, language: str | None = None, *, strict: bool = False) -> RedeliveryPolicy:
    """Return one policy from a text or URL. See RedeliveryPolicy.parse. Pure."""
    policies = _read(text, language, strict)
    if policies.entries:
        raise ConfigError(
            f"several policies, by destination: {', '.join(map(str, policies.entries[:3]))}",
            cure="Read them with load_policies(), and choose with .resolve(NAME)",
            code="policy-not-single",
        )
    return policies.default


def _read(text: str, language: str | None, strict: bool, path: Path | None = None) -> PolicyMap:
    if not isinstance(text, str):
        raise PolicyError(f"{text!r:.200} is no policy text", cure="Give a str", code="policy-missing")
    # only in JMSJCA, if that is named, an empty text is a policy
    if not text.strip(_NOTHING) and (path is not None or language != "jmsjca"):
        raise PolicyError("it is empty", cure="Write a policy, such as dead_after = 3", code="policy-missing")
    if half := _HALF.search(text):
        line = text.count("\n", 0, half.start()) + 1
        raise PolicyError(
            "half a character, U+D800 to U+DFFF",
            where=f"line {line}",
            cure="Read the text as UTF-8",
            code="policy-encoding",
        )
    chosen = detect(text) if language is None else language
    if chosen == "artemis" and path is not None and _INCLUDES in text:
        from .formats.artemis.reader import read_with_includes

        folder = path.parent
        return read_with_includes(text, strict, lambda parts: _text_below(folder, parts))
    if chosen in READERS:
        return READERS[chosen](text, strict)
    if chosen in LANGUAGES:
        built = ", ".join(READERS)
        raise ConfigError(
            f"the policy language {chosen} is not built yet",
            cure=f"Use one of: {built}",
            code="policy-language-unknown",
        )
    raise ConfigError(
        f"there is no policy language {chosen!r}",
        cure=f"Use one of: {', '.join(LANGUAGES)}",
        code="policy-language-unknown",
    )


def detect(text: str) -> str:
    """Return the language of a text, by its content. Raises PolicyError if it cannot be any. Pure."""
    if text.lstrip().lstrip("\ufeff").lstrip().startswith("<"):
        return _detect_xml(text)
    if "JMSJCA.redeliveryhandling=" in text:
        return "jmsjca"
    if odd := _ODD_OPTION.search(text):
        raise PolicyError(
            f"{odd[0]!r:.80} is not how JMSJCA's option is spelled",
            cure="Write JMSJCA.redeliveryhandling= exactly so, with the string right behind it",
            code="policy-key-unknown",
        )
    if "jms.redeliveryPolicy." in text or _has_misspelt_option(text):
        return "activemq"
    if _URL.match(text.lstrip()):
        raise PolicyError(
            "this URL carries no policy",
            cure="Add ?jms.redeliveryPolicy.maximumRedeliveries=7, as ActiveMQ spells it, "
            "or ?JMSJCA.redeliveryhandling=3:1000; 6:5000; 8:move(queue:dlq.$)",
            code="policy-not-recognized",
        )
    if looks_like_a_file(text):
        raise PolicyError(
            f"{text.strip()!r:.200} looks like a file, not like a policy",
            cure="Check that it exists; in Python, hand it over as a Path",
            code="policy-file",
        )
    if _PROPERTIES.search(text):
        from .formats.artemis.properties import looks_like_properties  # most programs never need Artemis

        if looks_like_properties(text):
            return "artemis"
    return "native" if _TOML.search(text) else "jmsjca"


def _has_misspelt_option(text: str) -> bool:
    """Return whether a URL has an option that is nearly one of ActiveMQ's.

    The reader of ActiveMQ reports its spelling.
    """
    if "://" not in text or "jms." not in text.lower():
        return False
    from .formats.activemq.url import misspelt  # most programs never need ActiveMQ

    return misspelt(text) is not None


def looks_like_a_file(text: str) -> bool:
    """Return whether this is the name of a file, and so a policy in no language. Pure."""
    return _PATH.fullmatch(text.strip()) is not None


def _detect_xml(text: str) -> str:
    # By the root element and its namespace, because a comment or a text inside may mention anything.
    from .formats.diagnostics import nearest
    from .formats.xml import Element, root_of
    from .formats.xml import parse as parse_xml  # most programs never need XML

    root: Element = root_of(text)
    language = _ROOTS.get(root.name) or _PARTS.get(root.name)
    ours = _SHARED.get(root.name)
    if ours and not any(part in root.namespace for part in ours) and (root.namespace or root.name in _INSIDE):
        # The file belongs to another product, unless it holds elements that only ours have.
        inside = parse_xml(text).children if root.name in _INSIDE else []
        if not any(nearest(child.name, _INSIDE[root.name], alike=0.8) for child in inside):
            language = None
    if language:
        return language
    near = nearest(root.name, _ROOTS, alike=0.8)
    meant = f"Did you mean <{near}>? " if near and near != root.name else ""
    namespace = f" of the namespace {root.namespace:.100}" if root.namespace else ""
    raise PolicyError(
        f"no policy of a known system in this XML: its root is <{root.name:.100}>{namespace}",
        where=root.where,
        cure=f"{meant}The roots that are read: {', '.join(_ROOTS)}; or name the language",
        code="policy-not-recognized",
    )


def bytes_of(path: Path) -> bytes:
    """Return the content of a file. Raises PolicyError if it cannot be read, or is too large for a policy."""
    try:
        if path.exists() and not path.is_file():  # a pipe would not open before another program writes into it
            raise _no_file(path)
        with path.open("rb") as file:
            found = file.read(LARGEST + 1)
    except OSError as error:
        raise _unreadable(path, error) from None
    if len(found) > LARGEST:
        cure = "Name a file that holds policies, and little else"
        raise PolicyError(f"more than {LARGEST} bytes", where=str(path), cure=cure, code="policy-too-large")
    return found


def _decoded(found: bytes) -> str:
    # A policy is UTF-8; an XML file may declare another encoding.
    encoding = "utf-16" if found.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig"
    declared = _DECLARED.match(found)
    start = found[:MARKED]
    if encoding == "utf-8-sig" and b"\0" in start and found.strip(b"\0"):
        half = start.count(b"\0") > len(start) // 3
        what = "every other byte is 0, as in UTF-16, which says so by a mark" if half else "a character of code 0 in it"
        raise PolicyError(
            what,
            cure="Save it as UTF-8" if half else "Take it out, or name a file with text in it",
            code="policy-encoding",
        )
    if declared and declared[1].lower() in _ENCODINGS:
        encoding = declared[1].decode("ascii")
    elif declared and declared[1].lower() not in (b"utf-8", b"us-ascii", b"ascii"):
        raise PolicyError(
            f"it is in {declared[1].decode('ascii'):.40}",
            cure="Save it as UTF-8, and say so inside",
            code="policy-encoding",
        )
    # As when a text file is read: one kind of line end.
    return found.decode(encoding).replace("\r\n", "\n").replace("\r", "\n")


def _text_below(folder: Path, parts: tuple[str, ...]) -> str:
    path = folder.joinpath(*parts)
    try:
        below = path.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError):  # links that form a cycle
        below = False
    if not below:
        raise PolicyError(
            "a link that leads elsewhere",
            cure="Name a file below the folder of the one that includes it",
            code="policy-include",
        )
    try:
        return _decoded(bytes_of(path))
    except UnicodeDecodeError as error:
        raise PolicyError(
            f"not {error.encoding.upper()}, at byte {error.start}", cure="Save it as UTF-8", code="policy-encoding"
        ) from None


def _no_file(path: Path) -> PolicyError:
    kinds = {"a directory": path.is_dir(), "a pipe": path.is_fifo(), "a socket": path.is_socket()}
    kind = next((kind for kind, fits in kinds.items() if fits), "a device")
    return PolicyError(
        f"it is {kind}, and no file",
        where=str(path),
        cure="Name a file, or - for the standard input",
        code="policy-file",
    )


def _unreadable(path: Path, error: OSError) -> PolicyError:
    if isinstance(error, FileNotFoundError):
        return PolicyError("there is no such file", where=str(path), cure="Check the path", code="policy-file")
    reason = getattr(error, "strerror", None) or type(error).__name__
    return PolicyError(
        f"cannot be read: {reason}",
        where=str(path),
        cure="Name a file that you may read",
        code="policy-file",
    )


parse_texts_with(parse)
