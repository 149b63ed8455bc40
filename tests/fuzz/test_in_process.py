"""Every reader on files made wrong, in this process: a ValueError that names the file, or a sound answer.

What hangs or ends a process is looked for in children (``search.py``); here hypothesis draws, so that a
failing file is made small.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fuzz.corpus import COMMANDS, Seed, written
from fuzz.mutate import contents, documents
from fuzz.search import seed_of
from hypothesis import given, settings
from hypothesis import strategies as st
from imported_models import import_model

from stepsim.calibration.cases.case import read_cases
from stepsim.calibration.explain.explained import explained
from stepsim.calibration.explain.reading import read_traces
from stepsim.calibration.explain.stragglers import stragglers
from stepsim.calibration.readers.measurements import read_measurements
from stepsim.calibration.readers.operation_log import read_operation_log
from stepsim.calibration.readers.read import read_one
from stepsim.hardware.calibrated.read import read_profile_file
from stepsim.hardware.graph_file import read_graph
from stepsim.sim.chakra.files import read_traces as read_traces_of_chakra
from stepsim.sim.chakra.foreign import foreign_programs
from stepsim.sim.chakra.validate import problems
from stepsim.sim.lowering.layers.routing import _counts
from stepsim.sim.program.file import read_program
from stepsim.sim.reliability.planning.record import read_fault_record
from stepsim.sim.reliability.planning.traces import read_trace
from stepsim.sim.reliability.study.recorded import record_figures
from stepsim.sim.scenario.importers.entry import import_files
from stepsim.sim.scenario.load import load_campaign, load_scenario
from stepsim.sim.scenario.table_files import read_table
from stepsim.sim.scenario.variation import SpeedLaw, speeds

_MACHINE = ("gpu=H100-SXM5-80GB", "interconnect=ib-ndr400-x8")


def _replayed(path: Path) -> Any:
    """An execution trace, checked, and as a program."""
    found = read_traces_of_chakra(path)
    if wrong := problems(found):
        raise ValueError(wrong[0])
    return foreign_programs(found, None, "duration")


def _imported(*more: str) -> Callable[[Path], Any]:
    """A file of another framework, with what it does not hold."""
    return lambda path: import_files([path], [*_MACHINE, *more])


READERS: dict[str, Callable[[Path], Any]] = {
    "step.yaml": load_scenario,
    "experts.yaml": load_scenario,
    "sharded.yaml": load_scenario,
    "weeks.yaml": load_campaign,
    "faults-of-step.yaml": load_campaign,
    "own.profile.yaml": read_profile_file,
    "graph.yaml": read_graph,
    "graph.graphml": read_graph,
    "llama.json": import_model,
    "qwen.json": import_model,
    "gpt2.json": import_model,
    "speeds.csv": lambda path: speeds(SpeedLaw(file=str(path)), 16, 1, 0),
    "counts.json": lambda path: _counts(str(path)),
    "nccl.txt": read_one,
    "kernels.csv": read_one,
    "collectives.csv": read_one,
    "torch.json": lambda path: (read_one(path), explained(read_traces([path])[0])),
    "nsight.sqlite": lambda path: (read_one(path), explained(read_traces([path])[0])),
    "operations.csv": lambda path: (stragglers(read_operation_log(path)), read_traces([path])),
    "kernels.yaml": lambda path: read_measurements([path]),
    "cases.yaml": read_cases,
    "events.csv": lambda path: read_trace(path, 10.0),
    "schedule.csv": read_table,
    "train.sh": _imported(),
    "titan.toml": _imported("gpus=16"),
    "nanotron.yaml": _imported(),
    "deepspeed.json": _imported("gpus=16", "model=llama3-8b", "seq_length=2048"),
    "program.json": read_program,
    "record.json": lambda path: record_figures(read_fault_record(path)),
    "host.json": lambda path: problems(read_traces_of_chakra(path)),
    "rank.0.et": lambda path: _replayed(path),
}


def test_every_file_of_the_corpus_has_a_reader() -> None:
    assert READERS.keys() == COMMANDS.keys()


def wrong(seed: Seed) -> st.SearchStrategy[bytes]:
    """What the file may hold: other bytes, or another document."""
    bytes_ = contents(seed.content)
    if seed.document is None:
        return bytes_
    return bytes_ | documents(seed.document).map(lambda document: written(document, seed.file))


@pytest.mark.parametrize("file", READERS)
def test_a_reader_answers_or_names_the_file(file: str, tmp_path: Path) -> None:
    path = tmp_path / file

    @settings(max_examples=20)
    @given(wrong(seed_of(file)))
    def law(content: bytes) -> None:
        path.write_bytes(content)
        said = file
        try:
            READERS[file](path)
        except ValueError as mistake:
            said = str(mistake)
        assert file in said

    READERS[file](_whole(file, path))
    law()


def _whole(file: str, path: Path) -> Path:
    path.write_bytes(seed_of(file).content)
    return path
