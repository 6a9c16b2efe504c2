# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Imports the App named by `module:app` with the current folder on the path, and reports every mistake in one line."""

from __future__ import annotations

import difflib
import importlib
import os
import pkgutil
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from ..app import App
from ..errors import ConfigError, RedeliverError

PACKAGE = Path(__file__).resolve().parent.parent
# Folders that do not hold the user's own code: the standard library and the installed packages.
FOREIGN = tuple(Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib"))


def find_app(target: str) -> App:
    """Return the App that `module:attribute` names.

    Raises ConfigError with place and cure, whatever error the module raises.
    """
    module_name, colon, path = target.partition(":")
    if not (colon and _is_dotted(module_name) and _is_dotted(path)):
        raise ConfigError(
            f"{target!r} names no app",
            cure="Write MODULE:APP, as in shop:app for `app` in shop.py",
            code="app-not-found",
        )
    module = _import(module_name)
    found: Any = module
    for name in path.split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            cure = _did_you_mean(name, _apps(module) or list(vars(module)), "Write the name of an App there")
            raise ConfigError(
                f"module {module_name!r} has no {path!r}", where=_place(module), cure=cure, code="app-not-found"
            ) from None
    if not isinstance(found, App):
        apps = _apps(module)
        cure = f"Name the App: {module_name}:{apps[0]}" if apps else "Name an App: app = App(url)"
        raise ConfigError(
            f"{path!r} is no App, but {_kind(found)}", where=_place(module), cure=cure, code="app-not-found"
        )
    return found


def _import(name: str) -> ModuleType:
    folder = os.getcwd()
    sys.path.insert(0, folder)
    try:
        with _named_after(name):
            return importlib.import_module(name)
    # App(...) or @redeliver(...) has given the error and the cure; only the place is missing.
    except RedeliverError as error:
        error.where = ": ".join(part for part in (_raised_at(error), error.where) if part)
        raise
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise _broken(name, error) from None
        cure = _did_you_mean(error.name, [m.name for m in pkgutil.iter_modules([folder])], "Check name and folder")
        raise ConfigError(f"there is no module {error.name!r}", where=folder, cure=cure, code="app-not-found") from None
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit too: a module that ends the program is not a place for an App
        raise _broken(name, error) from None


@contextmanager
def _named_after(module: str) -> Iterator[None]:
    """Name Apps after the module, not `redeliver`: an App takes the script's name as its default."""
    before = sys.argv
    sys.argv = [module.rpartition(".")[2]]
    try:
        yield
    finally:
        sys.argv = before


def _broken(name: str, error: BaseException) -> ConfigError:
    text = " ".join(str(error).split())
    what = f"importing {name!r} raises {type(error).__name__}" + (f": {text}" if text else "")
    return ConfigError(what, where=_raised_at(error), cure="Mend that line", code="import-failed")


def _raised_at(error: BaseException) -> str:
    """Return `file:line` of the last frame in the user's own code.

    Without such a frame, of the frame that raised.
    """
    if isinstance(error, SyntaxError) and error.filename:
        return f"{_short(error.filename)}:{error.lineno}"
    # Skip code without a file.
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith("<")]
    theirs = [f for f in frames if not _is_foreign(Path(f.filename))]
    last = (theirs or frames)[-1]
    return f"{_short(last.filename)}:{last.lineno}"


def _is_foreign(file: Path) -> bool:
    return any(file.is_relative_to(folder) for folder in (PACKAGE, *FOREIGN))


def _short(file: str) -> str:
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file


def _place(module: ModuleType) -> str:
    return _short(module.__file__) if module.__file__ else module.__name__


def _apps(module: ModuleType) -> list[str]:
    return [name for name, value in vars(module).items() if isinstance(value, App)]


def _did_you_mean(name: str, known: list[str], otherwise: str) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f"Did you mean {near[0]!r}?" if near else otherwise


def _is_dotted(name: str) -> bool:
    return all(part.isidentifier() for part in name.split("."))


def _kind(thing: object) -> str:
    if isinstance(thing, type):
        return f"the class {thing.__name__}"
    return f"of type {type(thing).__name__}"
