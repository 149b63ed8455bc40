"""How near a fitted profile predicts a fresh measurement of the same machine: gloo between two processes.

    python benchmarks/own_collectives.py [--processes 2] [--rounds 3] [--budget 2min]

Rounds of two sweeps in turn: one to fit, one to judge, so that what else the machine does falls on both.
The profile is fitted on all sweeps of the first sort; each size of the second counts with its median over
the rounds. Printed by collective, beside the aim of 20 %:

- the median error of the prediction;
- the floor: how far the two sorts differ from each other, medians of the same rounds. No fit is nearer;
- the spread: the slowest over the fastest of the rounds that judge.

Needs torch. The load average says whether others used the machine meanwhile.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import median

AIM = 0.20

Key = tuple[str, int]
"""(collective, bytes)."""


def main() -> None:
    parser = argparse.ArgumentParser(description="A fitted profile beside a fresh measurement, by gloo.")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--budget", default="2min", help="of one sweep")
    parser.add_argument("--largest", default="16MB", help="largest size")
    given = parser.parse_args()
    loads = [os.getloadavg()[0]]
    with tempfile.TemporaryDirectory() as folder:
        fitted: list[Path] = []
        fresh: list[Path] = []
        for number in range(given.rounds):
            for sort, paths in (("fit", fitted), ("fresh", fresh)):
                paths.append(Path(folder) / f"{sort}{number}.csv")
                stepsim(
                    *("calibrate", "collectives", "--spawn", given.processes, "--backend", "gloo"),
                    *("--largest", given.largest, "--budget", given.budget, "--out", paths[-1]),
                )
                loads.append(os.getloadavg()[0])
                print(f"round {number + 1} of {given.rounds}: {sort}, load {loads[-1]:.1f}", file=sys.stderr)
        profile = Path(folder) / "my.profile.yaml"
        stepsim("calibrate", "fit", *fitted, "--out", profile)
        report(rounds(fitted), rounds(fresh), given.processes, profile)
    print(f"load average {min(loads):.1f} to {max(loads):.1f} on {os.cpu_count()} processors")


def rounds(paths: Iterable[Path]) -> dict[Key, list[float]]:
    """Seconds of every round by collective and size."""
    found: dict[Key, list[float]] = defaultdict(list)
    for path in paths:
        with path.open(newline="") as file:
            for line in csv.DictReader(file):
                found[line["kind"], int(line["bytes"])].append(float(line["seconds"]))
    return found


def report(
    fitted: Mapping[Key, list[float]], fresh: Mapping[Key, list[float]], processes: int, profile: Path
) -> None:
    """Print error, floor and spread by collective and over all."""
    figures: dict[str, list[tuple[float, float, float]]] = defaultdict(list)
    for (kind, size), seconds in sorted(fresh.items()):
        if (kind, size) in fitted:
            middle = median(seconds)
            error = abs(predicted_s(kind, size, processes, profile) / middle - 1)
            floor = abs(median(fitted[kind, size]) / middle - 1)
            figures[kind].append((error, floor, max(seconds) / min(seconds) - 1))
    figures["all"] = [one for some in list(figures.values()) for one in some]
    print(f"{'':15} {'error':>7} {'floor':>7} {'spread':>7}  (medians over sizes)")
    for kind, some in figures.items():
        error, floor, spread = (median(column) for column in zip(*some, strict=True))
        print(f"{kind:15} {error:7.1%} {floor:7.1%} {spread:7.1%}  {len(some)} sizes")
    error, floor = (median(column) for column in list(zip(*figures["all"], strict=True))[:2])
    print(f"{'meets' if error <= AIM else 'MISSES'} the aim of {AIM:.0%}")
    if floor > AIM:
        print("two measurements differ by more than the aim: this machine is too busy to tell")


def predicted_s(kind: str, size: int, processes: int, profile: Path) -> float:
    """What the simulator says of that collective by the profile."""
    said = stepsim(
        *("collective", kind, "--gpus", processes, "--size", f"{size} B"),
        *("--calibration", profile, "--json"),
    )
    return float(json.loads(said)["time_s"])


def stepsim(*arguments: object) -> str:
    command = [sys.executable, "-m", "stepsim.cli.main", *map(str, arguments)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    main()
