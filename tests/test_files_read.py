"""Reading files of users: what is no file, what is too large, too deep or too clever ends in one sentence."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import sqlite3
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from stepsim.hardware.files import (
    FileError,
    JsonLimits,
    YamlError,
    YamlLimits,
    check_xml,
    decoded,
    load_json,
    load_yaml,
    open_database,
    read_bytes,
    read_text,
    unpacked,
)
from stepsim.sim.program.check import BrokenProgram
from stepsim.sim.scenario.errors import Mark, Problem, ScenarioError
from stepsim.sim.scenario.refusal import NotSupported

# Files ------------------------------------------------------------------------------------------------------


def test_ordinary_files_are_read_whole(tmp_path: Path) -> None:
    file = tmp_path / "a b?#%41"
    file.write_bytes(b"\xef\xbb\xbfgr\xc3\xbc\xc3\x9fe\r\n")
    assert read_bytes(file) == b"\xef\xbb\xbfgr\xc3\xbc\xc3\x9fe\r\n"
    assert read_text(file) == "grüße\r\n"


def test_what_is_no_file_is_refused_and_never_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    kinds = {
        tmp_path / "missing": "no file",
        tmp_path: "folder",
        tmp_path / "pipe": "pipe",
        Path("/dev/null"): "device",
        loop: "symbolic links",
        Path("/etc/passwd/below"): "Not a directory",
        Path("x" * 5000): "name too long",
    }
    for path, word in kinds.items():
        with pytest.raises(FileError, match=word) as refused:
            read_text(path)
        assert refused.value.file == str(path)
    with pytest.raises(FileError, match="null"):
        read_text("a\0b")


def test_limits_of_bytes_hold_also_where_the_size_is_not_known(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 11)
    assert len(read_bytes(tmp_path / "a", limit=11)) == 11
    with pytest.raises(FileError, match="10 bytes"):
        read_bytes(tmp_path / "a", limit=10)
    with pytest.raises(FileError, match="3 bytes"):
        read_bytes("/proc/self/status", limit=3)  # its size is said to be 0


def test_text_that_is_not_utf8_is_refused_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"one\ntwo \xff")
    with pytest.raises(FileError, match="UTF-8") as refused:
        read_text(tmp_path / "a")
    assert (refused.value.line, refused.value.column) == (2, 5)


def test_json_that_is_not_utf8_is_refused_as_all_text_is() -> None:
    for content in (b'{"a":\n "\xff"}', bytes(range(256)), gzip.compress(b"{}")):
        with pytest.raises(FileError) as as_json:
            load_json(content, "f")
        with pytest.raises(FileError) as as_text:
            decoded(content, "f")
        assert vars(as_json.value) == vars(as_text.value)


def test_errors_of_files_pass_through_workers() -> None:
    problem = Problem(mark=Mark(file="f"), path="model", message="is odd")
    for error in (
        FileError("f", "is odd", line=3, column=4),
        YamlError("f", "is odd"),
        ScenarioError([problem]),
        NotSupported("model", "is odd"),
        BrokenProgram("f", ("one", "two")),
    ):
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))


# YAML -------------------------------------------------------------------------------------------------------

WORDS = st.text(st.characters(max_codepoint=0xD7FF), max_size=6)  # YAML has no escaped pairs of halves
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | WORDS
DOCUMENTS = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.dictionaries(WORDS, inner), max_leaves=20
)


@given(DOCUMENTS, st.booleans())
def test_json_is_yaml(document: object, flow: bool) -> None:
    """Another writer's rules: JSON's escapes, quotes and numbers are YAML 1.2's."""
    text = json.dumps(document, ensure_ascii=True, indent=None if flow else 1)
    assert load_yaml(text, "f") == document


@given(
    st.recursive(st.text("ab c:#-?&*!|>'\"%@`,[]{}", max_size=6), lambda inner: st.lists(inner, max_size=3))
)
def test_what_pyyaml_writes_is_read(document: object) -> None:
    assert load_yaml(yaml.safe_dump(document), "f") == document


def nested(opening: str, levels: int, closing: str = "") -> str:
    return opening * levels + closing * levels


