"""``stepsim run``: predict one training step of a scenario."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..hardware.limits import MOST_GPUS
from .options import JsonOption, MaxEventsOption, SetOption, refuse_where
from .output import PICTURE_NAME, PICTURES, output_file, output_folder, save_picture, wrote
from .progress import progress
from .sources import (
    FrameworkOption,
    GivenOption,
    SourceArgument,
    SourceFacts,
    VersionOption,
    WithOption,
    load_any,
)
from .views import (
    AssumptionsOption,
    SpansOption,
    TimelineOption,
    TraceOption,
    ViewFiles,
    show_result,
)

if TYPE_CHECKING:
    from ..sim.result.result import Result
    from ..sim.scenario.faults.faults import Event
    from ..sim.scenario.models import Scenario

DOES_NOT_FIT = 1

TopologyOption = Annotated[
    Path | None,
    typer.Option(
        "--topology", metavar=PICTURE_NAME, help="Write the network as a picture, links coloured by load."
    ),
]
FaultOption = Annotated[
    list[str] | None,
    typer.Option(
        "--fault",
        metavar="'KIND TARGET KEY=VALUE ...'",
        help="What is wrong, as in 'gpu_throttle gpu/37 slow_factor=1.3', all step long or with at=1.2s "
        "and duration=0.5s. Repeatable.",
    ),
]
FoldOption = Annotated[
    bool,
    typer.Option("--fold/--no-fold", help="Replay one rank for all that do the same, or every rank."),
]
MaxClassesOption = Annotated[
    int | None,
    typer.Option(
        "--max-classes",
        metavar="N",
        min=1,
        max=MOST_GPUS,
        help="Replay up to so many different ranks; default 4,096.",
    ),
]
ExactOption = Annotated[
    bool,
    typer.Option("--exact", help="Replay all ranks, also where few replicas would bound the step."),
]
ToleranceOption = Annotated[
    float | None,
    typer.Option(
        "--tolerance",
        metavar="SHARE",
        help="How far apart the bounds of a step with many slow parts may be; default 0.001.",
    ),
]
PlacementsOption = Annotated[
    int,
    typer.Option(
        "--placements",
        metavar="N",
        min=0,
        max=1000,
        help="With cluster.neighbours: replay the step on so many random placements of all jobs, too.",
    ),
]
EachFaultOption = Annotated[
    bool | None,
    typer.Option(
        "--each-fault/--no-each-fault",
        help="Replay once more without each fault; by default where all ranks are replayed and at most "
        "eight faults are there.",
    ),
]
SaveProgramOption = Annotated[
    Path | None,
    typer.Option(
        "--save-program", metavar="FILE.json[.gz]", help="Write the lowered program, for stepsim replay."
    ),
]
ChakraOption = Annotated[
    Path | None,
    typer.Option(
        "--chakra",
        metavar="DIR",
        help="Write MLCommons Chakra execution traces into this folder, one for each class of ranks; "
        "with --no-fold for each rank.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class HealthyStepFiles:
    """Files that show a healthy step of one job on equal GPUs; None: not asked for."""

    topology: Path | None
    program: Path | None
    chakra: Path | None

    def check(self, scenario: str, *, timeline: Path | None, trace: Path | None) -> None:
        """ValueError where one of them cannot be written, or another file of the command has its name."""
        output_file("--topology", self.topology, PICTURES, [scenario, *([timeline] if timeline else [])])
        output_file("--save-program", self.program, (".json", ".gz"), [scenario, *([trace] if trace else [])])
        if self.chakra:
            output_folder("--chakra", self.chakra, [scenario])

    def options(self) -> list[str]:
        """The options that ask for them."""
        asked = {"--topology": self.topology, "--save-program": self.program, "--chakra": self.chakra}
        return [option for option, path in asked.items() if path]

    def write(self, result: Result, scenario: Scenario, *, fold: bool) -> None:
        if self.topology:
            from ..sim.report.topology.picture import loaded_topology

            save_picture(self.topology, loaded_topology(result))
        if self.program:
            from ..sim.replay import save_program

            save_program(self.program, scenario)
        if self.chakra:
            from ..sim.chakra.replay import save_traces

            save_traces(self.chakra, scenario, fold=fold)

    def announce(self) -> None:
        """Say what was written, after the result."""
        for what, path in (
            ("topology", self.topology),
            ("program", self.program),
            ("execution traces", self.chakra),
        ):
            if path:
                wrote(what, path)


def run(
    scenario: SourceArgument,
    overrides: SetOption = None,
    as_json: JsonOption = False,
    assumptions: AssumptionsOption = False,
    timeline: TimelineOption = None,
    trace: TraceOption = None,
    spans: SpansOption = None,
    topology: TopologyOption = None,
    fault: FaultOption = None,
    fold: FoldOption = True,
    max_classes: MaxClassesOption = None,
    exact: ExactOption = False,
    tolerance: ToleranceOption = None,
    placements: PlacementsOption = 0,
    each_fault: EachFaultOption = None,
    given: GivenOption = None,
    files: WithOption = None,
    framework: FrameworkOption = None,
    version: VersionOption = None,
    max_events: MaxEventsOption = None,
    save_program: SaveProgramOption = None,
    chakra: ChakraOption = None,
) -> None:
    """Predict the time, memory and utilisation of one training step.

    Exit code 1 when the step does not fit in memory.
    """
    views = ViewFiles(timeline=timeline, trace=trace, spans=spans)
    views.check([scenario])
    healthy = HealthyStepFiles(topology=topology, program=save_program, chakra=chakra)
    healthy.check(scenario, timeline=timeline, trace=trace)

    from ..sim.simulate import simulate

    facts = SourceFacts(given=given or (), files=files or (), framework=framework, version=version)
    loaded = load_any(scenario, overrides or (), facts)
    events, later = _faults_of(loaded, fault or ())
    _refuse_beside(healthy.options(), loaded, events)
    with progress() as say:
        result = simulate(
            loaded,
            fold=fold,
            max_classes=max_classes,
            max_events=max_events,
            faults=(*events, *later),
            each_fault=each_fault,
            exact=exact,
            tolerance=tolerance,
            placements=placements,
            progress=say,
        )
    # Files first: a reader of stdout that leaves early (head) must not cost anyone a file.
    views.write(result)
    healthy.write(result, loaded, fold=fold)
    show_result(result, as_json, assumptions=assumptions)
    views.announce()
    healthy.announce()
    if not result.fits:
        raise typer.Exit(DOES_NOT_FIT)


def _faults_of(scenario: Scenario, lines: Sequence[str]) -> tuple[tuple[str | Event, ...], tuple[Event, ...]]:
    """The faults of the step, those of ``lines`` last: what is wrong all step long, or so far as a line says,
    and what begins later."""
    if scenario.faults is None:
        return (*lines,), ()
    from ..sim.degradation.of_faults import beginning, standing

    return (*standing(scenario.faults), *lines), beginning(scenario.faults)


def _refuse_beside(options: Sequence[str], scenario: Scenario, faults: Sequence[str | Event]) -> None:
    """ValueError for ``options`` that show a healthy step of one job on equal GPUs alone, where it is not."""
    cluster = scenario.cluster
    known = {
        "the healthy step alone, and there are faults": bool(faults),
        "equal GPUs alone, and there is cluster.variation": cluster.variation is not None,
        "one kind of GPU, and there is cluster.other_gpus": bool(cluster.other_gpus),
        "one job alone, and there is cluster.neighbours": bool(cluster.neighbours),
    }
    for option in options:
        refuse_where({f"{option} knows {what}; leave one out": there for what, there in known.items()})
