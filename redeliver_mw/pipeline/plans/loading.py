# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""The transform that a user names, found and sent along to the tasks. No Spark is loaded by importing this."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final

from ...errors import ConfigError
from ..letter import Transform

_CURE: Final = "Write MODULE:FUNCTION, as in repairs:add_currency for `add_currency` in repairs.py"


def load_transform(given: str | Transform | None) -> Transform | None:
    """The function that `MODULE:FUNCTION` names. ConfigError where it is none, whatever the module does."""
    if given is None:
        return None
    if not isinstance(given, str):
        return _callable(given, getattr(given, "__qualname__", repr(given)))
    module, mark, path = given.partition(":")
    if not mark or not all(part.isidentifier() for part in [*module.split("."), *path.split(".")]):
        raise ConfigError("no transform", where=f"--transform {given}", cure=_CURE)
    try:
        found: Any = importlib.import_module(module)
        for name in path.split("."):
            found = getattr(found, name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise _broken(given, error) from None
        what, cure = f"there is no module {error.name!r}", "Put it into the current folder or on PYTHONPATH"
        raise ConfigError(what, where=f"--transform {given}", cure=cure) from None
    except AttributeError as error:
        raise ConfigError(str(error), where=f"--transform {given}", cure=_CURE) from None
    except (Exception, SystemExit) as error:
        raise _broken(given, error) from None
    return _callable(found, given)


def ship(transform: Transform | None) -> None:
    """From now on the transform's module goes to the tasks with it: executors need not have the file."""
    from pyspark import cloudpickle

    name = getattr(transform, "__module__", None)
    module = sys.modules.get(name) if name else None
    if module is None or name == "__main__" or (name or "").partition(".")[0] == "redeliver_mw":
        return
    register: Callable[[ModuleType], None] = cloudpickle.register_pickle_by_value
    register(module)


def _callable(found: Any, name: str) -> Transform:
    if not callable(found) or isinstance(found, type):
        raise ConfigError("it is no function", where=f"--transform {name}", cure=_CURE)
    if inspect.iscoroutinefunction(found):
        raise ConfigError("it is async", where=f"--transform {name}", cure="Write a plain function")
    checked: Transform = found
    return checked


def _broken(given: str, error: BaseException) -> ConfigError:
    said = " ".join(str(error).split())
    what = f"importing it raises {type(error).__name__}" + (f": {said}" if said else "")
    return ConfigError(what, where=f"--transform {given}", cure="Mend that module")
