# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Reads the certificate files that a broker URL names, and reports which of them cannot be used, and why."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path

from ..errors import ConfigError


class _Locked(Exception):
    """Reports that the key needs a passphrase."""


def read_tls_files(options: Mapping[str, str], where: str) -> ssl.SSLContext:
    """Return a context that trusts the authorities in `ca` (else the system's), and shows `cert` with its `key`.

    Raises ConfigError, at `where`, whose text names the option and its file. Reads the files anew each time.
    """
    if "key" in options and "cert" not in options:
        raise ConfigError(
            "key= without cert=", where=where, cure="Name the certificate too: cert=FILE", code="tls-file-not-usable"
        )
    for name in ("ca", "cert", "key"):
        if name in options:
            _read(name, options[name], where)
    try:
        context = ssl.create_default_context(cafile=options.get("ca"))
    except OSError as error:  # ssl.SSLError is an OSError
        raise _unusable("ca", options.get("ca", ""), "is no file of certificates", error, where) from None
    if "cert" in options:
        _show_certificate(context, options["cert"], options.get("key"), where)
    return context


def _read(name: str, file: str, where: str) -> None:
    """Read a file, and report which one cannot be read.

    Python's `ssl` does not report which file it cannot open, and would wait on a pipe for ever.
    """
    try:
        if Path(file).exists() and not Path(file).is_file():
            raise ConfigError(
                f"{name}={file} is no file", where=where, cure="Name a PEM file", code="tls-file-not-usable"
            )
        Path(file).read_bytes()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        cure = "Let this user read it" if isinstance(error, PermissionError) else "Check its name"
        raise ConfigError(
            f"{name}={file} cannot be read: {why}", where=where, cure=cure, code="tls-file-not-usable"
        ) from None


def _show_certificate(context: ssl.SSLContext, cert: str, key: str | None, where: str) -> None:
    def refuse() -> str:  # otherwise OpenSSL would ask at the terminal
        raise _Locked

    try:
        context.load_cert_chain(cert, key, password=refuse)
    except _Locked:
        cure = "Give it without one, readable for this user only"
        raise ConfigError(
            f"key={key or cert} has a passphrase", where=where, cure=cure, code="tls-file-not-usable"
        ) from None
    except OSError as error:
        if "KEY_VALUES_MISMATCH" in str(error):
            cure = "Name the key that this certificate was made for"
            raise ConfigError(
                f"key={key or cert} is not the key of cert={cert}", where=where, cure=cure, code="tls-file-not-usable"
            ) from None
        if not _holds_certificate(cert):
            raise _unusable("cert", cert, "is no PEM file of a certificate", error, where) from None
        raise _unusable("key", key or cert, "is no PEM file of a private key", error, where) from None


def _holds_certificate(file: str) -> bool:
    """Return whether OpenSSL can take a certificate from this file."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(file)
    except OSError:
        return False
    return True


def _unusable(name: str, file: str, what: str, error: OSError, where: str) -> ConfigError:
    reason = getattr(error, "reason", None)
    more = f" ({reason})" if reason and reason != "(null)" else ""
    return ConfigError(f"{name}={file} {what}{more}", where=where, cure=f"Check {name}=", code="tls-file-not-usable")