@pytest.mark.parametrize(
    "text",
    [
        nested("[", 100_000),
        nested("{a: ", 100_000),
        nested("- ", 100_000),
        nested("? ", 100_000),
        "\n".join(" " * level + "a:" for level in range(1000)),
        nested("[", 65, "]"),
        "a: &a " + nested("[", 40, "]") + "\nb: " + "[" * 30 + "*a" + "]" * 30,
    ],
)
def test_depth_is_limited_at_its_place(text: str) -> None:
    with pytest.raises(YamlError, match="64 levels") as refused:
        load_yaml(text, "f")
    assert refused.value.line >= 1
    assert refused.value.column >= 1


def test_depth_64_is_read() -> None:
    assert str(load_yaml(nested("[", 64, "]"), "f")).count("[") == 64


def test_aliases_are_counted_in_full() -> None:
    laughs = "".join(f"- &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12))
    with pytest.raises(YamlError, match="more than"):
        load_yaml(f"- &a0 [{', '.join('x' * 9)}]\n{laughs}", "f")
    assert load_yaml("a: &a [1, 2]\nb: [*a, *a]", "f")["b"] == [[1, 2], [1, 2]]


@pytest.mark.parametrize("text", ["x: &a [*a]", "&a {b: {c: *a}}", "- &a\n  - &b\n    - *a"])
def test_what_contains_itself_is_refused(text: str) -> None:
    with pytest.raises(YamlError, match="contains itself"):
        load_yaml(text, "f")


def test_merge_keys_lie_below_own_keys() -> None:
    text = "- &a {x: 1, y: 1}\n- &b {y: 2, z: 2}\n- {<<: [*a, *b], x: 3}\n- {'<<': 4}"
    assert load_yaml(text, "f")[2:] == [{"x": 3, "y": 1, "z": 2}, {"<<": 4}]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("a: [1\nb: }", (2, 2)),
        ("a: 1\na: 2", (2, 1)),
        ("? [a, b]\n: 1", (1, 3)),
        ("a: 1\n---\nb: 1", (2, 1)),
        ("a:\n  *b", (2, 3)),
        ("a: !!python/object:os.system x", (1, 4)),
        ("a: " + "9" * 5000, (1, 4)),
        ("a: !!int " + "9" * 5000, (1, 4)),
        ("<<: 1", (1, 1)),
    ],
)
def test_mistakes_have_their_place(text: str, place: tuple[int, int]) -> None:
    with pytest.raises(YamlError) as refused:
        load_yaml(text, "f")
    assert (refused.value.line, refused.value.column) == place
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize("text", ["a: \x01", "a: \ud800", "a: \x1b[31m"])
def test_characters_that_yaml_does_not_allow(text: str) -> None:
    with pytest.raises(YamlError, match="YAML allows"):
        load_yaml(text, "f")


def test_nodes_and_bytes_are_limited() -> None:
    with pytest.raises(YamlError, match="100 keys"):
        load_yaml("[" + "1, " * 101 + "]", "f", YamlLimits(nodes=100))
    with pytest.raises(YamlError, match="100 bytes"):
        load_yaml("x" * 101, "f", YamlLimits(bytes=100))


@pytest.mark.parametrize("text", ["1" + ":1" * 100_000, "0x" + "f" * 100_000, "2001-99-99", "1_0"])
def test_what_yaml_1_1_takes_for_odd_numbers_is_text(text: str) -> None:
    assert load_yaml(text, "f") == text


# JSON, gzip, SQLite, XML ------------------------------------------------------------------------------------


@pytest.mark.slow
@given(DOCUMENTS.filter(lambda document: "e" not in repr(document)))
def test_json_is_read_as_by_the_standard_library(document: object) -> None:
    text = json.dumps(document)
    if all(abs(number) < 2**63 for number in _integers(document)):
        assert load_json(text.encode(), "f") == document


def _integers(document: object) -> list[int]:
    if isinstance(document, dict):
        return [number for value in document.values() for number in _integers(value)]
    if isinstance(document, list):
        return [number for value in document for number in _integers(value)]
    return [document] if isinstance(document, int) else []


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        "[" * 65 + "]" * 65,
        '{"a":' * 500 + "1" + "}" * 500,
        '{"a": NaN}',
        "[Infinity]",
        "[1e999]",
        '{"a": 1, "a": 2}',
        '[{"b": {"a": 1, "a": 2}}]',
        "{",
        "",
        '"\\ud800"',
    ],
)
def test_json_that_is_refused(text: str) -> None:
    with pytest.raises(FileError, match=r"^f"):
        load_json(text, "f")


