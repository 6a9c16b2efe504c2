# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Holds what every test may ask for."""

import gc
import logging
import os
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.java_archives import spark_options

# What commands print is compared as plain text, whatever the shell of the tests asks for.
for name in ("FORCE_COLOR", "FORCE_COLOUR", "CLICOLOR_FORCE"):
    os.environ.pop(name, None)
os.environ.setdefault("SPARK_SUBMIT_OPTS", " ".join(spark_options()))

# How long an example takes is the machine's affair; what may take only so long has a test that says so.
settings.register_profile("house", deadline=None)
settings.load_profile("house")

pytest.register_assert_rewrite("redeliver_mw.testing")

from tests.brokers.pytest_support import (
    FIXTURES,
    _brokers_put_right,
    activemq,
    activemq63,
    activemq518,
    artemis,
    artemis244,
    every_broker,
    jvm_broker,
    pytest_sessionfinish,
    pytest_terminal_summary,
    pytest_testnodedown,
    rabbitmq,
    rabbitmq43,
    rabbitmq310,
)
from tests.files_of_a_stage import holds_none, may_use_brokers
from tests.long_tests import longest_first, mark
from tests.processor_time import ProcessorTime
from tests.storage.databases import file, postgres, url

__all__ = [
    "_brokers_put_right",
    "_companions_closed",
    "activemq",
    "activemq63",
    "activemq518",
    "artemis",
    "artemis244",
    "every_broker",
    "file",
    "jvm_broker",
    "postgres",
    "pytest_sessionfinish",
    "pytest_terminal_summary",
    "pytest_testnodedown",
    "rabbitmq",
    "rabbitmq43",
    "rabbitmq310",
    "url",
]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--processor-time`."""
    parser.addoption("--processor-time", action="store_true", help="which tests, files and fixtures take most of it")


def pytest_configure(config: pytest.Config) -> None:
    """Measure where that was asked for."""
    if config.getoption("--processor-time"):
        config.pluginmanager.register(ProcessorTime())


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import a file that holds no test of this stage."""
    if not (config.option.markexpr and collection_path.match("test_*.py")):
        return None
    return holds_none(collection_path.read_text(), config.option.markexpr, FIXTURES) or None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the garbage collector away from the tests, which stay to the end: it takes a sixth of the collection.

    Later it comes less often than Python lets it, which takes a twentieth of the unit tests.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(50_000, 20, 20)
        gc.enable()


def pytest_unconfigure() -> None:
    """Let the garbage collector have them at the end: some libraries complain of objects that nobody has removed."""
    gc.unfreeze()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark a test `broker` that asks for a real one, and `long` where it is left to `make test-all`.

    A test on Spark gets ten minutes: where the machine has much else to do, a few jobs take half of that.
    """
    tests = Path(__file__).parent.as_posix()
    longest_first(items, tests)
    on_brokers: set[Path] = set()
    for item in items:
        mark(item, tests)
        if FIXTURES & set(getattr(item, "fixturenames", ())):
            item.add_marker("broker")
        if item.get_closest_marker("spark") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(600))
        if item.get_closest_marker("broker") and item.path not in on_brokers:
            if not may_use_brokers(item.path.read_text(), FIXTURES):
                raise pytest.UsageError(
                    f"{item.nodeid} uses a broker: {item.path.name} must name the mark or a fixture"
                )
            on_brokers.add(item.path)


@pytest.fixture(autouse=True)
def _logs_as_before() -> Iterator[None]:
    """Take back what a command that ran in this process has done to our logger: its stream ends with the test."""
    ours = logging.getLogger("redeliver_mw")
    before = ours.handlers, ours.level, ours.propagate
    yield
    ours.handlers, ours.level, ours.propagate = before


@pytest.fixture(autouse=True)
def _companions_closed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close the connections that a drop-in's `publisher=` has opened: they live as long as their process.

    Left alone they would try to reach a broker that is gone, and log it into later tests.
    """
    if request.node.get_closest_marker("broker") is None:
        yield
        return
    from redeliver_mw.dropin.companion import CompanionPublisher
    from redeliver_pika.dropin.copies import PikaCompanion

    made: list[CompanionPublisher | PikaCompanion] = []
    for kind in (CompanionPublisher, PikaCompanion):
        monkeypatch.setattr(kind, "__init__", _recording(kind.__init__, made))
    yield
    for one in made:
        one.close()


def _recording(create: Callable[..., None], made: list[Any]) -> Callable[..., None]:
    def recorded(self: Any, *given: Any) -> None:
        create(self, *given)
        made.append(self)

    return recorded
