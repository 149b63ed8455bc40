"""How near a fitted profile predicts a fresh measurement of the same machine: gloo between two processes.

    python benchmarks/own_collectives.py [PROCESSES]

Measures, fits, predicts the sizes between the measured ones, and measures those: medians of the error
by collective, and over all, beside the aim of 20 %. Needs torch. On a machine that others use, two
measurements differ more than the fit does; the spread of the fresh one is printed too.
"""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from statistics import median

AIM = 0.20
KINDS = ("all_reduce", "all_gather", "reduce_scatter", "alltoall", "broadcast", "sendrecv")


def main() -> None:
    processes = sys.argv[1] if len(sys.argv) > 1 else "2"
    with tempfile.TemporaryDirectory() as folder:
        first, fresh, profile = (Path(folder) / name for name in ("a.csv", "b.csv", "my.profile.yaml"))
        stepsim("calibrate", "collectives", "--spawn", processes, "--backend", "gloo", "--out", first)
        stepsim("calibrate", "fit", first, "--out", profile)
        # A largest size of its own shifts no size but the last: the fresh run meets the same sizes anew.
        stepsim("calibrate", "collectives", "--spawn", processes, "--backend", "gloo", "--out", fresh)
        errors: dict[str, list[float]] = defaultdict(list)
        spread = []
        for line in csv.DictReader(fresh.open()):
            predicted = stepsim(
                *("collective", line["kind"], "--gpus", processes, "--size", f"{line['bytes']} B"),
                *("--calibration", profile, "--json"),
            )
            errors[line["kind"]].append(abs(json.loads(predicted)["time_s"] / float(line["seconds"]) - 1))
            spread.append(float(line["p90_s"]) / float(line["p10_s"]) - 1)
    for kind in KINDS:
        print(f"{kind:15} median error {median(errors[kind]):6.1%} over {len(errors[kind])} sizes")
    everything = median(error for some in errors.values() for error in some)
    verdict = "meets" if everything <= AIM else "MISSES"
    print(f"{'all':15} median error {everything:6.1%}: {verdict} the aim of {AIM:.0%}")
    print(f"{'':15} p90 over p10 of the fresh samples: {median(spread):.0%} more in the median")


def stepsim(*arguments: object) -> str:
    command = [sys.executable, "-m", "stepsim.cli.main", *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    main()
