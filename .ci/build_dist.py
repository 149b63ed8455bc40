"""Builds the wheel and the sdist so that anyone who builds the same commit has the same bytes.

    python .ci/build_dist.py [--out dist]                       of the last commit (make dist)
    python .ci/build_dist.py --source FOLDER [--out dist]       of that folder, which is changed by it

What would differ from machine to machine is set: dates by SOURCE_DATE_EPOCH (default: the commit's), modes of
files, their order and owners, the header of gzip. Needs setuptools, and no network.
"""

from __future__ import annotations

import argparse
import gzip
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BACKEND = "from setuptools import build_meta; build_meta.build_{}({!r})"


def build(source: Path, out: Path, epoch_s: int) -> tuple[Path, Path]:
    """Wheel and sdist of ``source`` in ``out``; leaves a build folder in ``source``."""
    even_modes(source)
    out.mkdir(parents=True, exist_ok=True)
    clock = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch_s), "PYTHONHASHSEED": "0"}
    for kind in ("wheel", "sdist"):
        command = [sys.executable, "-c", BACKEND.format(kind, str(out.resolve()))]
        ended = subprocess.run(command, cwd=source, env=clock, capture_output=True, text=True, check=False)
        if ended.returncode:
            raise SystemExit(f"no {kind}: {ended.stderr[-2000:]}")
    wheel, sdist = next(out.glob("*.whl")), next(out.glob("*.tar.gz"))
    sdist.write_bytes(evened(sdist.read_bytes(), epoch_s))
    return wheel, sdist


def even_modes(folder: Path) -> None:
    """Files as 644, folders as 755: the umask of a checkout would end in the archives."""
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)


def evened(archive: bytes, epoch_s: int) -> bytes:
    """A tar.gz with its members sorted, of one date and nobody's."""
    written = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(archive)) as old,
        gzip.GzipFile(filename="", fileobj=written, mode="wb", mtime=epoch_s) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as new,
    ):
        for member in sorted(old.getmembers(), key=lambda one: one.name):
            member.mtime, member.pax_headers = epoch_s, {}
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            new.addfile(member, old.extractfile(member) if member.isfile() else None)
    return written.getvalue()


def exported(folder: Path) -> Path:
    """The last commit's files in ``folder``, and nothing that lies about beside them."""
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as tree:
        tree.extractall(folder, filter="data")
    return folder


def epoch_of_commit() -> int:
    """When the last commit was made."""
    told = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=ROOT, check=True, capture_output=True)
    return int(told.stdout)


def main(arguments: list[str]) -> None:
    """Build, and say where the files are."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--source", type=Path)
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    chosen = parser.parse_args(arguments)
    stated = os.environ.get("SOURCE_DATE_EPOCH")
    epoch_s = epoch_of_commit() if stated is None else int(stated)
    shutil.rmtree(chosen.out, ignore_errors=True)
    with tempfile.TemporaryDirectory() as held:
        for path in build(chosen.source or exported(Path(held) / "stepsim"), chosen.out, epoch_s):
            print(path)


if __name__ == "__main__":
    main(sys.argv[1:])
