# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Gets a broker onto this machine: Debian packages, and small Debian systems unpacked into a cache folder.

Everything here is idempotent, safe against a second process doing the same, and says on stderr what it does.
BrokerMissing, with the cure, tells of what cannot be done.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

#: A mount namespace of one's own, in which everything mounted ends with its last process. Needs root.
OWN_MOUNTS = ("unshare", "--mount", "--propagation", "private")
_POLICY = "/usr/sbin/policy-rc.d"


class BrokerMissing(Exception):
    """Tells of a broker that cannot be had here: `reason`, and `cure`, which is what the reader can do about it."""

    def __init__(self, reason: str, cure: str) -> None:
        super().__init__(f"{reason}. {cure}")
        self.reason = reason
        self.cure = cure


def say(text: str) -> None:
    print(f"brokers: {text}", file=sys.stderr, flush=True)


def cache_folder() -> Path:
    """Return `REDELIVER_CACHE`, else `redeliver-mw` under XDG's cache folder; make the folder when it is absent."""
    base = os.environ.get("REDELIVER_CACHE")
    xdg = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = (Path(base).expanduser().absolute() if base else xdg / "redeliver-mw") / "brokers"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def only_one(name: str) -> Iterator[None]:
    """Let one process in at a time; others wait, and find the work done if there was some.

    The kernel frees the lock if its holder dies.
    """
    with open(cache_folder() / f"{name}.lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"another process has {name}; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def root_prefix(purpose: str, cure: str) -> list[str]:
    """Return what to put before a command to run it as root: nothing, or `sudo -n`. Raises BrokerMissing."""
    if os.geteuid() == 0:
        return []
    sudo = ["sudo", "-n"]
    if shutil.which("sudo") and not subprocess.run([*sudo, "true"], check=False, capture_output=True).returncode:
        return sudo
    raise BrokerMissing(f"{purpose} needs root, or sudo without a password", cure)


def run(argv: Sequence[str], what: str, cure: str, progress: bool = False, causes: tuple[str, ...] = ()) -> None:
    """Run a command to its end.

    If the command fails, BrokerMissing is raised with its last lines. `progress`: print one line every 5 seconds.
    `causes`: how lines begin that tell why it failed, for a program that says more after them.
    """
    # If we are interrupted the pipe closes, and the child, root's or not, ends at its next line.
    env = os.environ | {"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
    began = told = time.monotonic()
    last: list[str] = []
    why: list[str] = []
    with subprocess.Popen(
        argv, env=env, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            last = [*last[-4:], line.strip()]
            if line.startswith(causes) and line.strip() not in causes:
                why.append(line.strip())
            if progress and time.monotonic() - told >= 5:
                told = time.monotonic()
                say(f"{what}: {told - began:.0f} s, {line.strip()[:80]}")
    if process.returncode:
        raise BrokerMissing(f"{what} failed: " + " | ".join(filter(None, why[:2] or last)), cure)


def apt_install(package: str, cure: str, service: str = "") -> None:
    """Install one package, without letting its `service` start now or at the next boot."""
    if not shutil.which("apt-get"):
        raise BrokerMissing(f"{package} is not installed, and there is no apt here to install it with", cure)
    prefix = root_prefix(f"installing {package}", cure)
    with only_one("apt"):
        say(f"installing {package} with apt-get (once)")
        apt = [*prefix, "apt-get", "-y", "-o", "DPkg::Lock::Timeout=300"]
        if service and shutil.which("systemctl"):
            # Masked before it exists: neither the package's script nor a boot starts it on the default ports.
            subprocess.run([*prefix, "systemctl", "mask", service], check=False, capture_output=True)
        with _no_service_starts(prefix):
            run([*apt, "update"], "apt-get update", cure)
            run([*apt, "install", "--no-install-recommends", package], f"apt-get install {package}", cure)


@contextmanager
def _no_service_starts(prefix: Sequence[str]) -> Iterator[None]:
    """Set Debian's own switch, for machines without systemd; a switch that is there already is left alone."""
    if os.path.exists(_POLICY):
        yield
        return
    write = f"printf '#!/bin/sh\\nexit 101\\n' > {_POLICY} && chmod 755 {_POLICY}"
    subprocess.run([*prefix, "sh", "-c", write], check=True)
    try:
        yield
    finally:
        subprocess.run([*prefix, "rm", "-f", _POLICY], check=True)


def debian_system(name: str, suite: str, package: str, cure: str) -> Path:
    """Return the folder of a minimal Debian `suite` with `package` in it; the first call builds it (about a minute).

    The system is built beside its place and renamed when complete: a folder that carries the final name is whole.
    """
    final = cache_folder() / name
    if final.is_dir():
        return final
    with only_one(name):
        if final.is_dir():
            return final
        prefix = root_prefix(f"unpacking {name} into {final.parent}", cure)
        if not _debootstrap_script(suite):
            apt_install("debootstrap", cure)
        # A name of its own: the debootstrap of a run that was killed may still be writing into another.
        building = final.with_name(f"{name}.building-{os.getpid()}")
        leftovers = [str(path) for path in final.parent.glob(f"{name}.building-*")]
        remove = [*prefix, "rm", "-rf", "--one-file-system"]
        run([*remove, *leftovers], "clearing up half a build", cure)
        try:
            _build(prefix, suite, package, building, cure)
            os.rename(building, final)
        finally:
            run([*remove, str(building)], "clearing up half a build", cure)
    return final


def _build(prefix: Sequence[str], suite: str, package: str, folder: Path, cure: str) -> None:
    say(f"unpacking Debian {suite} with {package} into {folder.parent} (once; about a minute, 250 MB)")
    script = _debootstrap_script(suite)
    mirror = os.environ.get("REDELIVER_DEBIAN_MIRROR", "")  # "" is debootstrap's own default
    options = ["--variant=minbase", f"--include={package}"]
    # By path: on Debian 12 root's own folders are not on everybody's PATH, and sudo's differs again.
    program = shutil.which("debootstrap") or "/usr/sbin/debootstrap"
    # Its mounts are in a namespace of their own and end with it, whatever kills it.
    argv = [*prefix, *OWN_MOUNTS, program, *options, suite, str(folder), mirror, script]
    run(argv, f"debootstrap {suite}", cure, progress=True)
    clean = "apt-get clean && rm -rf /var/lib/apt/lists/* && echo 127.0.0.1 localhost > /etc/hosts"
    run([*prefix, "chroot", str(folder), "/bin/sh", "-c", clean], f"clearing up in {folder}", cure)


def _debootstrap_script(suite: str) -> str:
    """Return debootstrap's recipe for `suite`, or "" if debootstrap is not there.

    Suites younger than debootstrap itself are built like `sid`.
    """
    scripts = Path("/usr/share/debootstrap/scripts")
    return next((str(scripts / name) for name in (suite, "sid") if (scripts / name).exists()), "")
