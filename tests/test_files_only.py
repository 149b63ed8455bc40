"""No shipped code opens a file but through hardware/files, and nothing parses YAML or JSON beside it.

Reads the source. Exceptions: data of the package through importlib.resources, what lies under /proc, and the
temporary file that ``written`` hands out.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from checkout import ROOT, modules

OPENING = {"read_text", "read_bytes", "write_text", "write_bytes", "open", "touch"}
"""Methods of a path. ``open`` of something else takes no mode, and is no method of sim/engine's ranks."""

OTHERS = {
    ("gzip", "open"),
    ("gzip", "decompress"),
    ("io", "open"),
    ("json", "load"),
    ("json", "loads"),
    ("orjson", "loads"),
    ("nx", "read_graphml"),
    ("os", "open"),
    ("os", "rename"),
    ("os", "replace"),
    ("pd", "read_csv"),
    ("shutil", "copy"),
    ("sqlite3", "connect"),
    ("tempfile", "NamedTemporaryFile"),
    ("yaml", "compose"),
    ("yaml", "load"),
    ("yaml", "safe_load"),
}
WRITERS = {"to_csv", "to_parquet", "to_json", "to_pickle", "savefig", "tofile"}

TOLD = OPENING | WRITERS | {method for _, method in OTHERS}
"""By their methods alone, calls that may open a file."""

ALLOWED = {
    ("cli/main.py", "open(os.devnull, 'w', encoding='utf-8')"),  # where messages go that nobody can have
    ("cli/serve.py", "webbrowser.open(address)"),  # a browser
    ("cli/mistakes.py", "os.open(os.devnull, os.O_WRONLY)"),
    ("hardware/catalogue.py", "path.read_text(encoding='utf-8')"),  # tables of ours, and what a program adds
    ("sim/report/drawing/chart.py", "figure.savefig(document, format='svg', metadata={'Date': None})"),
    (
        "sim/report/drawing/raster.py",
        "figure.savefig(written, format='png', dpi=72 * SCALE, metadata={'Software': None})",
    ),  # in memory
    ("sim/report/drawing/chart.py", "json.loads(group.get('id', '').removeprefix(_HINT))"),  # its own words
    ("sim/plan/search/journal.py", "path.read_bytes()"),  # the program's own source
    ("calibration/readers/operation_log.py", "pd.read_csv(StringIO(text))"),  # in memory
    ("hardware/graph_file.py", "nx.read_graphml(BytesIO(content))"),  # checked, and in memory
    ("calibration/measure/collectives.py", "Path('/proc/cpuinfo').read_text(encoding='utf-8')"),
    ("calibration/measure/device.py", "info.read_text(encoding='utf-8', errors='replace')"),  # /proc/cpuinfo
}

SOURCES = sorted(
    path.relative_to(ROOT)
    for path in modules().values()
    if not path.relative_to(ROOT).as_posix().startswith("hardware/files/")
)


def opened(tree: ast.AST, name: str) -> Iterator[str]:
    """Calls that open, move or parse files."""
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call):
            continue
        if isinstance(call.func, ast.Name):
            if call.func.id == "open":
                yield ast.unparse(call)
        elif isinstance(call.func, ast.Attribute) and _opens(call, call.func, name):
            yield ast.unparse(call)


def _opens(call: ast.Call, method: ast.Attribute, name: str) -> bool:
    if method.attr not in TOLD:
        return False
    owner = method.value
    said = ast.unparse(owner)
    if (said, method.attr) in OTHERS:
        return not _of_the_package(call)
    if method.attr in WRITERS:
        return not (call.args and ast.unparse(call.args[0]) == "unfinished")
    if method.attr not in OPENING or said in (
        "files",
        "unfinished",
        "formatter",
    ):  # ours; a path; of help pages
        return False
    if method.attr == "open" and name.startswith("sim/engine/"):
        return False
    return not _of_the_package(owner)


def _of_the_package(node: ast.AST) -> bool:
    """Whether it reads by importlib.resources, or parses what was read so."""
    inner = [ast.unparse(call.func) for call in ast.walk(node) if isinstance(call, ast.Call)]
    return "files" in inner or "collectives_text" in inner


def opened_elsewhere(path: Path) -> list[str]:
    """Calls of a file of ours that open another file, and may not."""
    text = (ROOT / path).read_text(encoding="utf-8")
    if not any(method in text for method in TOLD):
        return []
    found = list(opened(ast.parse(text), path.as_posix()))
    own_data = "importlib.resources" in text
    return [
        call
        for call in found
        if (path.as_posix(), call) not in ALLOWED and not (own_data and call.startswith("yaml."))
    ]


@pytest.mark.slow
def test_files_are_opened_in_one_place() -> None:
    found = {path.as_posix(): opened_elsewhere(path) for path in SOURCES}
    assert len(found) > 300  # the walk sees them
    assert {path: calls for path, calls in found.items() if calls} == {}


def test_every_exception_is_needed() -> None:
    for name, call in ALLOWED:
        assert call in set(opened(ast.parse((ROOT / name).read_text(encoding="utf-8")), name)), (name, call)


@pytest.mark.parametrize(
    "code",
    [
        "Path(x).read_text()",
        "path.open('w')",
        "open(x)",
        "with path.open() as file: pass",
        "yaml.safe_load(text)",
        "json.loads(text)",
        "frame.to_csv(path)",
        "sqlite3.connect(path)",
        "gzip.open(path)",
    ],
)
def test_the_walk_sees_what_opens_files(code: str) -> None:
    assert list(opened(ast.parse(code), "sim/some.py"))
    assert not list(opened(ast.parse("files(__package__).joinpath(x).read_text('utf-8')"), "sim/some.py"))
