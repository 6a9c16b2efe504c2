# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Looks for an auto-instrumentation that changes what is sent through the driver.

Copies go around a wrapper that names what it wraps, as those of OpenTelemetry and of wrapt do. A function that was put
in the place of the driver's own, without a trace of it, changes our copies.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from .finding import Finding, not_known, ok, warning

PACKAGES: Final = {"pika": ("opentelemetry-instrumentation-pika", "newrelic")}  # that wrap a driver
OFF: Final = "Switch it off for this driver in the programs that redeliver: OTEL_PYTHON_DISABLED_INSTRUMENTATIONS=pika"


def check_instrumentation(driver: str, functions: Sequence[Callable[..., object]]) -> Finding:
    """Return whether something in this process changes our copies. `functions`: those that every copy goes through.

    It is as in the programs that redeliver only if the doctor is started as they are.
    """
    subject = f"the driver {driver}"
    if not functions:
        return not_known("instrumentation", subject, "the adapter does not report what its copies go through")
    for function in functions:
        own = inspect.unwrap(function)
        if own.__module__.partition(".")[0] not in (driver, f"redeliver_{driver}"):
            return warning(
                "instrumentation-changes-copies",
                subject,
                f"{own.__module__} has replaced a function that copies are sent with ({own.__qualname__}): it can "
                f"change the headers of retry copies and dead letters, such as the producer's traceparent",
                OFF if driver == "pika" else "Switch it off for this driver in the programs that redeliver",
            )
    installed = [name for name in PACKAGES.get(driver, ()) if _installed(name)]
    if installed:
        return ok("instrumentation", subject, f"{', '.join(installed)} is installed, and copies go around its wrappers")
    return ok("instrumentation", subject, "nothing has replaced the functions that copies are sent with")


def _installed(package: str) -> bool:
    try:
        version(package)
    except PackageNotFoundError:
        return False
    return True
