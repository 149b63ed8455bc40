"""Answers for people at a terminal: headline, where the time goes, what fails, what to fix, what it rests
on.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from statistics import fmean
from typing import TYPE_CHECKING

from ...figures import count, large, lasting, percent
from ...reliability.answers import Answers, rests_on
from ...reliability.campaign.ledger import MEANING
from ...reliability.study.statistics import Estimate, quantile

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from ...reliability.study.study import Study

BAR = 20
UNEVEN = 0.1
"""Share of an interval's length by which its middle may lie off the mean and still be written as +-."""


def print_answers(answers: Answers, console: Console) -> None:
    """Print every table."""
    from rich.text import Text

    blocks, study = answers.blocks, answers.study
    plan = study.plan
    console.print(Text(blocks.title or blocks.name, style="bold"))
    console.print(
        f"{count(plan.machine.gpus)} GPUs on {count(plan.machine.nodes)} hosts; policy "
        f"{plan.recovering.policy}"
    )
    console.print()
    console.print(_grid(headline(answers)))
    _section(console, "Where the time goes")
    console.print(_waterfall(answers))
    _section(console, "What fails, per run")
    console.print(_failures(answers))
    if answers.worths:
        _section(console, "What to fix first: gain in ETTR, with the same chance")
        console.print(_worths(answers))
    if answers.optimum:
        _section(console, "How often to checkpoint")
        console.print(_grid(_optimum(answers)))
    _section(console, "Rests on")
    for text, source in rests_on(answers):
        console.print(Text(f"  {text} ({source})"))


def headline(answers: Answers) -> Iterator[tuple[str, str, str]]:
    """The figures that people quote."""
    yield from _of_pace(answers)
    yield from _of_interruptions(answers.study)
    yield from _of_end(answers.study)
    yield from _of_money_and_spares(answers)


def _of_pace(answers: Answers) -> Iterator[tuple[str, str, str]]:
    """How much of the time was useful."""
    study = answers.study
    ettr = study.ettr
    runs = f"{percent(study.confidence, 0)} interval, {len(study.outcomes)} replications"
    if not ettr.bounded:
        runs = "of one replication: no interval"
    yield "ETTR", interval(ettr), runs
    if not math.isnan(answers.tokens_per_s):
        yield "goodput", f"{large(answers.tokens_per_s)} tokens/s", "of steps that count, over the wall clock"
    if study.sliding["p50"] == study.sliding["p50"]:
        yield "in the worst hours", percent(study.sliding["p05"]), "ETTR of one hour in twenty is lower"


def _of_interruptions(study: Study) -> Iterator[tuple[str, str, str]]:
    """How often the run stopped, for how long, and what was lost."""
    yield (
        "interrupted",
        lasting(study.mtbf_s),
        f"mean time between; {count(study.mean('interruptions').mean)} in a run",
    )
    recover = study.pooled("recover_s")
    if recover:
        yield "back after", lasting(quantile(recover, 0.5)), f"median; mean {lasting(fmean(recover))}"
        lost = study.pooled("lost_s")
        if lost:
            yield "work lost", lasting(fmean(lost)), "mean per interruption"


def _of_end(study: Study) -> Iterator[tuple[str, str, str]]:
    """When the work was done, and which replications got no further."""
    if study.plan.goal_steps < math.inf and study.finished:
        done = study.finished
        tenth, half, last = (lasting(quantile(done, share)) for share in (0.1, 0.5, 0.9))
        yield "finished after", half, f"one in ten before {tenth}, one in ten after {last}"
    if study.stuck:
        since = lasting(quantile([one.stuck_s for one in study.stuck], 0.5))
        why = Counter(one.stuck_why for one in study.stuck).most_common(1)[0][0]
        cut = all(one.ended == "events" for one in study.stuck)
        yield (
            "CUT SHORT" if cut else "NO PROGRESS",
            f"{len(study.stuck)} of {len(study.outcomes)}",
            f"after {since} (median): {why}",
        )


