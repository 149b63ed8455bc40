"""Who gets past the page's guard, and which documents name files: without any worker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from page_client import HERE, SMALL, TOKEN, changed
from starlette.testclient import TestClient

from stepsim.hardware.files import FileError, read_text, shipped_files_only
from stepsim.page.app import application
from stepsim.page.documents import FILE_FIELDS, SUFFIXES, named_files
from stepsim.page.guard import MOST_BYTES, is_here
from stepsim.page.workers import PageWorkers
from stepsim.sim.scenario.documents import scenario_names, whole_document
from stepsim.sim.scenario.errors import ScenarioError
from stepsim.sim.scenario.load import scenario_from_document

CLIENT = TestClient(application(TOKEN, PageWorkers(size=0)), base_url=HERE)
"""Not entered, so that no worker runs: whoever got as far as one would fail."""

FILES = ["mine.yaml", "../../etc/passwd.json", "/etc/x.csv", "a/b.GZ", " model.json "]


def asked(headers: dict[str, str] | None = None, body: str = "{}", path: str = "/api/predict") -> int:
    given_headers = {"x-stepsim-token": TOKEN, "content-type": "application/json", **(headers or {})}
    kept = {key: value for key, value in given_headers.items() if value}
    return CLIENT.post(path, content=body, headers=kept).status_code


@pytest.mark.parametrize(
    "host",
    [
        "example.org",
        "127.0.0.1.example.org",
        "127.0.0.1:x",
        "[::1]:8710",
        "0.0.0.0:8710",
        "localhost@evil:1",
        "",
    ],
)
def test_a_foreign_host_is_refused(host: str) -> None:
    assert asked({"host": host or " "}) == 421
    assert not is_here(host)
    assert CLIENT.get("/", headers={"host": host or " "}).status_code == 421


@pytest.mark.parametrize(
    "origin", ["http://example.org", "null", "https://127.0.0.1:8710", "http://localhost:8710"]
)
def test_a_foreign_origin_is_refused(origin: str) -> None:
    assert asked({"origin": origin}) == 403


def test_the_own_origin_may_ask() -> None:
    assert asked({"origin": HERE}, body="[]") == 400  # past the guard, and then no object


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_another_site_may_not_ask(site: str) -> None:
    assert asked({"sec-fetch-site": site}) == 403


@pytest.mark.parametrize("token", ["", "x", TOKEN[:-1], TOKEN + "x", TOKEN.upper()])
@pytest.mark.parametrize("path", ["/api/predict", "/api/catalogue", "/api/nothing"])
def test_without_the_token_nothing_is_told(token: str, path: str) -> None:
    assert asked({"x-stepsim-token": token}, path=path) == 401


@pytest.mark.parametrize(
    "kind", ["", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data"]
)
def test_only_json_is_read(kind: str) -> None:
    assert asked({"content-type": kind}) == 415


def test_a_large_body_is_refused() -> None:
    assert asked(body=" " * (MOST_BYTES + 1)) == 413
    assert asked(body=" " * (10 * 2**20)) == 413

    def parts() -> Any:  # a body whose length is not said
        yield b"[" + b" " * MOST_BYTES
        yield b"1]"

    headers = {"x-stepsim-token": TOKEN, "content-type": "application/json"}
    assert CLIENT.post("/api/predict", content=parts(), headers=headers).status_code == 413


@pytest.mark.parametrize(
    "body", ["", "{", "[1]", '"x"', "NaN", '{"a":1,"a":2}', "[" * 500, '{"x":' * 40 + "1" + "}" * 40]
)
def test_what_is_no_object_is_refused(body: str) -> None:
    assert asked(body=body) == 400


def test_every_answer_has_the_policy() -> None:
    for reply in (CLIENT.get("/"), CLIENT.get("/nothing"), CLIENT.post("/api/predict")):
        policy = reply.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert reply.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    "path",
    [
        "/../pyproject.toml",
        "/%2e%2e/first_scenario.py",
        "/static/index.html",
        "/first_scenario.py",
        "//etc/passwd",
    ],
)
def test_only_the_pages_files_are_served(path: str) -> None:
    assert CLIENT.get(path).status_code == 404


@pytest.mark.parametrize(
    "field", [*FILE_FIELDS, "model", "model.preset", "schedule", "calibration", "software"]
)
@pytest.mark.parametrize("file", FILES)
def test_documents_that_name_files_are_refused(field: str, file: str) -> None:
    document = changed(SMALL, field, [file] if field == "calibration" else file)
    assert named_files(document)
    assert asked(body=json.dumps({"document": document})) == 422


@pytest.mark.parametrize("field", FILE_FIELDS)
@given(
    value=st.one_of(
        st.text(), st.integers(), st.lists(st.text(), max_size=2), st.dictionaries(st.text(), st.text())
    )
)
def test_file_fields_are_refused_whatever_they_hold(field: str, value: object) -> None:
    assert [path for path, _ in named_files(changed(SMALL, field, value))] == [field]


@given(
    deep=st.lists(st.sampled_from(["cluster", "gpu", "x", "training"]), min_size=1, max_size=6),
    name=st.text(),
)
def test_names_of_files_are_found_wherever_they_stand(deep: list[str], name: str) -> None:
    for suffix in SUFFIXES:
        assert named_files(changed({}, ".".join(deep), [{"inner": name + suffix}]))


@pytest.mark.parametrize("name", scenario_names())
def test_what_ships_names_no_file(name: str) -> None:
    document = whole_document(name)[0].plain()
    document.pop("extends", None)
    document.pop("published", None)
    assert named_files(document) == []


def test_workers_open_nothing_but_what_ships(tmp_path: Path) -> None:
    """The second lock: a name that the first one missed."""
    own = tmp_path / "table.csv"
    own.write_text("0F0\n")
    with shipped_files_only():
        scenario_from_document({**SMALL, "calibration": ["H100-SXM5-80GB"]}, "page")
        reasons = set()
        for path in (own, Path("/etc/passwd"), tmp_path / "absent.yaml", Path(__file__)):
            with pytest.raises(FileError) as refused:
                read_text(path)
            reasons.add(refused.value.reason)
        assert len(reasons) == 1  # nor is it told whether there is one
        for field in ("schedule", "model"):
            with pytest.raises(ScenarioError, match=r"files .*document"):
                scenario_from_document(
                    {**SMALL, field: str(own) if field == "schedule" else "/etc/hosts.json"}, "page"
                )
    assert read_text(own)
