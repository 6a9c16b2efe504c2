# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests what is shipped: the wheel's contents, and the wheel at work where the sources cannot be reached."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

import redeliver_mw
from tests.brokers.skips import not_to_be_had

REPOSITORY = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
ADAPTERS = {
    "rabbitmq+pika": "redeliver_pika",
    "activemq+stomp": "redeliver_stomp",
    "artemis+proton": "redeliver_proton",
    "rabbitmq+proton": "redeliver_proton",
}
PACKAGES = {"redeliver_mw", *ADAPTERS.values(), "pyspark_redeliver", "pyspark_redeliver_lake"}
PUBLIC = [  # the promised names, in ASCII order
    "App",
    "Breaker",
    "Delivery",
    "Destination",
    "Idempotency",
    "Order",
    "Outgoing",
    "PolicyMap",
    "RedeliveryPolicy",
    "Reject",
    "RetryAfter",
    "connect",
    "current_delivery",
    "load_policies",
    "redeliver",
]
# What `import redeliver_mw` must not cost.
HEAVY = {"pika", "stomp", "proton", "sqlalchemy", "pydantic", "typer", "click", "rich", "structlog", "orjson"}


def run(*argv: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run with an environment in which no variable leads Python back to the sources."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    return subprocess.run([*map(str, argv)], cwd=cwd, env=clean, capture_output=True, text=True, timeout=120)


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel from a copy of the files that git would have, and return its path.

    The copy keeps stray files out of the wheel, and the build changes nothing in the sources.
    """
    listed = run("git", "ls-files", "-co", "--exclude-standard", cwd=REPOSITORY)
    if listed.returncode:
        not_to_be_had("what belongs to the project git alone knows. Run this test in a git checkout")
    sources, out = tmp_path_factory.mktemp("sources"), tmp_path_factory.mktemp("wheel")
    for name in listed.stdout.splitlines():
        if (REPOSITORY / name).is_file():
            (sources / name).parent.mkdir(parents=True, exist_ok=True)
            (sources / name).write_bytes((REPOSITORY / name).read_bytes())
    built = run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, sources, cwd=out)
    assert built.returncode == 0, built.stdout + built.stderr
    (found,) = out.iterdir()
    return found


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a virtual environment with the wheel in it; its dependencies are those of the running environment.

    The dependencies come by a line in a .pth file. Python ignores the .pth files of an environment that is added that
    way, so an editable install in the running environment does not bring the sources back.
    """
    home = tmp_path_factory.mktemp("installed")
    venv.create(home, with_pip=False, symlinks=True)
    python = home / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index", wheel]
    done = run(*pip, cwd=home)
    assert done.returncode == 0, done.stderr
    (packages,) = home.glob("lib/python3*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return home


def test_adapters_is_a_source_root_and_no_package() -> None:
    # With an __init__.py our wheel would overwrite a popular package of that name.
    assert not (REPOSITORY / "adapters" / "__init__.py").exists()


def test_the_wheel_holds_the_packages_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    tops = {name.split("/")[0] for name in names}
    assert tops == PACKAGES | {f"redeliver_mw-{PROJECT['version']}.dist-info"}
    assert {name for name in names if name.endswith("py.typed")} == {f"{package}/py.typed" for package in PACKAGES}
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_the_wheel_holds_every_module_of_the_sources(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        shipped = {name for name in archive.namelist() if name.endswith(".py")}
    roots = [(REPOSITORY, "redeliver_mw"), *((REPOSITORY / "adapters", name) for name in PACKAGES - {"redeliver_mw"})]
    sources = {str(file.relative_to(root)) for root, package in roots for file in (root / package).rglob("*.py")}
    assert shipped == sources


def test_the_wheel_is_imported_from_where_it_was_installed(installed: Path, tmp_path: Path) -> None:
    code = "import redeliver_mw, redeliver_pika; print(redeliver_mw.__file__, redeliver_pika.__file__, sep='\\n')"
    done = run(installed / "bin" / "python", "-c", code, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert all(Path(line).is_relative_to(installed) for line in done.stdout.splitlines()), done.stdout


def test_every_public_name_can_be_had_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    code = "import redeliver_mw as r; print(len({id(getattr(r, name)) for name in r.__all__}))"
    done = run(installed / "bin" / "python", "-c", code, cwd=tmp_path)
    assert (done.stdout.strip(), done.stderr) == (str(len(PUBLIC)), "")


def test_the_command_checks_a_policy_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    done = run(installed / "bin" / "redeliver", "check", "3:25; 5:50; 10:move(queue:dlq$error)", cwd=tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("dialect", ADAPTERS)
def test_an_adapter_is_found_by_its_entry_point_in_the_wheel(dialect: str, installed: Path, tmp_path: Path) -> None:
    code = (
        "from importlib.metadata import entry_points; "
        f"(e,) = entry_points(group='redeliver_mw.adapters', name='{dialect}'); print(e.load().__module__)"
    )
    done = run(installed / "bin" / "python", "-c", code, cwd=tmp_path)
    assert done.stdout.split(".")[0].strip() == ADAPTERS[dialect], done.stderr


def test_the_version_stands_in_one_place(installed: Path, tmp_path: Path) -> None:
    code = "import importlib.metadata as m, redeliver_mw as r; print(m.version('redeliver-mw'), r.__version__)"
    done = run(installed / "bin" / "python", "-c", code, cwd=tmp_path)
    assert done.stdout.split() == [PROJECT["version"]] * 2, done.stderr
    sources = [*(REPOSITORY / "redeliver_mw").rglob("*.py"), *(REPOSITORY / "adapters").rglob("*.py")]
    assert [file for file in sources if f'"{PROJECT["version"]}"' in file.read_text()] == []


def test_importing_the_package_pulls_in_no_driver_and_nothing_heavy(installed: Path, tmp_path: Path) -> None:
    code = "import sys, json, redeliver_mw; print(json.dumps(sorted(sys.modules)))"
    done = run(installed / "bin" / "python", "-c", code, cwd=tmp_path)
    loaded = {name.split(".")[0] for name in json.loads(done.stdout)}
    assert "redeliver_mw" in loaded
    assert loaded.isdisjoint(HEAVY)


def test_the_decorator_and_a_policy_pull_in_no_driver_and_no_command_line(installed: Path, tmp_path: Path) -> None:
    code = (
        "import sys, json; from redeliver_mw import redeliver, Reject\n"
        "@redeliver('3:25; 10:move(queue:dlq$error)')\ndef handler(delivery): ...\n"
        "print(json.dumps(sorted(sys.modules)))"
    )
    done = run(installed / "bin" / "python", "-c", code, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    loaded = {name.split(".")[0] for name in json.loads(done.stdout)}
    assert loaded.isdisjoint({"pika", "sqlalchemy", "pydantic", "typer", "rich"})


# `pika` as it is where it was never installed.
WITHOUT_PIKA = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "pika":
            raise ModuleNotFoundError("No module named 'pika'", name="pika")
sys.meta_path.insert(0, Absent())
from redeliver_mw.errors import MissingExtra
from redeliver_mw.registry import adapter_for
try:
    adapter_for("rabbitmq://guest:secret@h/")
except MissingExtra as missing:
    print(missing)
"""


def test_a_missing_driver_says_which_extra_to_install(installed: Path, tmp_path: Path) -> None:
    done = run(installed / "bin" / "python", "-c", WITHOUT_PIKA, cwd=tmp_path)
    assert "redeliver-mw[pika]" in done.stdout, done.stdout + done.stderr
    assert "secret" not in done.stdout
    assert done.stderr == ""


def test_the_extra_that_is_named_exists() -> None:
    assert {"pika", "rabbitmq", "all"} <= PROJECT["optional-dependencies"].keys()


def test_the_public_names_are_the_promised_ones_sorted() -> None:
    assert redeliver_mw.__all__ == PUBLIC


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_leads_to_a_thing_of_that_name(name: str) -> None:
    assert getattr(redeliver_mw, name).__name__ == name


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="Redeliver"):
        _ = redeliver_mw.Redeliver


def test_every_public_name_is_listed_by_dir() -> None:
    assert set(PUBLIC) <= set(dir(redeliver_mw))


def test_the_lock_file_names_every_dependency_and_no_address() -> None:
    locked = (REPOSITORY / "requirements.lock").read_text().splitlines()
    names = {line.split("==")[0].lower() for line in locked if "==" in line}
    needed = sum(PROJECT["optional-dependencies"].values(), PROJECT["dependencies"])
    wanted = {
        item.split(">")[0].split("[")[0].lower().replace(".", "-")
        for item in needed
        if not item.startswith("redeliver-mw")
    }
    assert wanted <= names
    assert [line for line in locked if "://" in line] == []
