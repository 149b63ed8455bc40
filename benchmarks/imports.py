"""How the importers do on published configurations: what is read, and how far predictions from it are from
print.

    python benchmarks/imports.py [FRAMEWORK...] [--told] [--all] [--write]
    python benchmarks/imports.py --sample 60

Needs the shared data (STEPSIM_SHARED). --told prints why files were refused, --all every prediction, and
--write puts the tables on docs/importers.md. --sample prints so many configurations, drawn by a fixed seed
and as many of each framework as it has a share, with what they were read as: for whoever checks them by hand.
"""

from __future__ import annotations

import random
import statistics
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from imported_configs import Outcome, Published, all_published, attempt, tally  # noqa: E402
from imported_figures import figure_of, given_of, skipped  # noqa: E402

BEGIN, END = "<!-- begin: measured imports -->", "<!-- end: measured imports -->"

Row = tuple[Published, float, float]
"""A published run, its step time in print, and as predicted."""


def imports_table(outcomes: list[Outcome]) -> list[str]:
    """A row for each framework: files, read, read with assumed facts, refused."""
    groups: dict[str, list[Outcome]] = defaultdict(list)
    for one in outcomes:
        groups[one.published.framework].append(one)
    lines = [
        "| framework | configurations | imported | of these with a fact assumed | refused or asked |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for name, group in [*sorted(groups.items()), ("all", outcomes)]:
        read = [one for one in group if one.scenario]
        lines.append(
            f"| {name} | {len(group)} | {len(read)} | {sum(bool(one.assumed) for one in read)} | "
            f"{len(group) - len(read)} |"
        )
    return lines


SAMPLE_SEED = 21


def sample(outcomes: list[Outcome], size: int) -> list[Outcome]:
    """So many of them, at least one of each framework."""
    groups: dict[str, list[Outcome]] = defaultdict(list)
    for one in outcomes:
        groups[one.published.framework].append(one)
    share = {name: max(1, round(size * len(group) / len(outcomes))) for name, group in groups.items()}
    while sum(share.values()) > size:
        share[max(share, key=lambda name: share[name])] -= 1
    while sum(share.values()) < size:
        share[max(share, key=lambda name: len(groups[name]) / share[name])] += 1
    drawn = random.Random(SAMPLE_SEED)
    return [one for name in sorted(groups) for one in drawn.sample(groups[name], share[name])]


def sheet(one: Outcome) -> list[str]:
    """What a configuration was read as, beside its row of the index; or why it was not."""
    row, made = one.published.row, one.scenario
    columns = ("model", "gpus", "gpu_type", "parallelism", "seq_length", "global_batch", "micro_batch")
    lines = [one.published.file, "  index: " + ", ".join(f"{name} {row.get(name, '')}" for name in columns)]
    if made is None:
        return [*lines, *(f"  refused: {reason[:200]}" for reason in one.reasons)]
    for name in ("model", "parallelism", "training"):
        block = getattr(made, name).model_dump(mode="json", exclude_defaults=True, exclude_none=True)
        lines.append(f"  {name}: {block}")
    lines += [f"  schedule: {made.schedule}", f"  assumed: {', '.join(one.assumed)}"]
    assert one.imported is not None
    return [*lines, *(f"  note: {note}" for note in one.imported.notes)]


def predictions(wanted: list[str], folder: Path) -> tuple[list[Row], Counter[str], list[str]]:
    """Rows that were predicted; why others were not; refusals in full."""
    from stepsim.sim.simulate import simulate

    rows: list[Row] = []
    why: Counter[str] = Counter()
    told = []
    seen = set()
    for one in all_published():
        if not one.row.get("published_figure", "").strip() or (wanted and one.framework not in wanted):
            continue
        key = (one.file, tuple(one.row.values()))
        if key in seen:
            continue
        seen.add(key)
        if reason := skipped(one):
            why[reason] += 1
            continue
        figure = figure_of(one)
        outcome = attempt(one, folder, given_of(one), assume=False)
        if outcome.scenario is None or figure is None:
            why["refused by the import"] += 1
            told.append(
                f"{one.framework} {one.row['model']} {one.row['gpus']} {one.row['gpu_type']}: "
                f"{'; '.join(outcome.reasons[:3])[:300]}"
            )
            continue
        try:
            result = simulate(outcome.scenario)
        except ValueError as error:
            why["not modelled"] += 1
            told.append(f"{one.framework} {one.row['model']}: {error!s:.200}")
            continue
        gpus = outcome.scenario.cluster.gpus
        published = figure.step_s(
            tokens_per_gpu=result.tokens_per_step / gpus, flops_per_gpu=result.model_flops_causal / gpus
        )
        rows.append((one, published, result.step_time_s))
    return rows, why, told


def errors_table(rows: list[Row]) -> list[str]:
    """Median and 90th percentile of the relative error, by framework and in all."""
    groups: dict[str, list[float]] = defaultdict(list)
    for one, published, predicted in rows:
        groups[one.framework].append(abs(predicted / published - 1))
    lines = [
        "| framework | figures | median error | 90th percentile | worst |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for name, errors in [
        *sorted(groups.items()),
        ("all", [error for group in groups.values() for error in group]),
    ]:
        ranked = sorted(errors)
        if ranked:
            high = ranked[min(len(ranked) - 1, int(0.9 * len(ranked)))]
            lines.append(
                f"| {name} | {len(ranked)} | {statistics.median(ranked):.1%} | {high:.1%} | "
                f"{ranked[-1]:.1%} |"
            )
    return lines


def page_tables(outcomes: list[Outcome], rows: list[Row], why: Counter[str]) -> list[str]:
    """The lines of the page: what is read, how far predictions are off, and which are furthest off."""
    return [
        "### What is read",
        "",
        *imports_table(outcomes),
        "",
        "### Predicted from the file, beside the published step time",
        "",
        *errors_table(rows),
        "",
        "Figures that were not predicted:",
        "",
        "| why | figures |",
        "| --- | ---: |",
        *(f"| {reason} | {count} |" for reason, count in why.most_common()),
        "",
        "The furthest off:",
        "",
        *worst_table(worst_first(rows)[:15]),
    ]


def worst_first(rows: list[Row]) -> list[Row]:
    """The rows by their relative error."""
    return sorted(rows, key=lambda row: -abs(row[2] / row[1] - 1))


def worst_table(rows: list[Row]) -> list[str]:
    """A row for each, with both times and the error."""
    return [
        "| framework | model | GPUs | published s | predicted s | error |",
        "| --- | --- | --- | ---: | ---: | ---: |",
        *(
            f"| {one.framework} | {one.row['model']} | {one.row['gpus']} {one.row['gpu_type']} | "
            f"{published:.3g} | {predicted:.3g} | {predicted / published - 1:+.1%} |"
            for one, published, predicted in rows
        ),
    ]


def row_line(row: Row) -> str:
    """One prediction with all that finds its run again."""
    one, published, predicted = row
    return (
        f"{predicted / published - 1:+.1%} {one.framework} {one.row['model']} {one.row['gpus']} "
        f"{one.row['parallelism']} s{one.row['seq_length']} {one.row['published_figure'][:50]} "
        f"{one.row['note'][:90]}"
    )


def write_page(text: list[str]) -> None:
    """Put the tables between the marks of docs/importers.md."""
    page = ROOT / "docs" / "importers.md"
    before = page.read_text(encoding="utf-8")
    head, tail = before.split(BEGIN)[0], before.split(END)[1]
    page.write_text("\n".join([head + BEGIN, "", *text, "", END]) + tail, encoding="utf-8")


def print_sample(size: int) -> None:
    """Print what ``size`` configurations, drawn by a fixed seed, were read as."""
    with tempfile.TemporaryDirectory() as held:
        for one in sample(list(tally(None, Path(held))), size):
            print("\n".join(sheet(one)))


def main(arguments: list[str]) -> None:
    """Print the tables; with --write, put them on the page."""
    if "--sample" in arguments:
        print_sample(int(arguments[arguments.index("--sample") + 1]))
        return
    wanted = [one for one in arguments if not one.startswith("-")]
    with tempfile.TemporaryDirectory() as held:
        folder = Path(held)
        names: list[str | None] = [*wanted] or [None]
        outcomes = [one for name in names for one in tally(name, folder)]
        rows, why, told = predictions(wanted, folder)
    text = page_tables(outcomes, rows, why)
    print("\n".join(text))
    if "--told" in arguments:
        print("\n".join(told))
    if "--all" in arguments:
        print("\n".join(map(row_line, worst_first(rows))))
    if "--write" in arguments:
        write_page(text)


if __name__ == "__main__":
    main(sys.argv[1:])
