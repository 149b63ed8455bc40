"""What is added takes one file or one entry, and nothing else: each from outside the package, then used.

A schedule, a collective algorithm, a GPU, a network, a cluster in print, a kind of fault, an optimizer, a
software preset and an importer. No other file knows their names.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from stepsim.cli.main import app
from stepsim.hardware.catalogue import Table, read
from stepsim.hardware.gpus import GPUS
from stepsim.hardware.interconnect import INTERCONNECTS
from stepsim.hardware.published import PUBLISHED
from stepsim.schedules.collectives import ALGORITHMS
from stepsim.schedules.pipeline import SCHEDULES
from stepsim.schedules.registry import Registry
from stepsim.sim.scenario.faults.kinds import KINDS
from stepsim.sim.scenario.importers.registry import IMPORTERS
from stepsim.sim.scenario.optimizers import OPTIMIZERS
from stepsim.sim.scenario.software.presets import PRESETS, get_software

SMALL: dict[str, Any] = {
    "model": "gpt-22b",
    "cluster": {"gpu": "H100-SXM5-80GB", "gpus": 64, "interconnect": "ib-ndr400-x8"},
    "parallelism": {"tp": 8, "pp": 4},
    "training": {"global_batch": 16, "micro_batch": 1, "seq_length": 2048, "precision": "bf16"},
    "schedule": "gpipe",
    "software": "megatron-core-2024",
}

AddFile = Callable[[Registry[Any], str, str], None]
AddEntry = Callable[[Table[Any], str, dict[str, Any]], None]


@pytest.fixture
def add_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AddFile:
    """Puts a module into a folder of its own and has a registry look there, until the test ends."""

    def add(registry: Registry[Any], module: str, source: str) -> None:
        (tmp_path / f"{module}.py").write_text(source, encoding="utf-8")
        package = sys.modules[registry.package]
        monkeypatch.setattr(registry, "folders", list(registry.folders))
        monkeypatch.setattr(package, "__path__", registry.folders)
        monkeypatch.setitem(sys.modules, f"{registry.package}.{module}", package)  # so that it is taken back
        del sys.modules[f"{registry.package}.{module}"]
        registry.add(str(tmp_path))

    return add


@pytest.fixture
def add_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AddEntry:
    """Writes a file with one entry and has a table read it, until the test ends."""

    def add(table: Table[Any], name: str, entry: dict[str, Any]) -> None:
        path = tmp_path / f"{name}.yaml"
        path.write_text(yaml.safe_dump({name: entry}), encoding="utf-8")
        monkeypatch.setattr(table, "files", table.files)
        table.add(path)

    return add


def command(*arguments: object) -> Any:
    """What a command prints as JSON."""
    done = CliRunner().invoke(app, [*map(str, arguments), "--json"])
    assert done.exit_code in (0, 1), done.output
    return json.loads(done.stdout)


def run(tmp_path: Path, **blocks: Any) -> Any:
    path = tmp_path / "scenario.yaml"
    path.write_text(yaml.safe_dump({**SMALL, **blocks}), encoding="utf-8")
    return command("run", path)


def entry_like(table: Table[Any], name: str, **changes: Any) -> dict[str, Any]:
    """A shipped entry with other fields."""
    return {**read(table.files[0])[name], **changes}


def test_an_entry_of_a_name_that_another_file_has_is_refused(add_entry: AddEntry) -> None:
    name = GPUS.names()[0]
    add_entry(GPUS, name, entry_like(GPUS, name))
    with pytest.raises(ValueError, match=name):
        GPUS.records()


def test_a_schedule_is_one_file(tmp_path: Path, add_file: AddFile) -> None:
    """GPipe's orders under another name, so that its step is known."""
    source = (
        "from dataclasses import replace\n\nfrom .gpipe import SCHEDULE as GPIPE\n\n"
        "SCHEDULE = replace(GPIPE, name='all-forward', title='of a test')\n"
    )
    with_gpipe = run(tmp_path)
    assert (
        CliRunner()
        .invoke(app, ["run", str(tmp_path / "scenario.yaml"), "--set", "schedule=all-forward"])
        .exit_code
    )
    add_file(SCHEDULES, "all_forward", source)
    assert run(tmp_path, schedule="all-forward")["step_time_s"] == with_gpipe["step_time_s"]
    assert "all-forward" in command("list", "schedules")["schedules"]
    assert "all-forward" in json.dumps(json.loads(CliRunner().invoke(app, ["schema"]).stdout))
    assert command("schedule", "all-forward", "--ranks", 4, "--microbatches", 8)


