# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Makes an authority of our own, and the certificates that it gives: good ones, expired ones, ones for another host."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import NamedTuple

STORE_PASSWORD = "not-a-secret"  # of the key stores that Java reads


class Certificate(NamedTuple):
    """Holds a certificate and its private key, as PEM files."""

    cert: Path
    key: Path

    def store(self) -> Path:
        """Return the same as a PKCS12 file, for Java."""
        made = self.cert.with_suffix(".p12")
        words = ["-export", "-in", str(self.cert), "-inkey", str(self.key), "-out", str(made)]
        _openssl("pkcs12", *words, "-passout", f"pass:{STORE_PASSWORD}")
        return made


class Authority:
    """Gives certificates, in `folder`; `cert` is its own."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder, self._name = folder, name
        self.cert, self._key = folder / f"{name}.pem", folder / f"{name}.key"
        words = ["-x509", "-newkey", "rsa:2048", "-nodes", "-days", "3650", "-subj", f"/CN=redeliver {name}"]
        words += ["-addext", "basicConstraints=critical,CA:true", "-addext", "keyUsage=critical,keyCertSign,cRLSign"]
        _openssl("req", *words, "-keyout", str(self._key), "-out", str(self.cert))

    def give(self, name: str, *, host: str = "IP:127.0.0.1", days: int = 30) -> Certificate:
        """Return a certificate for `host`; with negative `days` one that has expired."""
        made = Certificate(self._folder / f"{name}.pem", self._folder / f"{name}.key")
        request, extensions = self._folder / f"{name}.csr", self._folder / f"{name}.ext"
        extensions.write_text(f"subjectAltName={host}\n")
        subject = ["-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}", "-keyout", str(made.key)]
        _openssl("req", *subject, "-out", str(request))
        words = ["-req", "-in", str(request), "-CA", str(self.cert), "-CAkey", str(self._key), "-CAcreateserial"]
        words += ["-days", str(days), "-extfile", str(extensions), "-out", str(made.cert)]
        _openssl("x509", *words)
        return made

    def trust_store(self) -> Path:
        """Return a PKCS12 file with nothing but this authority, for Java."""
        made = self.cert.with_suffix(".trust.p12")
        if made.exists():
            return made
        words = ["-importcert", "-noprompt", "-alias", self._name, "-file", str(self.cert), "-keystore", str(made)]
        words += ["-storetype", "PKCS12", "-storepass", STORE_PASSWORD]
        subprocess.run(["keytool", *words], check=True, capture_output=True)
        return made


def _openssl(*words: str) -> None:
    subprocess.run(["openssl", *words], check=True, capture_output=True)
