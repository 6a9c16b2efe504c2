# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Loads functions that a user names."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

from ...callables import is_async, is_generator
from ...errors import ConfigError
from .letter import Letter

_CURE: Final = "Write MODULE:FUNCTION, as in repairs:add_currency for `add_currency` in repairs.py"


Function = TypeVar("Function", bound=Callable[[Letter], object])


def load_function(given: str | Function | None, option: str) -> Function | None:
    """Return the function that `MODULE:FUNCTION` names.

    Raises ConfigError if there is no such function, whatever error the module raises.
    """
    if given is None:
        return None
    if not isinstance(given, str):
        return cast(Function, _callable(given, f"{option} {getattr(given, '__qualname__', repr(given))}"))
    where = f"{option} {given}"
    module, mark, path = given.partition(":")
    if not mark or not all(part.isidentifier() for part in [*module.split("."), *path.split(".")]):
        raise ConfigError("it names no function", where=where, cure=_CURE, code="function-not-usable")
    try:
        found: Any = importlib.import_module(module)
        for name in path.split("."):
            found = getattr(found, name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise _broken(where, error) from None
        what, cure = f"there is no module {error.name!r}", "Put it into the current folder or on PYTHONPATH"
        raise ConfigError(what, where=where, cure=cure, code="function-not-usable") from None
    except AttributeError as error:
        raise ConfigError(str(error), where=where, cure=_CURE, code="function-not-usable") from None
    except (Exception, SystemExit) as error:
        raise _broken(where, error) from None
    return cast(Function, _callable(found, where))


def _callable(found: Any, where: str) -> Any:
    if not callable(found) or isinstance(found, type):
        raise ConfigError("it is no function", where=where, cure=_CURE, code="function-not-usable")
    if is_async(found):
        raise ConfigError("it is async", where=where, cure="Write a plain function", code="function-not-usable")
    if is_generator(found):
        raise ConfigError(
            "it has a yield, and a call runs none of its lines",
            where=where,
            cure="Return the result instead",
            code="function-not-usable",
        )
    return found


def _broken(where: str, error: BaseException) -> ConfigError:
    text = " ".join(str(error).split())
    what = f"importing it raises {type(error).__name__}" + (f": {text}" if text else "")
    return ConfigError(what, where=where, cure="Mend that module", code="import-failed")