def test_a_collective_algorithm_is_one_file(add_file: AddFile) -> None:
    """Halving and doubling under another name, so that its time is known."""
    source = (
        "from dataclasses import replace\n\nfrom .halving_doubling import ALGORITHM as HALVING\n\n"
        "ALGORITHM = replace(HALVING, name='my-halving', title='of a test')\n"
    )
    asked = ("collective", "all_reduce", "--size", "1MB", "--gpus", "64", "--algorithm")
    assert CliRunner().invoke(app, [*asked, "my-halving"]).exit_code == 2
    add_file(ALGORITHMS, "my_halving", source)
    mine, shipped = command(*asked, "my-halving"), command(*asked, "halving-doubling")
    assert "my-halving" in json.dumps(mine)
    assert json.dumps(mine).replace("my-halving", "halving-doubling") == json.dumps(shipped)


def test_a_collective_algorithm_that_switches_run(add_file: AddFile) -> None:
    """Like NVLS it is refused where NVSwitches reduce nothing, and priced by what they carry."""
    source = (
        "from dataclasses import replace\n\nfrom .nvls import ALGORITHM as NVLS\n\n"
        "ALGORITHM = replace(NVLS, name='my-switches', title='of a test')\n"
    )
    add_file(ALGORITHMS, "my_switches", source)
    asked = (
        "collective",
        "all_gather",
        "--size",
        "1GB",
        "--gpus",
        "8",
        "--algorithm",
        "my-switches",
        "--gpu",
    )
    assert CliRunner().invoke(app, [*asked, "A100-SXM4-80GB"]).exit_code == 2
    assert "my-switches" in json.dumps(command(*asked, "H100-SXM5-80GB"))


def test_a_gpu_is_one_entry(tmp_path: Path, add_entry: AddEntry) -> None:
    """An H100 with twice the memory: as fast, and with more room."""
    entry = entry_like(GPUS, "H100-SXM5-80GB", profile_of="H100-SXM5-80GB")
    add_entry(GPUS, "H100-Twice", entry | {"hbm_gib": 2 * entry["hbm_gib"]})
    shipped = run(tmp_path)
    mine = run(tmp_path, cluster=SMALL["cluster"] | {"gpu": "H100-Twice"})
    assert mine["step_time_s"] == shipped["step_time_s"]
    assert mine["peak_memory_bytes"] == shipped["peak_memory_bytes"]
    assert "H100-Twice" in command("list", "gpus")["gpus"]


def test_an_interconnect_is_one_entry(tmp_path: Path, add_entry: AddEntry) -> None:
    """InfiniBand of a tenth of the rate: the step waits for it."""
    entry = entry_like(INTERCONNECTS, "ib-ndr400-x8")
    add_entry(INTERCONNECTS, "slow-x8", entry | {"link_bytes_per_s": entry["link_bytes_per_s"] / 10})
    mine = run(tmp_path, cluster=SMALL["cluster"] | {"interconnect": "slow-x8"})
    assert mine["step_time_s"] > run(tmp_path)["step_time_s"]
    asked = ("collective", "all_reduce", "--gpus", "64", "--interconnect")
    assert command(*asked, "slow-x8") != command(*asked, "ib-ndr400-x8")


def test_a_cluster_in_print(tmp_path: Path, add_entry: AddEntry) -> None:
    add_entry(PUBLISHED, "our-hall", entry_like(PUBLISHED, "eos", title="Our hall", nodes=16))
    hall = SMALL["cluster"] | {"fabric": "our-hall"}
    assert run(tmp_path, cluster=hall)["step_time_s"] > 0
    path = tmp_path / "scenario.yaml"
    assert command("cluster", path)["fabric_gpus"] == 128
    refused = CliRunner().invoke(app, ["run", str(path), "--set", "cluster.gpus=256"])
    assert "Our hall has 128 GPUs" in refused.output


