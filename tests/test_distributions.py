"""What the wheel and the sdist hold, and that stepsim runs from either where nothing else of it is.

Needs no network: setuptools builds both, and the libraries that stepsim depends on are those of the running
environment.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path
from typing import Any

import pytest
from checkout import PACKAGES, ROOT, folder
from typer.testing import CliRunner

import stepsim
from stepsim.cli.main import app

pytestmark = pytest.mark.xdist_group("distributions")  # each is built once

PIP_OPTIONS = ["--quiet", "--disable-pip-version-check", "--no-deps", "--no-index", "--no-build-isolation"]
SCENARIO = "llama3-8b-h100"
EPOCH = {"SOURCE_DATE_EPOCH": "1763900000"}


def output(command: list[str | Path], **options: Any) -> str:
    """Stdout of a command that succeeds."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout


def needs(tool: str) -> None:
    """Skip a test where ``tool`` cannot be imported."""
    if importlib.util.find_spec(tool) is None:
        pytest.skip(f"{tool} is not installed in this environment, and is what builds or installs here")


def copied(work: Path) -> Path:
    """A copy of the checkout: setuptools leaves a build folder behind, and reuses what is in it."""
    unwanted = shutil.ignore_patterns(".*", "build", "dist", "out", "*.egg-info", "__pycache__")
    return Path(shutil.copytree(ROOT, work / "checkout", ignore=unwanted))


def built(work: Path, number: int, mode: int) -> Path:
    """A folder with a wheel and an sdist, beside the checkout of these modes and dates that they are of."""
    needs("setuptools")
    checkout, out = copied(work), work / "out"
    for path in checkout.rglob("*.yaml"):
        path.chmod(mode)
        os.utime(path, (1e9 + number, 1e9 + number))
    script = [sys.executable, str(ROOT / ".ci" / "build_dist.py")]
    output([*script, "--source", str(checkout), "--out", str(out)], env={**os.environ, **EPOCH})
    return out


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("archives"), 0, 0o600)


@pytest.fixture(scope="module")
def wheel(archives: Path) -> Path:
    return next(archives.glob("*.whl"))


@pytest.fixture(scope="module")
def sdist(archives: Path) -> Path:
    return next(archives.glob("*.tar.gz"))


def shipped(copy: Path) -> set[str]:
    """The modules and data of the package in a copy of the checkout, relative to it."""
    wanted = {"py.typed"}
    for package in PACKAGES:
        home = copy / folder(package).relative_to(ROOT)
        data = (
            []
            if package == "stepsim"
            else [*home.rglob("*.yaml"), *home.glob("*.schema.json"), *page_files(home)]
        )
        wanted |= {path.relative_to(copy).as_posix() for path in [*home.glob("*.py"), *data]}
    return wanted


def page_files(home: Path) -> list[Path]:
    """What a browser reads; how its types are checked stays in the checkout."""
    return [path for path in home.glob("static/*") if path.suffix != ".json"]


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert held == {f"stepsim/{name}" for name in shipped(wheel.parents[1] / "checkout")}


def test_the_wheel_has_licence_and_script(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    notes = {name.partition(".dist-info/")[2]: name for name in archive.namelist() if ".dist-info/" in name}
    assert {"licenses/LICENSE", "licenses/NOTICE"} <= set(notes)
    assert "stepsim = stepsim.cli.start:main" in archive.read(notes["entry_points.txt"]).decode()


@pytest.mark.slow
def test_the_sdist_holds_what_builds_the_package_and_no_tests(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        files = [member.name for member in archive.getmembers() if member.isfile()]
    held = {name.partition("/")[2] for name in files}
    made = {name for name in held if name.startswith("stepsim.egg-info/")} | {"PKG-INFO", "setup.cfg"}
    builds = {"pyproject.toml", "MANIFEST.in", "README.md", "LICENSE", "NOTICE"}
    assert held - made == builds | shipped(sdist.parents[1] / "checkout")


@pytest.mark.slow
def test_whoever_builds_has_the_same_bytes(archives: Path, tmp_path: Path) -> None:
    """Modes, dates and the order of files in a checkout leave no trace."""
    folders = (archives, built(tmp_path, 1, 0o664))
    one, other = ({path.name: path.read_bytes() for path in folder.iterdir()} for folder in folders)
    assert one == other
    assert {Path(name).suffix for name in one} == {".whl", ".gz"}


def dependencies(work: Path) -> Path:
    """A folder that shows all that is installed in the running environment, but for stepsim itself."""
    seen = work / "dependencies"
    seen.mkdir()
    for home in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
        for path in Path(home).iterdir():
            if "stepsim" not in path.name and path.name != "__pycache__":
                (seen / path.name).symlink_to(path)
    return seen


def place(kind: str, environment: Path) -> Path:
    """Where an environment keeps its ``scripts``, or its ``purelib``."""
    return Path(sysconfig.get_path(kind, "venv", {"base": str(environment)}))


@pytest.fixture(scope="module", params=["wheel", "sdist"])
def installed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment into which the wheel, or the sdist, is installed."""
    archive: Path = request.getfixturevalue(request.param)
    needs("pip")
    work = tmp_path_factory.mktemp("installed")
    home = work / "environment"
    venv.create(home, with_pip=False, symlinks=True)
    path = place("purelib", home) / "dependencies.pth"
    path.write_text(f"{dependencies(work)}\n", encoding="utf-8")
    python = place("scripts", home) / "python"
    output(
        [sys.executable, "-m", "pip", "--python", python, "install", *PIP_OPTIONS, "--no-compile", archive]
    )
    return home


@pytest.mark.slow
@pytest.mark.parametrize("installed", ["wheel"], indirect=True)  # the files of the sdist are the same, below
def test_an_installed_stepsim_is_whole(installed: Path, tmp_path: Path) -> None:
    """Help, catalogues and a prediction are those of the checkout, while the code is the environment's."""
    command, python = (place("scripts", installed) / name for name in ("stepsim", "python"))
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    where = {"cwd": tmp_path, "env": clean}
    package = output([python, "-c", "import stepsim; print(stepsim.__file__)"], **where)
    assert Path(package.strip()).is_relative_to(installed)
    assert "Usage: stepsim" in output([command, "--help"], **where)
    assert output([command, "list"], **where) == CliRunner().invoke(app, ["list"]).stdout
    step = json.loads(output([command, "run", SCENARIO, "--json"], **where))
    assert step["step_time_s"] == stepsim.simulate(stepsim.load_scenario(SCENARIO)).step_time_s


@pytest.mark.slow
def test_an_installed_stepsim_has_every_file(installed: Path) -> None:
    home = place("purelib", installed) / "stepsim"
    files = {path.relative_to(home).as_posix(): path for path in home.rglob("*") if path.is_file()}
    held = {name: path for name, path in files.items() if not name.endswith(".pyc")}
    assert held.keys() == shipped(ROOT)
    assert [name for name, path in held.items() if path.read_bytes() != (ROOT / name).read_bytes()] == []
