"""What workers are asked, by name: each task gives its answer as messages, the most wanted first.

Knows which function of the simulator answers what, with the limits of the page. Does not know processes or
HTTP. A message has an ``event`` and that event's own fields.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from .replies import error_message, written
from .requests import (
    MOST_EVENTS,
    CatalogueRequest,
    ExportRequest,
    FaultsRequest,
    MemoryRequest,
    PageRequest,
    PlanRequest,
    PredictRequest,
    StreamsRequest,
    SweepRequest,
    TraceRequest,
)

if TYPE_CHECKING:
    from ..sim.plan.search.candidates import Candidates
    from ..sim.result.result import Result
    from ..sim.scenario.models import Scenario

Message = dict[str, Any]
Say = Callable[[Message], None]

YAML = "yaml"
AUDIT = 8
"""Layouts ruled out that a plan replays all the same; fewer than the command's, since somebody waits."""
JOBS = 2
"""Processes of a plan: another tab wants its answer meanwhile."""

MOST_DRAWN = 4_096
"""GPUs that the page colours: more than it draws."""

KEPT = 2
"""Steps that a worker keeps."""

MOST_TRACED = 100_000
"""Ops of a trace that the page saves whole: about 50 MB of JSON."""
TRACED_AT_ONCE = 2_000
"""Events of a trace that one message holds."""

NAME = "page"
"""Name of a scenario whose document has none."""


def predict(asked: PredictRequest, say: Say) -> None:
    """The step as ``stepsim run --json`` prints it, then what else is wanted of it."""
    result = step_of(asked, say, asked.faults)
    assert result.scenario is not None  # a run has one
    layout = _layout(result.scenario)
    say({"event": "result", "result": result.to_dict(), "layout": layout, "who": _who(result)})
    if asked.schedule:
        from .schedule import schedule_rows

        say({"event": "schedule", "schedule": schedule_rows(result)})
    if asked.timeline:
        from ..sim.report.timeline.picture import timeline_svg

        say({"event": "timeline", "svg": timeline_svg(result)})
    if asked.topology and not asked.faults:
        from ..sim.report.topology.picture import loaded_topology

        say({"event": "topology", "svg": loaded_topology(result)})


def _who(result: Result) -> list[int] | None:
    """The number of each GPU's row in ``who_waits``, in order up to MOST_DRAWN.

    None where ranks do not sit in order, or nothing is struck.
    """
    found, scenario = result.faults, result.scenario
    if found is None or not found.relations or scenario is None:
        return None
    if scenario.cluster.placement is not None:
        return None
    rows = [0] * min(scenario.cluster.gpus, MOST_DRAWN)
    for number, relation in enumerate(found.relations):
        for rank in relation.members:
            if rank < len(rows):
                rows[rank] = number
    return rows


def _layout(scenario: Scenario) -> Message:
    """What follows from the document: the sizes that a user may have left out."""
    axes = scenario.parallelism
    return {
        "parallelism": {axis: getattr(axes, axis) for axis in ("tp", "cp", "ep", "pp", "dp", "vpp")},
        "schedule": scenario.schedule,
        "microbatches": scenario.num_microbatches,
        "gpus": scenario.cluster.gpus,
        "gpus_per_node": scenario.cluster.gpus_per_node,
    }


def memory(asked: MemoryRequest, say: Say) -> None:
    """The memory bill as ``stepsim memory --json`` prints it."""
    from ..sim.report.memory.document import memory_document

    say({"event": "memory", "memory": memory_document(step_of(asked, say))})


def faults(asked: FaultsRequest, say: Say) -> None:
    """Weeks of the run as ``stepsim faults --json`` prints them."""
    from ..sim.reliability.ask import ask
    from ..sim.report.reliability.document import answers_document
    from ..sim.scenario.load import campaign_from_document

    answers = ask(
        campaign_from_document(asked.document, NAME),
        lines=asked.lines,
        replications=asked.replications,
        what_if=asked.what_if,
        max_events=MOST_EVENTS,
        progress=_progress(say),
    )
    say({"event": "faults", "faults": answers_document(answers)})