def test_a_kind_of_fault(tmp_path: Path, add_entry: AddEntry) -> None:
    """A job that it strikes loses what it would by the crash that it is like."""
    add_entry(KINDS, "cosmic_ray", entry_like(KINDS, "software_crash", title="of a test"))

    def campaign(kind: str) -> Any:
        document = {
            "step_time": "10 s",
            "cluster": {"gpus": 512, "gpus_per_node": 8},
            "faults": {"events": [f"{kind} job at=5h"]},
            "checkpoint": {"storage": {"every": "30 min", "stall": "20 s", "load": "30 s"}},
            "run": {"work": "2 d", "replications": 4},
        }
        path = tmp_path / "campaign.yaml"
        path.write_text(yaml.safe_dump(document), encoding="utf-8")
        return command("faults", path)

    mine = campaign("cosmic_ray")
    assert mine["ettr"]["mean"] < 1
    assert mine["ettr"] == campaign("software_crash")["ettr"]
    assert "cosmic_ray" in command("list", "faults")["faults"]


def test_a_kind_of_fault_that_a_step_feels(tmp_path: Path, add_entry: AddEntry) -> None:
    """A GPU that it strikes is as slow as by the throttling that it is like."""
    add_entry(KINDS, "dust", entry_like(KINDS, "gpu_throttle", title="of a test"))
    run(tmp_path)
    asked = ("run", tmp_path / "scenario.yaml", "--fault")
    mine, shipped = (command(*asked, f"{kind} gpu/3 slow_factor=1.5") for kind in ("dust", "gpu_throttle"))
    assert mine["step_time_s"] == shipped["step_time_s"] > run(tmp_path)["step_time_s"]


def test_an_optimizer_is_one_entry(tmp_path: Path, add_entry: AddEntry) -> None:
    """AdamW with a third moment keeps four bytes more for each parameter."""
    entry = entry_like(OPTIMIZERS, "adamw", aliases=[])
    add_entry(OPTIMIZERS, "three-moments", entry | {"states": [*entry["states"], {"name": "third moment"}]})
    shipped = run(tmp_path)
    mine = run(tmp_path, training=SMALL["training"] | {"optimizer": "three-moments"})
    assert mine["peak_memory_bytes"] > shipped["peak_memory_bytes"]
    assert "three-moments" in command("list", "optimizers")["optimizers"]


def test_a_software_preset_is_one_entry(tmp_path: Path, add_entry: AddEntry) -> None:
    """One whose host is slower by a second a step."""
    host = get_software("megatron-core-2024").host
    launches = {"launches_per_product", "launches_per_attention", "launches_per_function"}
    told = host.model_dump(include={"host_s_per_kernel", *launches})
    slow = told | {"step_fixed_s": host.step_fixed_s + 1}
    add_entry(PRESETS, "slow-host", entry_like(PRESETS, "megatron-core-2024", host=slow))
    mine, shipped = run(tmp_path, software="slow-host"), run(tmp_path)
    assert mine["step_time_s"] == pytest.approx(shipped["step_time_s"] + 1)
    assert "slow-host" in command("list", "software")["software"]


def test_an_importer_is_one_file(tmp_path: Path, add_file: AddFile) -> None:
    """nanotron's under another name, of files that begin in another way."""
    source = (
        "from dataclasses import replace\n\nfrom .nanotron import IMPORTER as NANOTRON\n\n"
        "IMPORTER = replace(NANOTRON, name='microtron', order=1,\n"
        "    recognises=lambda file: file.text.startswith('# microtron'))\n"
    )
    run = Path(__file__).parent / "fuzz" / "corpus" / "nanotron.yaml"
    mine = tmp_path / "mine.yaml"
    mine.write_text("# microtron\n" + run.read_text(encoding="utf-8"), encoding="utf-8")
    given = ("--given", "gpu=H100-SXM5-80GB", "--given", "interconnect=ib-ndr400-x8")
    by_name = ["import", str(mine), *given, "--framework", "microtron"]
    assert CliRunner().invoke(app, by_name).exit_code == 2
    add_file(IMPORTERS, "microtron", source)
    assert CliRunner().invoke(app, by_name).exit_code == 0
    assert command("run", mine, *given)["step_time_s"] == command("run", run, *given)["step_time_s"]
