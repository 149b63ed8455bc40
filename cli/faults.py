"""``stepsim faults``: what weeks of a run cost when hardware fails, and what to do about it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..hardware.limits import LARGEST, MOST_GPUS
from .options import JsonOption, MaxEventsOption, refuse_where
from .output import (
    PICTURE_NAME,
    PICTURES,
    console,
    echo_json,
    output_file,
    save_picture,
    save_text,
    say,
    wrote,
)
from .progress import progress

if TYPE_CHECKING:
    from ..sim.reliability.answers import Answers

STUCK = 1

Replications = Annotated[
    int | None,
    typer.Option(
        "--replications", "-n", metavar="N", min=1, max=1_000_000, help="In place of run.replications."
    ),
]
ScenarioOrRangesArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="SCENARIO", help="A shipped scenario's name or a YAML file."),
]
ChangesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="FIELD=VALUE",
        help="Change one field, as in recovery.policy=hot_spare. Repeatable.",
    ),
]
FaultOption = Annotated[
    list[str] | None,
    typer.Option(
        "--fault",
        metavar="'KIND TARGET KEY=VALUE ...'",
        help="One more fault, as in 'gpu_fatal gpu/37 at=3h'. Repeatable.",
    ),
]
SweepOption = Annotated[
    list[str] | None,
    typer.Option(
        "--sweep",
        metavar="FIELD=LOW..HIGH ...",
        help="Over a range, as in checkpoint.storage.every=5min..2h; more may follow.",
    ),
]
SeedOption = Annotated[
    int | None, typer.Option("--seed", metavar="N", min=0, max=LARGEST, help="In place of faults.seed.")
]
WhatIfOption = Annotated[
    bool,
    typer.Option(
        "--what-if", help="What each kind of fault costs and each mitigation gains; the best interval."
    ),
]
HtmlOption = Annotated[
    Path | None,
    typer.Option("--html", metavar="FILE.html", help="Write a report with plots; asks what-if too."),
]
EventsOption = Annotated[
    Path | None,
    typer.Option(
        "--events", metavar="FILE.csv", help="Write the faults of the first replication, as a trace."
    ),
]
SweepPictureOption = Annotated[
    Path | None, typer.Option("--picture", "--svg", metavar=PICTURE_NAME, help="Draw the sweep.")
]
RecordOption = Annotated[
    Path | None,
    typer.Option(
        "--record",
        metavar="RECORD.json",
        help="A record of real faults: what it says, and with a SCENARIO what it would do to that job.",
    ),
]
HostsOption = Annotated[
    int | None,
    typer.Option(
        "--hosts",
        metavar="N",
        min=1,
        max=MOST_GPUS,
        help="Number of hosts that the record covers; default: those that failed.",
    ),
]
CasesOption = Annotated[
    Path | None,
    typer.Option("--cases", metavar="FILE.md", help="Simulate the published cases and write their table."),
]
StragglerLogsOption = Annotated[
    Path | None,
    typer.Option(
        "--straggler-logs",
        metavar="FOLDER",
        help="With --cases: the folder of ByteDance's logs of operations (trace-AR.parquet, ...).",
    ),
]


def faults(
    words: ScenarioOrRangesArgument = None,
    overrides: ChangesOption = None,
    fault: FaultOption = None,
    sweeps: SweepOption = None,
    replications: Replications = None,
    seed: SeedOption = None,
    what_if: WhatIfOption = False,
    max_events: MaxEventsOption = None,
    as_json: JsonOption = False,
    html: HtmlOption = None,
    events: EventsOption = None,
    svg: SweepPictureOption = None,
    record: RecordOption = None,
    hosts: HostsOption = None,
    cases: CasesOption = None,
    straggler_logs: StragglerLogsOption = None,
) -> None:
    """Simulate weeks of training with failures, detection, restarts, checkpoints and spares.

    Exit code 1 when the run gets nowhere, or a published case is missed.
    """
    named = [word for word in words or () if "=" not in word]
    ranges = [*(sweeps or ()), *(word for word in words or () if "=" in word)]
    if cases:
        _cases(cases, straggler_logs, as_json, named)
        return
    lacking = {
        "--straggler-logs are of a published case, and --cases is not given": straggler_logs,
        "--hosts says of how many hosts a --record is, and none is given": record is None and hosts,
    }
    refuse_where(lacking)
    if record is not None and not named:
        _record(record, hosts, as_json)
        return
    source = _source(named, ranges_alone=bool(ranges and not sweeps))
    for option, path, endings in (
        ("--html", html, (".html",)),
        ("--events", events, (".csv",)),
        ("--picture", svg, PICTURES),
    ):
        output_file(option, path, endings, [source])
    changes = [*(overrides or ()), *([f"faults.seed={seed}"] if seed is not None else [])]
    if sweeps:
        _refuse_with_sweep(record=record, html=html, events=events, fault=fault, what_if=what_if)
        _sweep(source, changes, ranges, replications, max_events, as_json, svg)
        return
    refuse_where({"--picture draws a sweep; give --sweep FIELD=LOW..HIGH": svg})
    lines = fault or []
    if record is not None:
        changes, recorded = _on_record(source, changes, record, hosts, seed or 0)
        lines = [*recorded, *lines]
    answers = _answers(source, changes, lines, replications, what_if or html is not None, max_events)
    _tell(answers, html=html, events=events, record=record, as_json=as_json)


def _source(named: list[str], *, ranges_alone: bool) -> str:
    """The one scenario of a command line; refuses none, several, and ranges without ``--sweep``."""
    if len(named) != 1 or ranges_alone:
        raise ValueError("give one SCENARIO, as in stepsim faults llama3.1-405b-16k; ranges follow --sweep")
    return named[0]


def _refuse_with_sweep(**given: object) -> None:
    """Refuse options of one study beside ``--sweep``."""
    refuse_where(
        {f"--{name.replace('_', '-')} does not go with --sweep": value for name, value in given.items()}
    )


def _tell(
    answers: Answers, *, html: Path | None, events: Path | None, record: Path | None, as_json: bool
) -> None:
    """Write the files that were asked for, print the answers, and end with their exit code."""
    if html:
        from ..sim.report.reliability.page import write_page

        write_page(answers, html)
    if events:
        from ..sim.report.reliability.event_log import write_events

        write_events(answers.study.outcomes[0], events)
    if as_json:
        from ..sim.report.reliability.document import answers_document

        echo_json(answers_document(answers) | ({"record": str(record)} if record else {}))
    else:
        from ..sim.report.reliability.tables import print_answers

        print_answers(answers, console())
    for what, path in (("report", html), ("events", events)):
        if path:
            wrote(what, path)
    if answers.stuck:
        raise typer.Exit(STUCK)


def _record(path: Path, hosts: int | None, as_json: bool) -> None:
    """What a record says by itself."""
    from ..sim.reliability.planning.record import read_fault_record
    from ..sim.reliability.study.recorded import record_figures
    from ..sim.report.reliability.record import print_record, record_document

    found = record_figures(read_fault_record(path, hosts))
    if as_json:
        echo_json(record_document(found))
    else:
        print_record(found, console())


def _on_record(
    source: str, changes: list[str], path: Path, hosts: int | None, seed: int
) -> tuple[list[str], list[str]]:
    """The changes that make a job run for as long as a record, with its faults alone; and these."""
    from ..sim.reliability.planning.record import fault_lines, read_fault_record
    from ..sim.scenario.load import load_campaign

    found = read_fault_record(path, hosts)
    alone = ["faults.clock=wall", "faults.presets=[]", "faults.processes=[]", "faults.events=[]"]
    changed = [*changes, *alone, f"run.horizon={found.length_s:.0f} s"]
    cluster = load_campaign(source, changed).cluster
    if cluster is None:
        raise ValueError(f"{source}: --record needs a job with a cluster")
    return changed, list(fault_lines(found, cluster.nodes, seed))


def _answers(
    source: str,
    changes: list[str],
    lines: list[str],
    replications: int | None,
    what_if: bool,
    max_events: int | None,
) -> Answers:
    from ..sim.reliability.ask import ask

    with progress() as status:
        return ask(
            source,
            changes,
            lines=lines,
            replications=replications,
            what_if=what_if,
            max_events=max_events,
            progress=status,
        )


def _sweep(
    source: str,
    changes: list[str],
    ranges: list[str],
    replications: int | None,
    max_events: int | None,
    as_json: bool,
    svg: Path | None,
) -> None:
    from ..sim.reliability.study.sweep import parse_axis, sweep
    from ..sim.report.reliability.sweep_table import print_sweep, sweep_document

    axes = [parse_axis(text) for text in ranges]
    with progress() as status:
        points = sweep(
            source, changes, axes, replications=replications, max_events=max_events, progress=status
        )
    if svg:
        from ..sim.report.reliability.sweep_picture import sweep_svg

        path = Path(source)  # the name of a shipped campaign may have a dot
        save_picture(
            svg, sweep_svg(axes, points, path.stem if path.suffix in (".yaml", ".yml", ".json") else source)
        )
    if as_json:
        echo_json(sweep_document(axes, points))
    else:
        print_sweep(axes, points, console())
    if svg:
        wrote("picture", svg)


def _cases(path: Path, logs: Path | None, as_json: bool, named: list[str]) -> None:
    if named:
        raise ValueError("--cases takes no SCENARIO: the published cases bring their own")
    output_file("--cases", path, (".md",), [])
    from ..sim.reliability.cases.page import cases_page
    from ..sim.reliability.cases.run import run_cases

    with progress() as status:
        rows = run_cases({} if logs is None else slowdowns_of(logs), progress=status)
    save_text(path, cases_page(rows))
    missed = [row for row in rows if row.verdict == "missed"]
    if as_json:
        echo_json([row.document() for row in rows])
    else:
        for row in rows:
            say(f"{row.verdict:8} {row.number:4} {row.title}: {row.found} (expected {row.expected})")
    wrote("cases", path)
    if missed:
        raise typer.Exit(STUCK)


def slowdowns_of(folder: Path) -> dict[str, float]:
    """What stragglers cost in each published log that ``folder`` has. ValueError where it has none."""
    from ..calibration.explain.stragglers import stragglers
    from ..calibration.readers.operation_log import read_operation_log
    from ..sim.reliability.cases.explained import LOGS

    found = {name: sorted(folder.glob(f"*trace-{name}.parquet")) for name in LOGS}
    if not any(found.values()):
        raise ValueError(f"{folder}: has none of the logs trace-{', trace-'.join(LOGS)} (.parquet)")
    return {
        name: stragglers(read_operation_log(paths[0])).figures.slowdown
        for name, paths in found.items()
        if paths
    }
