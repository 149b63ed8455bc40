"""Writing files: whole or not at all, never over what was read, and nothing is left behind."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any, BinaryIO, cast

import pytest

from stepsim.hardware.files import (
    FileError,
    append_row,
    append_text,
    note_output,
    one_command,
    read_text,
    write_bytes,
    write_text,
    written,
)


@pytest.fixture
def old(tmp_path: Path) -> Path:
    file = tmp_path / "old.txt"
    file.write_text("old")
    return file


def only(file: Path, text: str = "old") -> bool:
    """Whether the folder holds this file, with this text, and no other."""
    return list(file.parent.iterdir()) == [file] and file.read_text() == text


def test_a_file_is_replaced_and_keeps_its_permissions(old: Path) -> None:
    old.chmod(0o640)
    write_text(old, "new\r\n\ud800")
    assert only(old, "new\r\n\\ud800") or old.read_bytes() == b"new\r\n\\ud800"
    assert old.stat().st_mode & 0o7777 == 0o640


def test_a_new_file_has_the_permissions_that_others_get(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("")
    write_bytes(tmp_path / "b", b"")
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "b").stat().st_mode


@pytest.mark.parametrize("failure", [RuntimeError, KeyboardInterrupt, OSError, SystemExit])
def test_what_fails_leaves_everything_as_it_was(failure: type[BaseException], old: Path) -> None:
    def fail() -> None:
        with written(old) as unfinished:
            unfinished.write_text("half")
            raise failure

    with pytest.raises(FileError if failure is OSError else failure):
        fail()
    assert only(old)


def test_a_full_disk_leaves_the_old_file(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, content: bytes) -> int:
        with path.open("wb") as file:
            file.write(content[:2])
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(FileError) as refused:
        write_text(old, "new")
    assert refused.value.file == str(old)
    assert refused.value.reason.endswith(os.strerror(errno.ENOSPC))
    assert "unfinished" not in str(refused.value)
    assert only(old)


def test_symbolic_links_stay_and_their_file_is_replaced(old: Path) -> None:
    link = old.with_name("link")
    link.symlink_to(old.name)
    write_text(link, "new")
    assert link.is_symlink()
    assert old.read_text() == "new"
    dangling = old.with_name("dangling")
    dangling.symlink_to("later.txt")
    write_text(dangling, "made")
    assert old.with_name("later.txt").read_text() == "made"


def test_folders_devices_and_missing_folders_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe", Path("/dev/null"), tmp_path / "none" / "a", Path("/proc/a")):
        with pytest.raises(FileError) as refused:
            write_text(path, "new")
        assert refused.value.file == str(path)
    assert [one.name for one in tmp_path.iterdir()] == ["pipe"]


def test_a_name_of_the_greatest_length_is_written(tmp_path: Path) -> None:
    write_text(tmp_path / ("x" * 255), "new")
    assert (tmp_path / ("x" * 255)).read_text() == "new"


def names_of(old: Path) -> list[Path]:
    """Every way to name a file."""
    hard, soft = old.with_name("hard"), old.with_name("soft")
    hard.hardlink_to(old)
    soft.symlink_to(old)
    return [old, hard, soft, old.parent / ".." / old.parent.name / old.name]


def test_what_was_read_is_never_written_by_any_name(old: Path) -> None:
    with one_command():
        read_text(old)
        for name in names_of(old):
            with pytest.raises(FileError, match="has read"):
                write_text(name, "new")
            with pytest.raises(FileError, match="has read"):
                append_text(name, "new")
            with pytest.raises(FileError, match="has read"):
                note_output(name, "--trace")
    assert old.read_text() == "old"
    write_text(old, "another command")


def test_what_will_be_written_is_not_read(old: Path) -> None:
    """The order in which a command comes across them does not matter: no work is done in vain."""
    for name in names_of(old):
        with one_command():
            note_output(name, "--trace")
            with pytest.raises(FileError, match="--trace"):
                read_text(old)


def test_two_outputs_have_two_files(old: Path) -> None:
    for name in names_of(old):
        with one_command():
            note_output(old, "--trace")
            note_output(old, "--trace")
            with pytest.raises(FileError, match=r"--trace.*--spans"):
                note_output(name, "--spans")
    new = old.with_name("new")
    with one_command():
        note_output(new, "--trace")
        with pytest.raises(FileError, match=r"--trace.*--spans"):
            note_output(new.parent / "." / "new", "--spans")
        write_text(new, "once")
        with pytest.raises(FileError, match="already written"):
            write_text(new, "twice")


def test_a_file_that_is_edited_is_read_and_written(old: Path) -> None:
    with one_command():
        write_text(old, read_text(old) + "er", edits=True)
        append_text(old, "!", edits=True)
    assert only(old, "older!")


def test_appending_keeps_what_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append_text(tmp_path / "a", "one\n")
    append_text(tmp_path / "a", "two\n")
    assert only(tmp_path / "a", "one\ntwo\n")
    with pytest.raises(FileError):
        append_text(tmp_path, "three\n")


def test_rows_are_added_to_a_table_of_their_columns_alone(tmp_path: Path) -> None:
    table = tmp_path / "a.csv"
    append_row(table, ("a", "b"), {"a": 1, "b": "x,y"})
    append_row(table, ("a", "b"), {"a": 2})
    assert table.read_bytes() == b'a,b\r\n1,"x,y"\r\n2,\r\n'
    with table.open("ab") as file:
        file.write(b"3,cut")  # a writer that was stopped
    append_row(table, ("a", "b"), {"a": 4, "b": 5})
    assert table.read_bytes().endswith(b"3,cut\r\n4,5\r\n")
    for other in (b"a,c\r\n", b"text", b"\xff\xfe\0"):
        table.write_bytes(other)
        with pytest.raises(FileError, match="other columns"):
            append_row(table, ("a", "b"), {"a": 1, "b": 2})
        assert table.read_bytes() == other


def test_a_row_that_does_not_fit_on_the_disk_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full:
        def __init__(self, file: BinaryIO) -> None:
            self.file = file

        def __enter__(self) -> Full:
            return self

        def __exit__(self, *_: object) -> None:
            self.file.close()

        def write(self, text: bytes) -> int:
            self.file.write(text[:2])
            self.file.flush()
            raise OSError(28, "No space left on device")

        def __getattr__(self, name: str) -> Any:
            return getattr(self.file, name)

    table = tmp_path / "a.csv"
    table.write_text("one\n")
    opened = Path.open
    monkeypatch.setattr(Path, "open", lambda self, *mode: Full(cast(Any, opened(self, *mode))))
    with pytest.raises(FileError) as refused:
        append_text(table, "two\n")
    assert refused.value.reason.endswith(os.strerror(errno.ENOSPC))
    monkeypatch.undo()
    assert table.read_text() == "one\n"


def test_without_a_scope_a_library_may_read_and_write(old: Path) -> None:
    write_text(old, read_text(old))
    write_text(old, read_text(old))
    assert only(old)
