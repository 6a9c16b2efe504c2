# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Shows the library's logs on the command line: structlog on stderr, for people or as JSON lines.

Only commands do this. The library logs under `redeliver_mw` with the standard library and configures nothing, so that
an application can configure logging itself.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING

from ..errors import ERROR_CODE, RedeliverError
from ..redaction import redact, visible

if TYPE_CHECKING:
    from structlog.types import EventDict, Processor

AUDIT = "redeliver_mw.audit"

# The drivers log, at length and with tracebacks, events that the library logs in one line.
DRIVERS = ("pika", "stomp", "stomp.py", "proton")


class LogFormat(StrEnum):
    """Lists the values of --log-format."""

    console = "console"
    json = "json"


def show_logs(form: LogFormat, process: int | None = None) -> None:
    """Render the loggers under `redeliver_mw`, from INFO on, on stderr. Called once per process.

    `process`: the number of this process, from 1, if several write to one stderr; then each line contains the number
    and the pid.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_formatter(form, {} if process is None else {"process": process, "pid": os.getpid()}))
    ours = logging.getLogger("redeliver_mw")
    ours.handlers = [handler]
    ours.setLevel(logging.INFO)
    ours.propagate = False  # otherwise a module that configures the root logger would show every line twice
    quiet_drivers()


def show_audit(form: LogFormat | None) -> None:
    """Render logs as `show_logs` does; without a form, keep the lines of the audit off stderr."""
    if form is not None:
        return show_logs(form)
    logging.getLogger(AUDIT).addHandler(logging.NullHandler())
    return None


def quiet_drivers() -> None:
    """Keep the drivers' logs off stderr, unless somebody has configured them."""
    for name in DRIVERS:
        driver = logging.getLogger(name)
        if driver.level == logging.NOTSET:
            driver.setLevel(logging.CRITICAL)


def _formatter(form: LogFormat, who: Mapping[str, int]) -> logging.Formatter:
    import structlog

    render: list[Processor]
    fields: list[Processor] = []
    if form is LogFormat.json:
        fields = [_fields_of_the_event, _code_of_an_error]
        render = [structlog.processors.format_exc_info, _redacted, structlog.processors.JSONRenderer()]
    else:
        colours = sys.stderr.isatty()
        plain = structlog.dev.plain_traceback
        render = [
            structlog.processors.format_exc_info,
            _redacted,
            structlog.dev.ConsoleRenderer(colors=colours, exception_formatter=plain),
        ]
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[
            structlog.stdlib.add_log_level,
            structlog.stdlib.add_logger_name,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _with_traceback,
            lambda _logger, _method, event: {**event, **who},
            *fields,
            structlog.contextvars.merge_contextvars,  # last: what a handler has bound replaces no field of a line
        ],
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *render],
        pass_foreign_args=form is LogFormat.json,  # structlog takes them out of the record
    )


def _with_traceback(_logger: object, _method: str, event: EventDict) -> EventDict:
    """Show a traceback that the record carries as text, because the record does not keep the exception itself."""
    record: logging.LogRecord = event["_record"]
    if record.exc_text and not record.exc_info:
        event["exception"] = record.exc_text
    return event


def _fields_of_the_event(_logger: object, _method: str, event: EventDict) -> EventDict:
    """Add the stable code of what a line reports, and its details, each as a field of its own."""
    from ..telemetry.log_events import fields_of

    return {**event, **fields_of(event["_record"], event.get("positional_args"))}


def _code_of_an_error(_logger: object, _method: str, event: EventDict) -> EventDict:
    """Add the code of the error that a line is about: one of its arguments, or the exception of its traceback."""
    record: logging.LogRecord = event["_record"]
    arguments = event.pop("positional_args", None)
    about = [*(arguments if isinstance(arguments, tuple) else ()), record.exc_info and record.exc_info[1]]
    codes = [record.__dict__.get(ERROR_CODE), *(one.code for one in about if isinstance(one, RedeliverError))]
    code = next(filter(None, codes), None)
    return {**event, ERROR_CODE: code} if code else event


def _redacted(_logger: object, _method: str, event: EventDict) -> EventDict:
    """Remove credentials and terminal control characters from a log event, whichever program wrote them."""
    return {n: visible(redact(v), lines=True) if isinstance(v, str) else v for n, v in event.items()}
