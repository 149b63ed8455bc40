"""``stepsim explain``: where the time of a real step went, and how that differs from what was predicted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .options import JsonOption, MaxEventsOption, SetOption
from .output import PICTURE_NAME, PICTURES, console, echo_json, output_file, save_picture, say, wrote
from .progress import progress
from .refusals import refused_document, tell_refused

if TYPE_CHECKING:
    from ..calibration.explain.explained import Explained
    from ..calibration.explain.step_record import RankTrace


def explain(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="TRACE... [SCENARIO]",
            help="Traces of torch's profiler (.json, .json.gz), a folder or archive of them, Nsight Systems "
            "(.sqlite), NDTimeline logs (.parquet, .csv); and a scenario (.yaml, or a shipped one's name).",
        ),
    ],
    overrides: SetOption = None,
    as_json: JsonOption = False,
    waterfall: Annotated[
        Path | None,
        typer.Option("--waterfall", metavar=PICTURE_NAME, help="Write the differences as a picture."),
    ] = None,
    max_events: MaxEventsOption = None,
) -> None:
    """Explain a measured step: its parts, idle time, worst ops and late ranks, beside a prediction.

    With a scenario, every part stands beside what is predicted of it. A file that cannot be used is named and
    left out.
    """
    traces, scenario = _parted(sources)
    output_file("--waterfall", waterfall, PICTURES, sources)
    if overrides and scenario is None:
        raise ValueError("--set changes a scenario, and none is given")

    from ..calibration.explain.reading import read_traces

    with progress() as tell:
        tell("reading the traces")
        found, refused = read_traces(traces)
        tell_refused(refused)
        told = _explained(found, scenario, overrides or (), max_events, tell)
    if waterfall:
        from ..calibration.explain.picture import waterfall_svg

        names = ", ".join(dict.fromkeys(path.name for path in traces))
        save_picture(waterfall, waterfall_svg(told, f"Step of {names[:80]}"))
    if as_json:
        from ..calibration.explain.tables import document

        echo_json(document(told) | {"refused": refused_document(refused)})
    else:
        _print(told)
    if waterfall:
        wrote("waterfall", waterfall)


def _explained(
    found: Sequence[RankTrace],
    scenario: str | None,
    overrides: Sequence[str],
    max_events: int | None,
    tell: Callable[[str], None],
) -> Explained:
    """The measured step by its parts, beside the prediction of the scenario if one is given."""
    from ..calibration.explain.explained import explained

    if scenario is None:
        return explained(found)
    from ..sim.lowering.process_groups import process_groups_of
    from ..sim.scenario.load import load_scenario
    from ..sim.simulate import simulate

    loaded = load_scenario(scenario, overrides)
    result = simulate(loaded, max_events=max_events, progress=tell)
    tell("comparing")
    return explained(found, result, process_groups_of(loaded))


def _parted(sources: Sequence[str]) -> tuple[list[Path], str | None]:
    """The traces, and the scenario among what was given. ValueError for two scenarios, or no trace."""
    from ..sim.scenario.documents import scenario_names

    def is_scenario(source: str) -> bool:
        known = source in scenario_names() and not Path(source).exists()
        return known or source.lower().endswith((".yaml", ".yml"))

    scenarios = [source for source in sources if is_scenario(source)]
    if len(scenarios) > 1:
        raise ValueError(f"give one scenario, not {len(scenarios)}: {', '.join(scenarios)}")
    traces = [Path(source) for source in sources if source not in scenarios]
    if not traces:
        raise ValueError(f"give a trace: {_other(scenarios[0])}")
    return traces, scenarios[0] if scenarios else None


def _other(source: str) -> str:
    """What is said of the one file that was given in place of a trace."""
    from ..calibration.readers.foreign.kinds import named_document
    from ..hardware.files import load_yaml, read_text

    path = Path(source)
    known = named_document(load_yaml(read_text(path), path)) if path.is_file() else None
    return f"{source} is {known}" if known else "a scenario by itself is for stepsim run"


def _print(told: Explained) -> None:
    from ..calibration.explain.tables import grids, sentences
    from ..calibration.validation.tables import print_grid

    for sentence in sentences(told):
        say(sentence)
    for grid in grids(told):
        print_grid(grid, console())
    for trace in told.traces:
        for reason, count in trace.lost.items():
            say(f"{trace.file}: {count} x {reason}")
