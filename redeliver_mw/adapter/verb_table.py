# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Prints the table of what each verb does on each broker, from the adapters' own records.

`python -m redeliver_mw.adapter.verb_table` prints the table as Markdown; `--write docs/verbs.md` puts the table between
that file's marks. An adapter takes part if the module of its entry point has a function `records`, which returns one
`Capabilities` for each broker version. No broker is connected to; the drivers have to be installed.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Sequence
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from ..errors import ConfigError, MissingExtra
from .capabilities import Capabilities, VerbRecord
from .registry import EXTRA_OF_DRIVER, GROUP

TITLES = {"activemq": "ActiveMQ", "artemis": "Artemis", "rabbitmq": "RabbitMQ"}
HEAD = ("broker", "verb", "what it really does", "what we do instead", "known")
MARKS = "<!-- verbs -->", "<!-- /verbs -->"


def records() -> list[Capabilities]:
    """Return the records of every plugged-in adapter, by dialect. Raises MissingExtra if a driver is not installed."""
    entries = sorted(entry_points(group=GROUP), key=lambda entry: entry.name)
    return [record for entry in entries for record in _records_of(entry)]


def _records_of(entry: EntryPoint) -> Iterable[Capabilities]:
    driver = entry.name.partition("+")[2]
    try:
        module = import_module(entry.module)
    except ModuleNotFoundError as missing:
        if missing.name != driver:
            raise
        cure = f"Run: pip install 'redeliver-mw[{EXTRA_OF_DRIVER.get(driver, driver)}]'"
        raise MissingExtra(f"the driver {driver!r} is not installed", where=entry.name, cure=cure) from None
    found: Iterable[Capabilities] = module.records() if hasattr(module, "records") else ()
    return found


def table(found: Iterable[Capabilities]) -> str:
    """Return a table with a row for each verb.

    Versions and types of queue where the verb does the same share one row.
    """
    shared: dict[tuple[str, ...], list[tuple[str, str]]] = {}
    for record in found:
        for verb in record.verbs:
            row = (TITLES.get(record.broker_kind, record.broker_kind), *_cells(verb))
            shared.setdefault(row, []).append((record.broker_version, verb.kind))
    rows = [(f"{title} {_places(at)}", *cells) for (title, *cells), at in _in_order(shared)]
    return "\n".join(_line(cells) for cells in (HEAD, ("---",) * len(HEAD), *rows))


def _cells(verb: VerbRecord) -> tuple[str, ...]:
    does = f"**{verb.outcome}**" + (f"; {verb.note}" if verb.note else "")
    return verb.name, does, verb.instead, verb.basis.value


def _in_order(
    shared: dict[tuple[str, ...], list[tuple[str, str]]],
) -> Iterable[tuple[tuple[str, ...], list[tuple[str, str]]]]:
    """Yield the rows broker by broker, verb by verb, in the order in which they were first named."""
    verbs = list(dict.fromkeys(row[:2] for row in shared))
    brokers = list(dict.fromkeys(broker for broker, _ in verbs))
    return sorted(shared.items(), key=lambda item: (brokers.index(item[0][0]), verbs.index(item[0][:2])))


def _places(at: Sequence[tuple[str, str]]) -> str:
    """Return the shortest list of versions and types, such as `3.10.8, 4.3.6 classic; 4.3.6 quorum`."""
    kinds: dict[str, list[str]] = {}
    for version, kind in at:
        kinds.setdefault(version, []).append(kind)
    versions: dict[str, list[str]] = {}
    for version, which in kinds.items():
        versions.setdefault(", ".join(filter(None, which)), []).append(version)
    return "; ".join(" ".join(filter(None, (", ".join(same), which))) for which, same in versions.items())


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def written(page: str, text: str, marks: tuple[str, str] = MARKS) -> str:
    """Return the page with `text` between its marks. Raises ConfigError if the page has no marks."""
    begin, end = marks
    new, times = re.subn(f"{begin}.*?{end}", lambda _: f"{begin}\n\n{text}\n\n{end}", page, count=1, flags=re.DOTALL)
    if not times:
        raise ConfigError(
            "the page has no place for the table", cure=f"Put {begin} and {end} in it", code="path-not-usable"
        )
    return new


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m redeliver_mw.adapter.verb_table", description="What each verb really does."
    )
    parser.add_argument("--write", metavar="PAGE", type=Path, help="put it between the marks of this Markdown page")
    page: Path | None = parser.parse_args(arguments).write
    if page is None:
        print(table(records()))
    else:
        page.write_text(written(page.read_text(), table(records())))


if __name__ == "__main__":
    main()
