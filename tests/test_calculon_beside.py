"""The benchmark that times Calculon beside ours, on a stand-in that takes what Calculon takes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from checkout import ROOT

STAND_IN = """
class System:
    def __init__(self, cfg):
        assert cfg == {}


class Llm:
    class Error(Exception):
        pass

    class Application:
        def __init__(self, cfg):
            assert cfg["hidden"] == cfg["attn_heads"] * cfg["attn_size"]
            self.num_blocks = cfg["num_blocks"]

    class Execution:
        def __init__(self, cfg):
            ranks = cfg["tensor_par"] * cfg["pipeline_par"] * cfg["data_par"]
            assert ranks == cfg["num_procs"]
            assert cfg["batch_size"] % (cfg["data_par"] * cfg["microbatch_size"]) == 0
            assert cfg["pipeline_par"] > 1 or cfg["pipeline_interleaving"] == 1
            assert cfg["data_par"] > 1 or not cfg["optimizer_sharding"]
            self.cfg = cfg

    def __init__(self, app, log):
        self.app = app

    def compile(self, system, execution):
        assert self.app.num_blocks % execution.cfg["pipeline_par"] == 0
        if execution.cfg["tensor_par"] == 1:
            raise self.Error("does not fit")

    def run(self, system):
        pass
"""


@pytest.mark.slow
def test_layouts_of_both_jobs_are_timed_in_one_process(tmp_path: Path) -> None:
    package = tmp_path / "calculon" / "llm"
    package.mkdir(parents=True)
    (tmp_path / "systems").mkdir()
    (tmp_path / "systems" / "h100_80g_nvl8.json").write_text("{}", encoding="utf-8")
    (package.parent / "__init__.py").write_text("", encoding="utf-8")
    (package / "__init__.py").write_text(STAND_IN, encoding="utf-8")
    command = [sys.executable, str(ROOT / "benchmarks" / "calculon_beside.py"), str(tmp_path)]
    done = subprocess.run([*command, "--count", "40"], check=True, capture_output=True, text=True)
    jobs = [json.loads(line) for line in done.stdout.splitlines()]
    assert [one["scenario"] for one in jobs] == ["llama3-70b-h100", "gpt3-175b-h100"]
    for one in jobs:
        assert one["calculon_layouts"] == 40
        assert 0 < one["calculon_fit"] < 40
        assert one["screening_layouts"] > 5_000
        assert one["calculon_ms"] > 0
        assert one["screening_ms"] > 0


def test_a_folder_without_calculon_is_refused_with_what_it_lacks(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "calculon_beside.py"), str(tmp_path)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 2
    assert f"{tmp_path} is not a checkout of Calculon: it has no systems/h100_80g_nvl8.json" in done.stderr