def sweep(asked: SweepRequest, say: Say) -> None:
    """Weeks at every point of a range, as ``stepsim faults --sweep --json`` prints them."""
    from ..sim.reliability.study.sweep import parse_axis
    from ..sim.reliability.study.sweep import sweep as swept
    from ..sim.report.reliability.sweep_table import sweep_document

    axes = [parse_axis(text) for text in asked.axes]
    points = swept(
        asked.document,
        (),
        axes,
        replications=asked.replications,
        max_events=MOST_EVENTS,
        progress=_progress(say),
    )
    say({"event": "sweep", "sweep": sweep_document(axes, points)})


def streams(asked: StreamsRequest, say: Say) -> None:
    """The streams of every class of ranks within a window of the step."""
    from .schedule import stream_rows

    first, last = asked.window
    say({"event": "streams", "streams": stream_rows(step_of(asked, say, asked.faults), first, last)})


def plan(asked: PlanRequest, say: Say) -> None:
    """The layouts as they are screened, then the answer as ``stepsim plan --json`` prints it."""
    from ..sim.plan.search.plan import Means, planned, wishes_of
    from .points import points

    wishes = wishes_of(
        top=asked.top,
        objective=asked.objective,
        deadline_s=asked.deadline_s,
        budget=asked.budget,
        fits=asked.fits,
        audit=AUDIT,
        axes=asked.axes,
    )

    def screened(among: Candidates) -> None:
        for message in points(among, asked.points):
            say({"event": "points", **message})

    base, means = scenario_asked(asked), Means(jobs=JOBS)
    if asked.find is not None:
        from ..sim.plan.questions.find import find
        from ..sim.report.plan.found import found_document

        sought = find(asked.find, base, asked.fix, asked.vary, wishes, means=means, progress=_progress(say))
        say({"event": "found", "found": found_document(sought)})
        return
    _preview(base, asked, say)
    plan = planned(base, asked.fix, asked.vary, wishes, means, _progress(say), screened)
    say({"event": "plan", "plan": plan.to_dict()})


_NEAR = ("parallelism.tp", "parallelism.zero", "training.micro_batch")
"""Fields that stay the scenario's own in what is shown first."""


def _preview(base: Scenario, asked: PlanRequest, say: Say) -> None:
    """The layouts near the scenario's own, which are screened at once: something to see while all are."""
    from ..sim.plan.fields import field_value
    from ..sim.plan.search.plan import candidates_of
    from .points import points

    kept = {name: field_value(base, name) for name in _NEAR if name not in (*asked.fix, *asked.vary)}
    try:
        among, _ = candidates_of(base, {**asked.fix, **kept}, {}, lambda text: None)
    except ValueError:  # none of them is legal, or what is asked is wrong, which the plan will tell
        return
    for message in points(among, asked.points):
        say({"event": "points", "preview": True, **message})


def export(asked: ExportRequest, say: Say) -> None:
    """The scenario as YAML, or as the file or flags of a framework, which ``stepsim export`` writes."""
    scenario = scenario_asked(asked)
    if asked.to == YAML:
        import yaml

        text = yaml.safe_dump(asked.document, sort_keys=False, allow_unicode=True, default_flow_style=None)
    else:
        from ..sim.scenario.importers.export import export as exported

        text = exported(scenario, asked.to)
    say({"event": "export", "text": text})


def trace(asked: TraceRequest, say: Say) -> None:
    """The trace that ``stepsim run --trace`` writes, in parts; of a step with very many ops the first class
    of ranks alone, which ``ranks`` then names."""
    from itertools import islice

    from ..sim.report.trace import trace_lines

    result = step_of(asked, say)
    whole = sum(1 for _ in islice(result.iter_spans(), MOST_TRACED + 1)) <= MOST_TRACED
    ranks = None if whole else result.ranks[0].name
    say({"event": "progress", "text": "writing the trace"})
    lines = trace_lines(result, rank=None if whole else 0)
    while part := b"".join(islice(lines, TRACED_AT_ONCE)):
        say({"event": "trace", "text": part.decode(), "ranks": ranks})


