"""A Result for people at a terminal: headline, where the time goes, memory, assumptions.

Everything can be read without colour and at 80 columns. Knows rich; computes nothing but shares.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from ..figures import count, gigabytes, large, percent, seconds, signed_percent
from ..result.energy import J_PER_KWH, StepEnergy
from ..result.result import Result, fit_words
from ..result.step import AXES, LENGTHENS, PEERS, SHORTENS, Assumption, Interval, IntervalPart
from . import captions
from .bounds_table import bounds_table

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

Line = tuple[str, str, str]  # what, figure, remark

SEEN = 0.0005
"""Of a step: what is shorter is printed as 0.0 % and left out."""


def print_result(result: Result, console: Console, *, assumptions: bool = False) -> None:
    """Print every table, as wide as ``console`` allows.

    Of the assumptions those that lie outside what was measured, and notes; with ``assumptions`` all of them.
    """
    from rich.text import Text

    from .memory_table import memory_table

    title, *lines = captions.headings(result.scenario)
    console.print(Text(title, style="bold"))
    for line in lines:
        console.print(line)
    console.print()
    console.print(_grid(headline(result)))
    _print_out_of_the_ordinary(result, console)
    _section(console, "Where the time goes")
    console.print(_path_table(result, console))
    if any(result.exposed_communication_s.get(axis, 0.0) > 0 for axis in AXES):
        _section(console, "Exposed communication")
        console.print(_exposed_table(result))
    if result.bounds:
        _section(console, "What bounds communication while it moves")
        console.print(bounds_table(result))
    if result.memory:
        _section(console, "Memory per pipeline rank, at its peak")
        console.print(memory_table(result, console.width))
    if result.assumptions:
        _print_assumptions(result, console, whole=assumptions)
    console.print()
    console.print(class_line(result))


def _print_out_of_the_ordinary(result: Result, console: Console) -> None:
    """What only some steps have: faults, GPUs that differ, hosts with other GPUs, other jobs."""
    if result.faults:
        from .step_faults_table import print_step_faults

        print_step_faults(result.faults, console)
    if result.variation:
        from .variation_table import print_variation

        print_variation(result.variation, console)
    if result.gpu_kinds:
        from .gpu_kinds_table import print_gpu_kinds

        print_gpu_kinds(result.gpu_kinds, result.step_time_s, console)
    if result.neighbours:
        from .neighbours_table import print_neighbours

        print_neighbours(result.neighbours, console)


def _print_assumptions(result: Result, console: Console, *, whole: bool) -> None:
    """What the prediction rests on: ``whole``, or what lies outside of what was measured, and notes."""
    _section(console, f"Rests on: {_counted_assumptions(result)}")
    shown = [one for one in result.assumptions if whole or one.in_range is False or one.note]
    if shown:
        console.print(_assumptions_table(shown))
    if len(shown) < len(result.assumptions):
        rest = len(result.assumptions) - len(shown)
        console.print(f"  {rest} more, with their sources: --assumptions")


def headline(result: Result) -> Iterator[Line]:
    """The figures that people quote and that are known, each with what it means."""
    yield "step time", seconds(result.step_time_s), _published_step(result)
    if interval := result.interval:
        range_ = f"{seconds(interval.low_s)} to {seconds(interval.high_s)}"
        yield f"{percent(interval.level, 0)} interval", "", f"{range_}; mostly {_main_causes(interval)}"
    if few := result.step_bounds:
        how = "proven" if few.proven else "with a margin"
        between = f"{seconds(few.lower_s)} to {seconds(few.upper_s)}, {percent(few.gap, 2)} apart, {how}"
        yield "bounds", "", f"{between}: {count(few.replicas)} of {count(few.of)} replicas were replayed"
    if found := result.loss_scaling:
        each = seconds(found.skipped_step_s)
        every = f"{percent(found.skipped_share, 2)} of steps overflow and are skipped, {each} each"
        first = "" if found.first_steps is None else f"; {found.first_steps} before the scale holds"
        yield "with loss scaling", seconds(found.effective_step_s), every + first
    if result.scenario:
        yield "tokens/s per GPU", f"{result.tokens_per_second_per_gpu:,.1f}", ""
        yield from _mfu(result)
        yield "HFU", percent(result.hfu), "with recomputation, full attention scores"
    if result.actions and result.pipelined:
        yield "pipeline bubble", percent(result.bubble_fraction), "idle over busy time"
    late = {
        name: part for name in PEERS if (part := result.waiting_s.get(name, 0.0) / result.step_time_s) >= SEEN
    }
    if late:
        whom = ", ".join(f"{captions.peers_title(name)} {percent(part)}" for name, part in late.items())
        yield "waiting for peers", percent(sum(late.values())), f"of the step, for late ranks: {whom}"
    if result.memory:
        yield "peak memory", gigabytes(result.peak_memory_bytes), _fit(result)
    ahead = result.outlook
    if ahead:
        yield (
            "training",
            f"{ahead.days:,.1f} days",
            f"{large(ahead.tokens)} tokens, {count(ahead.steps)} steps",
        )
        price = "" if ahead.price is None else f"price {large(ahead.price)} {money(ahead.currency)}"
        yield "GPU-hours", large(ahead.gpu_hours), price
    if cost := result.cost:
        per_trillion = f"{large(cost.per_trillion_tokens)} {money(cost.currency)} a trillion tokens"
        rate = f"at {cost.price_per_gpu_hour:g} a GPU-hour ({cost.source})"
        yield "cost of a step", f"{cost.per_step:,.4g} {cost.currency}", f"{per_trillion}, {rate}"
    if energy := result.energy:
        yield "energy of a step", *_energy(energy)


def _energy(energy: StepEnergy) -> tuple[str, str]:
    """The energy of a step, and what is in it."""
    off = percent(1 - energy.low_j / energy.per_step_j, 0)
    known = "" if energy.measured else ", of a GPU whose draw nobody published"
    counted = [f"{energy.per_gpu_w:,.0f} W a GPU with its host"]
    counted += ["network"] if energy.network_w else []
    counted += [f"PUE {energy.pue:g}"] if energy.pue else []
    carbon = "" if energy.carbon_g is None else f"; {energy.carbon_g / 1e3:,.4g} kg of CO2"
    per_trillion = f"{large(energy.per_trillion_tokens_kwh)} kWh a trillion tokens"
    return (
        f"{energy.per_step_j / J_PER_KWH:,.4g} kWh",
        f"±{off}{known}: {', '.join(counted)}; {per_trillion}{carbon}",
    )


def money(currency: str) -> str:
    """The name of the US dollar, and the code of any other currency."""
    return "US dollars" if currency == "USD" else currency


def _mfu(result: Result) -> Iterator[Line]:
    """Both counts of attention, the one that people should read first as ``MFU``."""
    full, half = "full attention scores", "half of the attention scores"
    if result.headline_mfu == "mfu":
        yield "MFU", percent(result.mfu), f"{full}{_published_mfu(result)}"
        yield "MFU, causal", percent(result.mfu_causal), half
    else:
        yield "MFU", percent(result.mfu_causal), f"causal: {half}{_published_mfu(result)}"
        yield "MFU, full", percent(result.mfu), full


def _main_causes(interval: Interval) -> str:
    """The two largest causes of an interval, each with what it alone would make of it."""
    largest = sorted(interval.parts, key=lambda part: -part.share * part.sigma)[:2]
    return ", ".join(f"{part.name} ({_alone(part, interval)})" for part in largest)


def _alone(part: IntervalPart, interval: Interval) -> str:
    """How far an interval of this part alone would reach; where that is on both sides, about."""
    sigma = part.share * part.sigma
    if part.kind in LENGTHENS:
        return f"+{percent(math.expm1(interval.quantile * sigma))}"
    if part.kind in SHORTENS:
        return f"-{percent(-math.expm1(-interval.quantile_below * sigma))}"
    return f"±{percent((interval.quantile + interval.quantile_below) / 2 * sigma)}"


def class_line(result: Result) -> str:
    """``16 classes stand for 16,384 ranks; 93,120 events in 0.40 s``."""
    classes = len(result.ranks)
    one = classes == 1
    line = f"{count(classes)} {'class stands' if one else 'classes stand'} for {count(result.gpus)} ranks"
    line += f"; {count(result.events)} events"
    if "replay_s" in result.timing:
        line += f" in {result.timing['replay_s']:.2f} s"
    if "total_s" in result.timing:
        line += f" ({result.timing['total_s']:.2f} s in all)"
    return line


def _published_step(result: Result) -> str:
    published = result.scenario.published if result.scenario else None
    if published is None or published.step_time_s is None:
        return ""
    error = result.step_time_s / published.step_time_s - 1
    source = f" ({published.source})" if published.source else ""
    return f"published {seconds(published.step_time_s)}, error {signed_percent(error)}{source}"


def _published_mfu(result: Result) -> str:
    """The source stands beside the step time where there is one, else here."""
    published = result.scenario.published if result.scenario else None
    if published is None or published.mfu is None:
        return ""
    source = f" ({published.source})" if published.source and published.step_time_s is None else ""
    return f"; published {percent(published.mfu)}{source}"


def _fit(result: Result) -> str:
    fullest = result.fullest
    capacity = gigabytes(fullest.capacity_bytes)
    if result.fits:
        return f"of {capacity}, {fit_words(result.fit_probability)} (pp {fullest.pp} is fullest)"
    over = sum(not stage.fits for stage in result.memory)
    return f"of {capacity}, DOES NOT FIT on {over} of {len(result.memory)} pipeline ranks"


def _section(console: Console, title: str) -> None:
    console.print(f"\n{title}", style="bold")


def _grid(lines: Iterator[Line]) -> Table:
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=True, justify="right")
    grid.add_column()
    for what, figure, remark in lines:
        grid.add_row(f"  {what}", Text(figure, style="bold"), Text(remark))
    return grid


def _path_table(result: Result, console: Console) -> Table:
    """The critical path by name, longest first, each with a bar as long as its share."""
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    table.add_column(min_width=12)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    width = max(10, min(40, console.width - 52))
    longest = max((segment.seconds for segment in result.critical_path), default=0.0)
    for segment in sorted(result.critical_path, key=lambda s: (-s.seconds, s.name)):
        length = width * segment.seconds / longest if longest else 0.0
        share = percent(segment.seconds / result.step_time_s)
        figure = seconds(segment.seconds)
        table.add_row(Text(f"  {segment.name}"), figure, share, bar(length, console.options.ascii_only))
    return table


def bar(length: float, ascii_only: bool) -> str:
    """A bar of ``length`` columns, to an eighth of one.

    >>> bar(2.5, False), bar(2.5, True)
    ('██▌', '##')
    """
    if ascii_only:
        return "#" * round(length)
    whole, eighths = divmod(round(length * 8), 8)
    return "█" * whole + " ▏▎▍▌▋▊▉"[eighths].strip()


def _exposed_table(result: Result) -> Table:
    from rich.table import Table

    table = Table.grid(padding=(0, 3))
    table.add_column(no_wrap=True)
    shown = [axis for axis in AXES if result.exposed_communication_s.get(axis, 0.0) > 0]
    for _ in shown:
        table.add_column(justify="right", no_wrap=True)
    times = [result.exposed_communication_s[axis] for axis in shown]
    table.add_row("", *(axis.upper() for axis in shown))
    table.add_row("  mean of ranks", *(seconds(time_s) for time_s in times))
    table.add_row("  of the step", *(percent(time_s / result.step_time_s) for time_s in times))
    return table


def _counted_assumptions(result: Result) -> str:
    inside = sum(a.in_range is True for a in result.assumptions)
    outside = sum(a.in_range is False for a in result.assumptions)
    stated = len(result.assumptions) - inside - outside
    return f"{inside} inside the measured range, {outside} outside, {stated} without one"


def _assumptions_table(shown: Iterable[Assumption]) -> Table:
    """Those outside their measured range first: they are what to doubt. Then what is worth a look."""
    from rich.table import Table
    from rich.text import Text

    words = {False: "OUTSIDE", True: "inside", None: "stated"}
    order = {"OUTSIDE": 0, "note": 1, "inside": 2, "stated": 3}
    named = [("note" if one.note else words[one.in_range], one) for one in shown]
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column()
    for word, one in sorted(named, key=lambda pair: order[pair[0]]):
        source = f" ({one.source})" if one.source else ""
        table.add_row(f"  {word}", Text(one.text + source))
    return table