def _of_money_and_spares(answers: Answers) -> Iterator[tuple[str, str, str]]:
    """What GPUs cost that are held, idle spares among them, and the hosts in repair."""
    study, plan = answers.study, answers.study.plan
    if study.ettr_held and study.gpus_held != plan.machine.gpus:
        yield (
            "ETTR of GPUs held",
            interval(study.ettr_held),
            f"{count(study.gpus_held or 0)} with idle spares",
        )
    if money := answers.money:
        idle = money.parts["spares"] / money.total if money.total else 0.0
        useful = money.per_useful_gpu_hour
        each = "" if useful is None else f"{useful:.3f} for a useful GPU-hour; "
        yield "price", f"{large(money.total)} {money.currency}", f"{each}{percent(idle)} of it for spares"
    if plan.recovering.warm is not None:
        repair = fmean(one.mean_repair for one in study.outcomes)
        most = max(one.most_repair for one in study.outcomes)
        yield (
            "hosts in repair",
            f"{repair:.1f}",
            f"mean; most {most}; {plan.recovering.warm} warm, {plan.recovering.cold} cold spares",
        )


def interval(value: Estimate) -> str:
    """``91.2 % +- 0.1``."""
    return f"{value.mean * 100:.2f} % {half(value, 100)}"


def half(value: Estimate, scale: float = 1.0, digits: int = 2) -> str:
    """``+- 0.10``; both ends where they lie unevenly, ``+- -`` where nobody knows."""
    if not value.bounded:
        return "+- -"
    uneven = abs(value.high + value.low - 2 * value.mean) > UNEVEN * (value.high - value.low)
    if uneven and round(value.half_width * scale, digits):
        return f"{value.low * scale:.{digits}f} to {value.high * scale:.{digits}f}"
    return f"+- {value.half_width * scale:.{digits}f}"


def _section(console: Console, title: str) -> None:
    console.print(f"\n{title}", style="bold")


def _grid(lines: Iterator[tuple[str, str, str]]) -> Table:
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2))
    for justify in ("left", "right", "left"):
        grid.add_column(no_wrap=justify != "left", justify=justify)
    for what, figure, remark in lines:
        grid.add_row(f"  {what}", Text(figure, style="bold"), Text(remark))
    return grid


def _waterfall(answers: Answers) -> Table:
    from rich.table import Table

    from ..tables import bar

    study = answers.study
    table = Table.grid(padding=(0, 2))
    for justify in ("left", "right", "right", "right", "left", "left"):
        table.add_column(justify=justify, no_wrap=justify == "right" or len(table.columns) != 5)
    hours = study.wall.mean / 3600
    rest = max((share for name, share in study.waterfall.items() if name != "useful"), default=0.0)
    for name, share in study.waterfall.items():
        if share == 0.0 and name != "useful":
            continue
        length = BAR * share / rest if rest and name != "useful" else 0.0
        table.add_row(
            f"  {name}",
            percent(share, 2),
            half(study.share(name), 100),
            f"{share * hours:,.1f} h",
            bar(min(length, BAR), False),
            MEANING[name],
        )
    return table


def _failures(answers: Answers) -> Table:
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    for name, number in answers.study.counts("failures").items():
        table.add_row(f"  {name}", f"{number:,.1f}", half(answers.study.count(name), digits=1))
    if not answers.study.counts("failures"):
        table.add_row("  nothing", "")
    return table


def _worths(answers: Answers) -> Table:
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    for justify in ("left", "right", "right", "right"):
        table.add_column(justify=justify, no_wrap=True)
    table.add_row("", "points of ETTR", "interval", "hours of the run")
    for one in answers.worths:
        gain = one.gain
        table.add_row(
            f"  {one.name}",
            f"{gain.mean * 100:+.2f}",
            f"{gain.low * 100:+.2f} to {gain.high * 100:+.2f}" if gain.bounded else "-",
            f"{one.hours:+,.1f}",
        )
    return table


def _optimum(answers: Answers) -> Iterator[tuple[str, str, str]]:
    found = answers.optimum
    assert found
    storage = answers.study.plan.storage
    assert storage
    now = storage.every * answers.study.plan.step_s
    yield "now", lasting(now), ""
    yield (
        "exact formula",
        lasting(found.formula_s),
        f"for a stall of {lasting(found.stall_s)} and {lasting(found.mtbf_s)} between interruptions",
    )
    remark = "the optimum is flat"
    if found.at_edge and storage.lag_s and found.simulated_s == found.points[0][0]:
        remark = "the shortest that can be written in time"
    elif found.at_edge:
        remark = "no optimum between the intervals tried"
    yield "simulated", lasting(found.simulated_s), remark
