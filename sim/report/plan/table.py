"""A plan for people at a terminal: the best layouts, the front, what lost and why, how to run it, the proof.

Everything can be read without colour. Knows rich; computes nothing but ratios.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ...figures import TIMES, chance, count, gigabytes, percent, seconds
from ...plan.certainty import TIED
from ...plan.refused import reasons, told_left_out
from ...plan.search.alternatives import Loser
from ...plan.search.layout_in_words import short
from ...plan.search.layout_plan import LayoutPlan
from ...plan.search.objective import Objective
from ...plan.search.shown import BoldChoice, Choice
from ...scenario.price import price_of
from .. import captions
from .command import command
from .emitted import passed_over, print_emitted

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

FRONT_LINES = 12

OBJECTIVES = {
    Objective.STEP_TIME: "by step time",
    Objective.TOKENS_PER_DOLLAR: "by tokens per dollar",
    Objective.DAYS: "by days to the token budget",
    Objective.GOODPUT: "by goodput under the faults of the scenario",
}


def print_plan(
    plan: LayoutPlan,
    console: Console,
    source: str,
    overrides: Sequence[str] = (),
    beside: Sequence[str] = (),
    *,
    whole: bool = True,
) -> None:
    """Print every table; ``source``, ``overrides`` and options ``beside`` are the scenario as the user named
    it. The best layout in a framework's words is printed ``whole``, or what changes alone.
    """
    from rich.text import Text

    def how(title: str, choice: Choice) -> None:
        _section(console, title)
        console.print(command(source, overrides, plan.scenario, choice, beside), soft_wrap=True)

    console.print(Text(captions.subject(plan.scenario, plan.stated), style="bold"))
    console.print(captions.batch(plan.scenario))
    for line in told_left_out(plan.left_out) if plan.certificate.legal else []:
        console.print(line, soft_wrap=True)
    if not plan.choices:
        console.print()
        for line in nothing(plan):
            console.print(line)
        _print_bold(plan, console)
    else:
        _print_choices(plan, console)
        how("To run the best", plan.choices[0])
    if plan.bold:
        how("To try the bold one", plan.bold.choice)
    if plan.choices:
        print_emitted(plan, console, whole=whole)
        _print_proof(plan, console)


def _print_choices(plan: LayoutPlan, console: Console) -> None:
    """The best layouts, those that no other one beats, and why others lost."""
    _section(console, f"Best layouts, {OBJECTIVES[plan.wishes.objective]}")
    console.print(_choices(plan))
    for line in alike(plan.choices):
        console.print(line, soft_wrap=True)
    if len(plan.tied) > 1:
        tied = count(len(plan.tied))
        console.print(f"{tied} layouts cannot be told apart: the best is one of them with {percent(TIED, 0)}")
    _print_bold(plan, console)
    if len(plan.front) > 1:
        scope = "" if plan.front_whole else ", of what was replayed"
        _section(console, f"Front: what no other layout beats in time, free memory, GPUs and price{scope}")
        console.print(_front(plan))
    if plan.lost:
        _section(console, "Why others lost")
        console.print(_lost(plan))


def _print_bold(plan: LayoutPlan, console: Console) -> None:
    if plan.bold:
        console.print(bold(plan.bold), soft_wrap=True)


def _print_proof(plan: LayoutPlan, console: Console) -> None:
    """What the certificate says, and how long the search took."""
    console.print()
    console.print(plan.certificate.sentence())
    if plan.remembered:
        console.print(f"{count(plan.remembered)} of the replays were in the journal")
    console.print(_times(plan))


def _times(plan: LayoutPlan) -> str:
    """How long the parts of the search took."""
    timing = plan.timing
    return (
        f"times: enumerating {timing['enumerate_s']:.2f} s, screening {timing['screen_s']:.2f} s, "
        f"{count(len(plan.replays))} replays in all {timing['replay_s']:.2f} s; "
        f"{timing['total_s']:.2f} s together"
    )


def nothing(plan: LayoutPlan) -> list[str]:
    """Why there is no choice."""
    certificate = plan.certificate
    if not certificate.legal:
        return ["No layout is legal: " + reasons(plan.refused, plan.left_out)]
    if not certificate.fit:
        lines = [f"None of {count(certificate.legal)} layouts fits with probability {plan.wishes.fits:g}"]
        if plan.smallest:
            settings, peak, capacity = plan.smallest
            lines.append(f"the smallest takes {gigabytes(peak)} of {gigabytes(capacity)}: {short(settings)}")
            lines.append(f"most of it: {_most_of(plan.smallest_terms)}")
        return lines
    if note := passed_over(plan):
        return [f"{count(certificate.fit)} layouts fit, and none of them can be proposed", note]
    lines = [f"{count(certificate.fit)} layouts fit, and none of them meets the limits"]
    if plan.nearest:
        settings, factor = plan.nearest
        lines.append(f"the nearest takes at least {factor:.2f} times what they allow: {short(settings)}")
    return lines


def _most_of(terms: Mapping[str, float]) -> str:
    """The terms of a memory that are a tenth of it or more, the largest first, and the largest at least."""
    first, *others = sorted(terms, key=lambda name: -terms[name])
    large = [first, *(name for name in others if terms[name] >= 0.1 * sum(terms.values()))]
    return ", ".join(f"{name} {gigabytes(terms[name])}" for name in large)


def alike(choices: Sequence[Choice]) -> list[str]:
    """Which choices are one step and one bill of memory, and by which fields they are two all the same."""
    groups: dict[tuple[object, ...], list[int]] = {}
    for rank, one in enumerate(choices):
        groups.setdefault((one.figures.step_time_s, *one.figures.memory.items()), []).append(rank)
    lines = []
    for ranks in groups.values():
        if len(ranks) > 1:
            first, *others = (choices[rank].settings for rank in ranks)
            fields = [name for name in first if any(one[name] != first[name] for one in others)]
            numbers = ", ".join(str(rank + 1) for rank in ranks)
            lines.append(f"{numbers}: the same step and memory, whatever {', '.join(fields)} is of these")
    return lines


def bold(one: BoldChoice) -> str:
    """What may be tried first, in one sentence."""
    choice = one.choice
    figures = f"{seconds(choice.figures.step_time_s)}, {gigabytes(choice.figures.peak_memory_bytes)}"
    start = f"bold: {short(choice.settings)} ({figures}) fits with {chance(choice.fit_probability)}"
    if one.faster is None or one.promised is None:
        return start
    return (
        f"{start} and is {percent(one.faster)} faster; tried first, with the best behind it, "
        f"{percent(one.promised)} on average"
    )


def _choices(plan: LayoutPlan) -> Table:
    first = plan.choices[0]
    priced = first.price_per_step is not None
    budget = first.days is not None
    sure, counted = first.probability_best is not None, first.goodput is not None
    table = _grid("#", "layout", "step", "slower", "MFU", "memory", "fits")
    columns = ((counted, "goodput"), (sure, "best"), (sure, "regret"), (budget, "days"))
    for wanted, name in (*columns, (priced, _price(plan))):
        if wanted:
            table.add_column(name, justify="right", no_wrap=True)
    for rank, one in enumerate(plan.choices, 1):
        cells = [
            str(rank),
            short(one.settings),
            seconds(one.figures.step_time_s),
            "" if rank == 1 else f"{(one.value / first.value - 1) * 100:+.1f} %",
            percent(one.figures.mfu),
            gigabytes(one.figures.peak_memory_bytes),
            chance(one.fit_probability),
        ]
        cells += [percent(one.goodput)] if one.goodput is not None else []
        cells += [_share(one.probability_best), _share(one.expected_regret)] if sure else []
        cells += [f"{one.days:,.1f}"] if budget and one.days is not None else []
        cells += [_dollars(one.price_per_step)] if priced and one.price_per_step is not None else []
        table.add_row(*cells)
    return table


def _share(value: float | None) -> str:
    return "" if value is None else percent(value, 0 if value >= 0.1 else 1)


def _dollars(price: float) -> str:
    """The price of a step to four digits, which tell layouts apart; to the cent where it is large.

    >>> _dollars(0.0207812), _dollars(6.37), _dollars(12345.678)
    ('0.02078', '6.370', '12,345.68')
    """
    return f"{price:,.2f}" if price >= 100 else f"{price:#.4g}"


def _price(plan: LayoutPlan) -> str:
    """The heading of prices, in their currency."""
    price = price_of(plan.choices[0].scenario.cluster) if plan.choices else None
    currency = price.currency if price else "USD"
    return f"{'$' if currency == 'USD' else currency} a step"


def _front(plan: LayoutPlan) -> Table:
    varied = len({point.gpus for point in plan.front}) > 1
    priced = plan.front[0].price_per_step is not None
    table = _grid("layout", "step", "free")
    for wanted, name in ((varied, "GPUs"), (priced, _price(plan))):
        if wanted:
            table.add_column(name, justify="right", no_wrap=True)
    for point in plan.front[:FRONT_LINES]:
        cells = [short(point.settings), seconds(point.step_time_s), gigabytes(point.headroom_bytes)]
        cells += [count(point.gpus)] if varied else []
        cells += [_dollars(point.price_per_step)] if priced and point.price_per_step is not None else []
        table.add_row(*cells)
    if len(plan.front) > FRONT_LINES:
        table.add_row(f"and {len(plan.front) - FRONT_LINES} more (--json)")
    return table


def _lost(plan: LayoutPlan) -> Table:
    """A line for each layout; alternatives whose best layout is the same share it."""
    table = _grid("which", "factor", "why", "its best layout")
    names: dict[tuple[str, str], list[str]] = {}
    for one in plan.lost:
        names.setdefault((short(one.settings), one.why), []).append(one.name)
    for one in plan.lost:
        shared = names.pop((short(one.settings), one.why), None)
        if shared is None:
            continue
        factor = _factor(one)
        cells = (factor if one.fits else f"{factor} memory", one.why, short(one.settings))
        table.add_row("; ".join(shared), *cells)
    return table


def _factor(one: Loser) -> str:
    if one.at_least:  # rounded down, so that it stays true
        return f"at least {math.floor(100 * one.factor) / 100:.2f} {TIMES}"
    return f"{one.factor:.2f} {TIMES}" if math.isfinite(one.factor) else "-"


def _grid(*names: str) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in names:
        words = name in ("layout", "which", "why", "its best layout")
        table.add_column(name, justify="left" if words else "right", no_wrap=not words, overflow="fold")
    return table


def _section(console: Console, title: str) -> None:
    from rich.text import Text

    console.print()
    console.print(Text(title, style="bold"))
