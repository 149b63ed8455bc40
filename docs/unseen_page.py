"""Fills in the tables of docs/unseen-runs.md: what published runs took that no constant has seen.

python docs/unseen_page.py            predicts the runs of tests/data/unseen, writes anew (make docs)
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
RUNS = ROOT / "tests" / "data" / "unseen"
PAGE = ROOT / "docs" / "unseen-runs.md"
TABLES = re.compile(r"(<!-- runs -->\n).*(\n<!-- end of runs -->)", re.DOTALL)
HEAD = "| run | GPUs | measured | predicted | error | 90 % interval | held |"


def predictions() -> dict[str, Any]:
    """What ``stepsim validate`` says of every run, and of every sweep."""
    program = [sys.executable, "-m", "stepsim.cli.main"]
    command = [*program, "validate", "--json", *map(str, sorted(RUNS.glob("*.yaml")))]
    printed = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    said: dict[str, Any] = json.loads(printed)
    return said


def tables(said: dict[str, Any]) -> str:
    """A table for each source, below what all of them together come to, and one for all sweeps."""
    predicted = {case["id"]: case for case in said["cases"]}
    lines = [summary("All", list(predicted.values())), "", *sweeps(said["sweeps"])]
    for path in sorted(RUNS.glob("*.yaml")):
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
        source, cases = document["source"], document["cases"]
        mine = [predicted[case["id"]] for case in cases]
        lines += [f"## {source['title']}", ""]
        link = f"[{source['url'].removeprefix('https://github.com/')}]({source['url']})"
        lines += [f"{link}: {source['retrieved_from']}. `tests/data/unseen/{path.name}`."]
        lines += ["", summary("Here", mine), "", HEAD, "|---|--:|--:|--:|--:|--:|---|"]
        lines += [row(case, one) for case, one in zip(cases, mine, strict=True)]
        lines += [""]
    return "\n".join(lines).rstrip("\n")


def sweeps(judged: list[dict[str, Any]]) -> list[str]:
    """The layouts of one job that a source ran five of or more: how they are ranked, what choices lose."""
    lines = ["| sweep | source | runs | rank correlation | first choice lost | best of three lost |"]
    lines += ["|---|---|--:|--:|--:|--:|"]
    for one in sorted(judged, key=lambda one: (one["source"], one["job"])):
        lost = [
            _lost(one["first_choice"], one["first_choice_lost"]),
            _lost(one["choices"], one["best_of_three_lost"]),
        ]
        rank = "" if one["rank_correlation"] is None else f"{one['rank_correlation']:.2f}"
        lines += ["| " + " | ".join([one["job"], one["source"], str(one["runs"]), rank, *lost]) + " |"]
    return [*lines, ""]


def _lost(chosen: object, lost: float | None) -> str:
    if not chosen:
        return "nothing proposed"
    return "out of memory" if lost is None else f"{lost:.1%}".replace("%", " %")


def summary(where: str, predicted: list[dict[str, Any]]) -> str:
    """How far off they are in the median, and how many intervals held."""
    timed = [one for one in predicted if one["measured_step_time_s"] is not None]
    answered = [one for one in timed if one["refused"] is None]
    errors = [one["error"] for one in answered]
    held = sum(_held(one) for one in answered)
    refused, runs = len(timed) - len(answered), f"run{'s' * (len(answered) != 1)}"
    off = f"median error {median(map(abs, errors)):.1%} (signed {median(errors):+.1%})"
    inside = f"{held} of {len(answered)} inside the interval"
    told = f"{where}: {len(answered)} {runs}, {off}, {inside}"
    told += f", {refused} refused" if refused else ""
    return (told + _full(predicted) + ".").replace("%", " %")


def _full(predicted: list[dict[str, Any]]) -> str:
    """How many of the jobs that ran out of memory are predicted to, where there are any."""
    jobs = [one for one in predicted if one["measured_outcome"] == "oom" and one["refused"] is None]
    foretold = sum(one["predicted_outcome"] == "oom" for one in jobs)
    return f"; {foretold} of {len(jobs)} that ran out of memory foretold" if jobs else ""


def row(case: dict[str, Any], one: dict[str, Any]) -> str:
    """One run; the measured figure leads to where it is published."""
    address, gpus = case["notes"].split()[-1], f"{case['hardware']['gpus']:,} {case['hardware']['gpu']}"
    step_s = one["measured_step_time_s"]
    measured = f"[{'out of memory' if step_s is None else f'{step_s:.4g} s'}]({address})"
    if one["refused"] is not None:
        return f"| {case['id']} | {gpus} | {measured} | refused | | | |"
    if step_s is None:
        foretold = one["predicted_outcome"] == "oom"
        said = f"{'out of memory' if foretold else 'fits'} | | fits by {one['fit_probability']:.0%}"
        return f"| {case['id']} | {gpus} | {measured} | {said} | {'yes' if foretold else '**no**'} |".replace(
            "%", " %"
        )
    low, high = one["predicted_interval_s"]
    cells = [case["id"], gpus, measured, f"{one['predicted_step_time_s']:.4g} s", f"{one['error']:+.1%}"]
    cells += [f"{low:.3g} to {high:.3g} s", "yes" if _held(one) else "**no**"]
    return ("| " + " | ".join(cells) + " |").replace("%", " %")


def _held(one: dict[str, Any]) -> bool:
    low, high = one["predicted_interval_s"]
    return bool(low <= one["measured_step_time_s"] <= high)


def main() -> None:
    """Write the page."""
    made, found = tables(predictions()), PAGE.read_text(encoding="utf-8")
    text = TABLES.sub(lambda marks: marks[1] + "\n" + made + "\n" + marks[2], found)
    PAGE.write_text(text, encoding="utf-8")
    sys.stdout.write(f"written: {PAGE.relative_to(ROOT)}\n")


if __name__ == "__main__":
    main()
