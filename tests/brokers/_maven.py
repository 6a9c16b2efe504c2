# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Gets a Java broker onto this machine: its jars by Maven into the cache folder, Java itself by apt.

Maven's own settings say from where it takes the jars. A broker is a list of artefacts whose versions, those
of its libraries included, come from the parent pom that its project itself was built with.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.brokers import _install
from tests.brokers._broker import OwnBroker
from tests.brokers._install import BrokerMissing
from tests.java_archives import archive, can_write, reading, writing

_JAVA = 17  # the oldest that runs all of them
_GROUP = "org.apache.activemq"
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <parent>
    <groupId>org.apache.activemq</groupId>
    <artifactId>{parent}</artifactId>
    <version>{version}</version>
    <relativePath/>
  </parent>
  <artifactId>jars</artifactId>
  <dependencies>
{dependencies}
  </dependencies>
</project>
"""


@dataclass(frozen=True)
class Jars:
    """Lists what a broker is made of: artefacts as "group:name".

    Artefacts of the broker's own project have `version`, as has the pom `parent`; the others have the version that this
    pom names.
    """

    name: str
    parent: str
    version: str
    artefacts: Sequence[str]

    @property
    def folder(self) -> str:
        """Return the name of the folder in the cache; it is another one when its content would be another."""
        return f"{self.name}-{self.version}-{hashlib.sha256(self.pom().encode()).hexdigest()[:8]}"

    def pom(self) -> str:
        dependencies = "\n".join(self._dependency(artefact) for artefact in self.artefacts)
        return _POM.format(parent=self.parent, version=self.version, dependencies=dependencies)

    def _dependency(self, artefact: str) -> str:
        group, _, name = artefact.partition(":")
        version = f"<version>{self.version}</version>" if group == _GROUP else ""
        what = f"<groupId>{group}</groupId><artifactId>{name}</artifactId>{version}<scope>runtime</scope>"
        return f"    <dependency>{what}</dependency>"


def jars(wanted: Jars, cure: str) -> Path:
    """Return the folder with all jars of a broker; the first call fetches them (about 20 MB, up to two minutes).

    The folder is filled beside its place and renamed when complete: a folder that carries the final name is whole.
    """
    final = _install.cache_folder() / wanted.folder
    if final.is_dir():
        return final
    with _install.only_one(wanted.folder):
        if final.is_dir():
            return final
        maven = _maven(cure)
        for leftover in final.parent.glob(f"{wanted.folder}.building-*"):
            shutil.rmtree(leftover)
        building = final.with_name(f"{wanted.folder}.building-{os.getpid()}")
        try:
            _fetch(maven, wanted, building, cure)
            os.rename(building, final)
        finally:
            shutil.rmtree(building, ignore_errors=True)
    return final


def _fetch(maven: str, wanted: Jars, folder: Path, cure: str) -> None:
    _install.say(
        f"fetching {wanted.name} {wanted.version} with Maven into {folder.parent} (once; about a minute, 20 MB)"
    )
    folder.mkdir()
    pom = folder / "pom.xml"
    pom.write_text(wanted.pom())
    # -U: it remembers for a day what it could not get, a network that was away included.
    options = ["-B", "-U", "-Dstyle.color=never", "-f", str(pom)]
    goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={folder}"]
    what = f"fetching {wanted.name} {wanted.version} with Maven"
    _install.run([maven, *options, *goal], what, cure, progress=True, causes=("[FATAL]", "[ERROR]"))


def _maven(cure: str) -> str:
    java(cure)  # first: Maven's package would bring whatever Java is the system's default
    if not shutil.which("mvn"):
        _install.apt_install("maven", cure)
    return shutil.which("mvn") or "/usr/bin/mvn"


def java(cure: str) -> str:
    """Return the path of a Java that is new enough: JAVA_HOME's, else the one on the PATH, else one installed now."""
    homes = [Path(os.environ["JAVA_HOME"]) / "bin/java"] if os.environ.get("JAVA_HOME") else []
    found = [str(path) for path in homes if path.exists()] + [path for path in [shutil.which("java")] if path]
    for path in found:
        if _java_version(path) >= _JAVA:
            return path
    _install.apt_install(f"openjdk-{_JAVA}-jre-headless", cure)
    installed = sorted(Path("/usr/lib/jvm").glob(f"java-{_JAVA}-openjdk-*/bin/java"))
    if not installed:
        raise BrokerMissing(f"no Java {_JAVA} or newer is here", cure)
    return str(installed[0])


def _java_version(path: str) -> int:
    """Return the major version of a Java, 17 for 17.0.9; 0 if the program does not say."""
    said = subprocess.run([path, "-version"], check=False, capture_output=True, text=True).stderr
    number = re.search(r'version "(\d+)', said)
    return int(number[1]) if number else 0


def java_argv(java: str, jars: Path, data: Path, *, tiered: bool, writes: Path | None) -> list[str]:
    """Return the command line up to the main class, for a broker whose data folder is `data`.

    `tiered`: with the optimising compiler, for measuring; without it a broker is up in half the time. `writes` is the
    archive of classes that the broker writes at its end, if it is to write one.
    """
    classes = reading(archive(java, jars)) if writes is None else writing(writes)
    return [
        java,
        "-Xms64m",
        "-Xmx1g" if tiered else "-Xmx512m",
        "-XX:+UseSerialGC",
        *([] if tiered else ["-XX:TieredStopAtLevel=1", *classes]),
        "-XX:-UsePerfData",  # no file in the system's temporary folder that a kill would leave behind
        "-Djava.awt.headless=true",
        "-Djava.net.preferIPv4Stack=true",
        f"-Djava.io.tmpdir={data}",
        f"-Dlog4j2.configurationFile=file:{data}/log4j2.properties",
        "-Dlog4j2.disableJmx=true",
        "-cp",
        f"{jars}/*",
    ]


def write_archive(java: str, jars: Path, new: Callable[[Path], OwnBroker]) -> None:
    """Start a broker that writes an archive of its classes, and end it: later ones start from the archive.

    `new` makes a broker that writes to a path. Where the jars are in a folder of somebody else, there is no archive.
    """
    path = archive(java, jars)
    if path.exists() or not os.access(jars, os.W_OK) or not can_write(java):
        return
    unfinished = path.with_suffix(f".{os.getpid()}")
    with started(lambda: new(unfinished)) as broker:
        broker.leave()
    unfinished.replace(path)


def started(new: Callable[[], OwnBroker]) -> OwnBroker:
    """Return a started broker.

    Its ports were free when it was made; should one of them be taken by now, another broker is made.
    """
    for again in (True, False):
        broker = new()
        try:
            broker.start()
        except BaseException as error:
            broker.stop()
            if again and "Address already in use" in str(error):
                continue
            raise
        break
    return broker


#: To standard output, which the leash appends to the broker's log. Artemis's audit would be a line a message.
LOG4J = """rootLogger.level = INFO
rootLogger.appenderRef.out.ref = out
logger.audit.name = org.apache.activemq.audit
logger.audit.level = OFF
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d %-5level [%logger{1}] %msg%n
"""