def step_of(asked: PageRequest, say: Say, faults: Sequence[str] = ()) -> Result:
    """The step of a request. Those asked last are kept: streams, a picture or a trace are of the same one."""
    from ..sim.simulate import simulate

    kept, key = _kept(), written([asked.document, faults])
    if key not in kept:
        while len(kept) >= KEPT:
            del kept[next(iter(kept))]
        scenario = scenario_asked(asked)
        kept[key] = simulate(scenario, max_events=MOST_EVENTS, faults=faults or None, progress=_progress(say))
    return kept[key]


@cache
def _kept() -> dict[bytes, Result]:
    """Steps by document and faults, the oldest first, of this process."""
    return {}


def scenario_asked(asked: PageRequest) -> Scenario:
    """The scenario of a request. ScenarioError with every problem of its document."""
    from ..sim.scenario.load import scenario_from_document

    return scenario_from_document(asked.document, NAME)


def _progress(say: Say) -> Callable[[str], None]:
    return lambda text: say({"event": "progress", "text": text})


def catalogue(_: CatalogueRequest, say: Say) -> None:
    """What the page offers to choose from."""
    from .catalogue import catalogue

    say({"event": "catalogue", **catalogue()})


@dataclass(frozen=True)
class Task:
    """What a request of a kind holds, who answers it, and the seconds that this may take."""

    asked: type[CatalogueRequest]
    answer: Callable[[Any, Say], None]
    limit_s: float = 60.0


TASKS: dict[str, Task] = {
    "catalogue": Task(CatalogueRequest, catalogue),
    "predict": Task(PredictRequest, predict, 240.0),
    "streams": Task(StreamsRequest, streams, 240.0),
    "memory": Task(MemoryRequest, memory, 240.0),
    "plan": Task(PlanRequest, plan, 300.0),
    "faults": Task(FaultsRequest, faults, 120.0),
    "sweep": Task(SweepRequest, sweep, 180.0),
    "export": Task(ExportRequest, export),
    "trace": Task(TraceRequest, trace, 240.0),
}
"""Every kind of request; each has an endpoint of its name."""


def answered(name: str, body: Mapping[str, Any], say: Say) -> None:
    """Answer the task ``name``; whatever goes wrong is its last message."""
    from pydantic import ValidationError

    from ..hardware.files import shipped_files_only
    from ..sim.defects import defect_text, is_of_the_user

    task = TASKS[name]
    try:
        with shipped_files_only():
            task.answer(task.asked.model_validate(body), say)
    except ValidationError as error:
        say(_refused_fields(error))
    except MemoryError:
        say(error_message("this is more than the memory that the page may take; make the job smaller"))
    except Exception as error:
        if is_of_the_user(error):
            say(_of_the_user(error))
        else:
            say(error_message(defect_text(error)) | {"defect": True})


def _of_the_user(error: Exception) -> Message:
    from ..hardware.shown import clipped, printable
    from ..sim.scenario.errors import SHOWN, ScenarioError

    problems = error.problems[:SHOWN] if isinstance(error, ScenarioError) else ()
    listed = [{"path": one.path, "message": clipped(one.message, 1000)} for one in problems]
    return error_message(printable(clipped(str(error), 4000))) | {"problems": listed}


def _refused_fields(error: Any) -> Message:
    found = [{"path": ".".join(map(str, one["loc"])), "message": one["msg"]} for one in error.errors()[:20]]
    return error_message("; ".join(f"{one['path']}: {one['message']}" for one in found)) | {"problems": found}


def warm() -> None:
    """Ask for what a fresh page shows, so that a first request finds all that is loaded once."""
    from .first_scenario import FIRST

    catalogue(CatalogueRequest(), lambda message: None)
    predict(PredictRequest(document=FIRST), lambda message: None)
