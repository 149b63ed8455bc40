"""Archives of measurements: each member is read as the file would be, and what is none is named."""

from __future__ import annotations

import io
import json
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from fuzz.corpus import FOLDER
from small_jobs import command

from stepsim.calibration.readers.measured import Measured
from stepsim.calibration.readers.read import read_measured
from stepsim.hardware.files import archives

MEASURED = ("kernels.csv", "collectives.csv", "torch.json", "nccl.txt")
GPU, NETWORK = "H100-SXM5-80GB", "ib-ndr400-x8"
NAMES = ("logs.tar", "logs.tar.gz", "logs.tgz", "logs.tar.xz", "logs.zip")


def packed(path: Path, files: dict[str, bytes]) -> Path:
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in files.items():
                archive.writestr(f"run/{name}", content)
        return path
    how = {".gz": "gz", ".tgz": "gz", ".xz": "xz"}.get(path.suffix, "")
    with tarfile.open(path, f"w:{how}") as archive:  # type: ignore[call-overload]
        for name, content in files.items():
            member = tarfile.TarInfo(f"run/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def contents(*names: str) -> dict[str, bytes]:
    return {name: (FOLDER / name).read_bytes() for name in names}


def nameless(measured: Measured) -> Measured:
    return replace(measured, file=Path(measured.file).name)


@pytest.mark.parametrize("name", NAMES)
def test_members_are_read_as_files_are(name: str, tmp_path: Path) -> None:
    path = packed(tmp_path / name, contents(*MEASURED))
    found, refused = read_measured([path], GPU, NETWORK)
    alone, _ = read_measured([FOLDER / one for one in MEASURED], GPU, NETWORK)
    assert not refused
    assert [nameless(one) for one in found] == [nameless(one) for one in alone]


def test_a_profile_is_fitted_on_an_archive(tmp_path: Path) -> None:
    table = contents("kernels.csv")
    path = packed(tmp_path / "logs.tgz", table | {"README.md": b"what this is", "job.yaml": b"a: 1"})
    told, alone = (
        json.loads(command("calibrate", "fit", one, "--out", out, "--json").partition("\nprofile")[0])
        for one, out in ((path, tmp_path / "a.yaml"), (FOLDER / "kernels.csv", tmp_path / "b.yaml"))
    )
    assert told["fitted"] == alone["fitted"]
    assert {Path(one["file"]).name for one in told["refused"]} == {"README.md", "job.yaml"}
    assert not alone["refused"]


def test_logs_in_an_archive_are_predicted(tmp_path: Path) -> None:
    path = packed(tmp_path / "logs.tgz", contents("nccl.txt"))
    packed_up, alone = (
        json.loads(command("validate", "--nccl", one, "--json")) for one in (path, FOLDER / "nccl.txt")
    )
    assert packed_up["rows"] == alone["rows"]


def test_an_archive_without_a_measurement_is_refused(tmp_path: Path) -> None:
    path = packed(tmp_path / "logs.zip", {"notes.txt": b"nothing", "inner.tgz": b"\x1f\x8b..."})
    said = command("calibrate", "fit", path, "--out", tmp_path / "a.yaml", code=2)
    assert "notes.txt" in said
    assert "gzip" in said
    damaged = tmp_path / "logs.tgz"
    damaged.write_bytes(b"\x1f\x8b" + bytes(100))
    assert "archive" in command("calibrate", "fit", damaged, "--out", tmp_path / "a.yaml", code=2)


def test_a_member_that_unpacks_to_too_much_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives.members, "__kwdefaults__", {"limit": 1000})
    path = packed(tmp_path / "logs.tgz", {"a.csv": b"0" * 2000})
    with pytest.raises(ValueError, match="holds more"):
        read_measured([path])