def test_limits_of_json() -> None:
    assert load_json(b"\xef\xbb\xbf[1]", "f") == [1]
    with pytest.raises(FileError, match="3 entries"):
        load_json("[[1, 2], [3]]", "f", JsonLimits(entries=3))
    with pytest.raises(FileError, match="3 bytes"):
        load_json("[1, 2]", "f", JsonLimits(bytes=3))


@given(st.lists(st.binary(max_size=2000), min_size=1, max_size=3))
def test_what_gzip_packs_is_unpacked(parts: list[bytes]) -> None:
    assert unpacked(b"".join(map(gzip.compress, parts)) + b"\0\0", "f") == b"".join(parts)


def test_text_that_is_packed_is_said_to_be(tmp_path: Path) -> None:
    path = tmp_path / "cases.json.gz"
    path.write_bytes(gzip.compress(b"{}"))
    with pytest.raises(FileError) as refused:
        read_text(path)
    assert (refused.value.file, refused.value.line) == (str(path), 0)
    assert "gzip" in refused.value.reason


@pytest.mark.slow
def test_gzip_that_expands_without_end_or_is_damaged() -> None:
    packed = gzip.compress(b"\0" * 2**27)
    with pytest.raises(FileError, match="its size"):
        unpacked(packed, "f")
    with pytest.raises(FileError, match="1 KiB"):
        unpacked(gzip.compress(os.urandom(2000)), "f", limit=1024)
    packed = gzip.compress(os.urandom(3000))
    for damaged in (b"", b"plain", packed[:-4], packed[:1000], packed[:-4] + b"abcd"):
        with pytest.raises(FileError, match="gzip"):
            unpacked(damaged, "f")


@pytest.mark.parametrize("name", ["h#x.sqlite", "%41.db", "a?mode=rwc", "plain.db", "?", "ü ä.db"])
def test_databases_have_any_name_and_nothing_is_made(name: str, tmp_path: Path) -> None:
    file = tmp_path / name
    with sqlite3.connect(file) as base:
        base.execute("CREATE TABLE t (a)")
        base.execute("INSERT INTO t VALUES (17)")
    base.close()
    with open_database(file) as opened:
        assert opened.execute("SELECT a FROM t").fetchall() == [(17,)]
    with pytest.raises(FileError, match="readonly"), open_database(file) as opened:
        opened.execute("INSERT INTO t VALUES (18)")
    assert [one.name for one in tmp_path.iterdir()] == [name]


def test_databases_in_write_ahead_mode_leave_no_files(tmp_path: Path) -> None:
    file = tmp_path / "a.db"
    base = sqlite3.connect(file)
    base.execute("PRAGMA journal_mode = WAL")
    base.execute("CREATE TABLE t (a)")
    base.close()
    with open_database(file) as opened:
        assert opened.execute("SELECT count(*) FROM t").fetchall() == [(0,)]
    assert [one.name for one in tmp_path.iterdir()] == ["a.db"]


def test_queries_without_end_are_stopped(tmp_path: Path) -> None:
    file = tmp_path / "a.db"
    with sqlite3.connect(file) as base:
        base.execute("CREATE TABLE t (a)")
    base.close()
    endless = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c"
    with pytest.raises(FileError, match="too long"), open_database(file, steps=3_000_000) as opened:
        opened.execute(endless).fetchall()


def test_what_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "a.db").write_bytes(b"SQLite format 3\0" + b"x" * 1000)
    (tmp_path / "b.db").write_bytes(b"text")
    for name in ("a.db", "b.db", "missing.db"):
        with pytest.raises(FileError, match=name), open_database(tmp_path / name) as opened:
            opened.execute("SELECT * FROM t")


@pytest.mark.parametrize(
    "content",
    [
        b"<a>" * 65,
        b'<!DOCTYPE a [<!ENTITY x "y">]><a>&x;</a>',
        b"<a>",
        b"",
        b'<?xml version="1.0" encoding="odd"?><a/>',
        b"<a>\x1b</a>",
    ],
)
def test_xml_that_is_refused(content: bytes) -> None:
    with pytest.raises(FileError, match=r"^f"):
        check_xml(content, "f")
    check_xml(b"<a>" * 64 + b"</a>" * 64, "f")
