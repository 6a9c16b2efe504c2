# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Lists every event that redeliver_mw and its adapters write to the log, and reads code and fields from a log record.

The text of a log line is for people and may change with any release. Its event code, and the names and types of its
fields, stay. The events are listed in `log_events.toml`. A record has them in one of two ways:

    log.info("stopped after %.1f s; unsettled: %d", …)                 the text is listed, with the names of
                                                                       its arguments: seconds, unsettled
    log.error("%s", error, extra={EVENT_CODE: "source-refused"})       the call names the event itself

`python -m redeliver_mw.telemetry.log_events` prints the table as Markdown; `--write docs/log-events.md` puts the table
between the marks of that page.
"""

from __future__ import annotations

import argparse
import logging
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Final

from ..errors import ERROR_CODE, EVENT_CODE
from ..message import Delivery

__all__ = ["EVENTS", "FIELDS", "LogEvent", "fields_of"]

MARKS: Final = "<!-- events -->", "<!-- /events -->"
FIELD_MARKS: Final = "<!-- fields -->", "<!-- /fields -->"
UNNAMED: Final = "-"  # in place of the name of an argument that is a part of the text only
_CONVERSIONS: Final = re.compile(r"%[-#0 +]*\d*(?:\.\d+)?([a-z])")


@dataclass(frozen=True, slots=True)
class LogEvent:
    """Describes an event.

    - `code`: its stable name.
    - `level`, `loggers`: those that its lines have.
    - `when`: when the event is logged.
    - `texts`: the texts of its lines before their arguments are filled in, each with the names of its arguments.
    - `fields`: the names of what else its records have as attributes.
    - `area`: what the event is about.
    """

    code: str
    level: str
    loggers: tuple[str, ...]
    when: str
    texts: Mapping[str, tuple[str, ...]]
    fields: tuple[str, ...]
    area: str

    @property
    def names(self) -> list[str]:
        """Return the names of the fields that a line of this event may have, beside the ones of every line."""
        found = [*self.fields, *(name for names in self.texts.values() for name in names)]
        if "delivery" in found:
            found.insert(0, "source")
        return [name for name in dict.fromkeys(found) if name != UNNAMED]


def _events() -> Iterator[LogEvent]:
    listed = tomllib.loads(resources.files(__package__).joinpath("log_events.toml").read_text("utf-8"))
    for area, events in listed.items():
        for code, event in events.items():
            yield LogEvent(
                code,
                event["level"],
                tuple(f"redeliver_mw{name.rstrip('.')}" for name in event["logger"].split()),
                event["when"],
                {text: tuple(names.split()) for text, names in event.get("texts", ())},
                tuple(event.get("fields", "").split()),
                area,
            )


EVENTS: Final = tuple(_events())

# The type and the meaning of each field.
FIELDS: Final = {
    "address": ("string", "the address, or the HOST:PORT"),
    "at": ("string", "when that was asked for"),
    "broker": ("string", "the address of the broker, without credentials"),
    "broker_limit": ("number", "the value of `broker_limit=`"),
    "callback": ("string", "the clock of the memory broker whose callback failed"),
    "changes": ("string", "the sources, each with its version before and after"),
    "child": ("string", "the process, with its number and pid"),
    "consumer": ("string", "the consumer tag, or the id of the subscription"),
    "delay": ("number", "seconds until the next attempt"),
    "delivery": ("string", "the delivery: its source, delivery count and tag"),
    "direction": ("string", "`forward` or `back`"),
    "during": ("string", "the event of the interceptor that was dealt with"),
    "effect": ("string", "what follows for the messages"),
    "error": ("string", "the error, without secrets"),
    "error_type": ("string", "the class of the exception"),
    "failures": ("number", "failures of the message so far (F)"),
    "filter": ("string", "the filter of the queue"),
    "finding": ("string", "what may be wrong with the policy"),
    "fingerprint": ("string", "the same 16 hex digits for the same failure"),
    "hook": ("string", "the function"),
    "left_out": ("number", "how many lines were left out"),
    "limit": ("string", "what the broker says of its limit"),
    "mechanism": ("string", "how the message waits: `hold`, `nack`, `schedule`, `park`"),
    "message_id": ("string", "the message id"),
    "messages": ("number", "how many messages"),
    "method": ("string", "the method of the request"),
    "milliseconds": ("number", "how long the answer took"),
    "mode": ("string", "the ack mode that the code asked for"),
    "moment": ("string", "the moment that was announced"),
    "most": ("number", "how many are kept"),
    "operation_id": ("string", "the operation"),
    "outcome": ("string", "as in the [journal](records.md): `redelivered`, `dead_lettered`, `discarded`, `kept`"),
    "page": ("string", "`health` or `metrics`"),
    "path": ("string", "a file, a folder, or the path of a request"),
    "paths": ("string", "the paths that are served"),
    "place": ("string", "the database or the folder, without credentials"),
    "policy": ("string", "the full policy of the address"),
    "publishes": ("number", "how often a message was published in vain"),
    "reason": ("string", "why; of a failed attempt, the reason of the outcome"),
    "reference": ("string", "what the answer to the request names"),
    "request": ("string", "what the operator asked for"),
    "role": ("string", "which connection: `consume`, `publish`, `connection`"),
    "row": ("number", "the number of the message in the limbo"),
    "seconds": ("number", "a duration: of the pause, the lease, the outage, the run"),
    "sink": ("string", "the class that failed"),
    "source": ("string", "the source: `queue:orders`"),
    "sources": ("string", "the sources, with commas between them"),
    "started": ("number", "how many processes are started"),
    "state": ("string", "the state of the breaker that was asked for"),
    "status": ("number", "the status of the answer"),
    "subject": ("string", "what the request is about"),
    "tag": ("string", "the delivery tag, or the id by which a message is acked"),
    "target": ("string", "the target of the copy"),
    "targets": ("list of strings", "the targets of the dead letter"),
    "text": ("string", "what the broker, or the handler, has sent"),
    "transaction": ("string", "the name of the transaction"),
    "event.action": ("string", "`dead-letter-` or `control-` and what was done: `dead-letter-discard`"),
    "event.kind": ("string", "`event`"),
    "event.outcome": ("string", "`success` or `failure`"),
    "redeliver.filter": ("string", "which letters were meant"),
    "redeliver.letters": ("number", "how many letters were changed"),
    "redeliver.operation_id": ("string", "the operation"),
    "redeliver.reason": ("string", "why it was refused or failed"),
    "unsettled": ("number", "how many deliveries were left to the broker"),
    "user.name": ("string", "who: `user@host`"),
    "user": ("string", "the name of the token's owner"),
    "wanted": ("number", "how many processes were asked for"),
    "what": ("string", "what waits, or who is notified"),
    "who": ("string", "the operator: `user@host`"),
    "window": ("number", "the prefetch window"),
}

_BY_CODE: Final = {event.code: event for event in EVENTS}
_BY_TEXT: Final = {text: (event.code, names) for event in EVENTS for text, names in event.texts.items()}


def fields_of(record: logging.LogRecord, arguments: object = None) -> dict[str, Any]:
    """Return the event code of a log record and the fields of its event, as far as the record has them.

    Empty for a record of another program, and for most records of level DEBUG. Needs no configuration of the library: a
    formatter of your own may call this function for each record of the loggers under `redeliver_mw`. `arguments`: those
    of the record, if they were taken out of it.
    """
    known = record.__dict__
    nothing: tuple[str, tuple[str, ...]] = ("", ())
    code, names = _BY_TEXT.get(record.msg, nothing) if isinstance(record.msg, str) else nothing
    code = known.get(EVENT_CODE) or code
    if not code:
        return {}
    found: dict[str, Any] = {EVENT_CODE: code}
    if code in _BY_CODE:
        found |= {name: known[name] for name in _BY_CODE[code].fields if name in known}
    arguments = arguments or record.args
    for name, value in zip(names, arguments if isinstance(arguments, tuple) else (), strict=False):
        if name != UNNAMED:
            found |= _field(name, value)
    if known.get(ERROR_CODE):
        found[ERROR_CODE] = known[ERROR_CODE]
    return found


def _field(name: str, value: object) -> dict[str, Any]:
    if isinstance(value, Delivery):
        return {"source": str(value.destination), name: str(value)}
    number = FIELDS[name][0] == "number" and isinstance(value, int | float)
    return {name: value if number else str(value)}


def types_of(text: str) -> list[str]:
    """Return the types of the arguments of a text: `number` for `%d`, `%f` and `%g`, otherwise `string`."""
    return ["number" if letter in "dfg" else "string" for letter in _CONVERSIONS.findall(text.replace("%%", ""))]


def event_table(events: Iterable[LogEvent] = EVENTS) -> str:
    """Return the events as Markdown: a table for each area."""
    areas: dict[str, list[LogEvent]] = {}
    for event in events:
        areas.setdefault(event.area, []).append(event)
    lines: list[str] = []
    for area, within in areas.items():
        lines += [f"### {area}", "", "| `event_code` | level | logger | when | fields |", "|---|---|---|---|---|"]
        for event in within:
            loggers = ", ".join(f"`{name.removeprefix('redeliver_mw') or '.'}`" for name in event.loggers)
            names = ", ".join(f"`{name}`" for name in event.names)
            lines.append(f"| `{event.code}` | {event.level} | {loggers} | {event.when} | {names} |")
        lines.append("")
    return "\n".join(lines).rstrip()


def field_table() -> str:
    """Return the fields as Markdown."""
    rows = (f"| `{name}` | {kind} | {meaning} |" for name, (kind, meaning) in FIELDS.items())
    return "\n".join(("| field | type | meaning |", "|---|---|---|", *rows))


def written(page: str) -> str:
    """Return the page with both tables between their marks."""
    for (begin, end), text in ((MARKS, event_table()), (FIELD_MARKS, field_table())):
        before, _, rest = page.partition(begin)
        page = f"{before}{begin}\n\n{text}\n\n{end}{rest.partition(end)[2]}"
    return page


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m redeliver_mw.telemetry.log_events", description="The events of the log."
    )
    parser.add_argument("--write", metavar="PAGE", type=Path, help="put the tables between the marks of this page")
    page: Path | None = parser.parse_args(arguments).write
    if page is None:
        print(f"{event_table()}\n\n{field_table()}")
    else:
        page.write_text(written(page.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
