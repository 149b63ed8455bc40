"""Errors of collectives as tables, and docs/collectives.md, which holds them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...sim.figures import count, percent, seconds, signed_percent
from ...sim.report.collective import CollectiveCost
from .collectives import CollectiveRow, SizeErrors, by_log, errors_by_size
from .grids import NONE, Grid
from .markdown import section

_COLUMNS = ("≥1 MiB", "median", "p90", "signed", "<1 MiB", "median", "p90", "signed")

HEAD = """\
# Accuracy of collectives

Made by `make validate`, which runs

    stepsim validate --nccl ../shared/data/{nccl_logs,second/nccl_logs}/*.txt \\
        ../shared/data/kernel_tables/nccl_one_node.csv --leave-out --markdown docs/collectives.md

and predicts the time of every size in published logs of nccl-tests. Do not edit this page.

The measured time is the quicker of the out-of-place and the in-place half. Errors are of the predicted
time, absolute but for `signed`, over the sizes of 1 MiB and more and over the smaller ones, which the
columns `≥1 MiB` and `<1 MiB` count. The first table predicts with the shipped constants
(`hardware/collectives.yaml`), which were fitted jointly on these logs; in the second each log is predicted
by a fit that never saw it. What a log says of its system (NICs, forced algorithms) is used. Latencies of
EFA, TCPXO and A4X (gcp-rdma), efficiencies of NICs and constants of single messages (sendrecv) were
derived from logs of this very list, so that these parts are not held out.

The targets are 15 % for sizes of 1 MiB and more and 30 % for smaller ones. They are held by the medians over
all sizes of all logs, the rows `all`, not by every log: those whose own median is above a target are named
below the tables.
"""


ONE_HOST = """\
One size of a group in four, by a hash of both, of the table that ai-dynamo/aiconfigurator (NVIDIA,
Apache-2.0) measured on hosts of 2 to 8 GPUs (`../shared/data/kernel_tables/nccl_one_node.csv`): no fit saw
them. Rings, switches and messages of Hopper and Blackwell are fitted on the others and on the logs; of A100,
whose logs are of other versions of NCCL, messages of all-to-all alone; of cards over PCIe nothing is.
"""

TARGETS = {"large": ("of 1 MiB and more", 0.15), "small": ("below 1 MiB", 0.30)}
"""What the median error over all sizes of all logs should be below, by the names of ``errors_by_size``."""


def log_grid(rows: Sequence[CollectiveRow], title: str) -> Grid:
    """One row a log and one for all sizes of all logs."""
    body = [(log, *_cells(figures)) for log, figures in by_log(rows).items()]
    body.append(("all", *_cells(errors_by_size(rows))))
    return Grid(title=title, columns=("log", *_COLUMNS), rows=tuple(body))


def cost_grid(costs: Sequence[CollectiveCost], measured_s: Sequence[float] | None) -> Grid:
    """One row a size; with ``measured_s``, those times and the errors too."""
    first = costs[0]
    title = f"{first.kind}, {first.ranks} GPUs, {first.nodes} node{'s' if first.nodes > 1 else ''}"
    columns = ["bytes", "time", "algbw GB/s", "busbw GB/s", "algorithm", "protocol", "link that binds"]
    rows = [
        [
            f"{cost.bytes:.0f}",
            seconds(cost.time_s),
            f"{cost.algbw_bytes_per_s / 1e9:.2f}",
            f"{cost.busbw_bytes_per_s / 1e9:.2f}",
            cost.algorithm,
            cost.protocol,
            cost.binding_link,
        ]
        for cost in costs
    ]
    if measured_s is not None:
        columns += ["measured", "error"]
        for row, cost, measured in zip(rows, costs, measured_s, strict=True):
            row += [seconds(measured), signed_percent(cost.time_s / measured - 1) if measured else NONE]
    return Grid(title=title, columns=tuple(columns), rows=tuple(map(tuple, rows)), labels=0)


def ways_grid(costs: Sequence[CollectiveCost]) -> Grid:
    """One row for each algorithm among ``costs``: its steps, and bytes a GPU for each byte of the payload."""
    rows = {
        cost.algorithm: (
            cost.algorithm,
            count(cost.steps),
            count(cost.network_steps),
            f"{cost.nvlink_bytes / cost.bytes:.4g}",
            f"{cost.nic_bytes / cost.bytes:.4g}",
        )
        for cost in costs
    }
    columns = ("algorithm", "steps", "between nodes", "bytes a byte: NVLink", "NIC")
    return Grid(title="", columns=columns, rows=tuple(rows.values()), labels=1)


def collectives_markdown(
    shipped: Sequence[CollectiveRow],
    held_out: Sequence[CollectiveRow] | None,
    unstated: Sequence[str],
    one_host: Sequence[CollectiveRow] = (),
) -> str:
    """The page; ``unstated`` names logs whose settings are unknown, which no fit learnt from; ``one_host``
    are points of tables that no fit saw."""
    parts = [HEAD, section(log_grid(shipped, "With the shipped constants")), _above(shipped)]
    if held_out is not None:
        parts += [section(log_grid(held_out, "Each log left out of the fit")), _above(held_out)]
    if one_host:
        parts += [section(log_grid(one_host, "On one host, sizes left out")), ONE_HOST]
    if unstated:
        names = ", ".join(f"`{name}`" for name in unstated)
        parts.append(f"Ran with settings that they do not state, and are in no fit: {names}.\n")
    return "\n".join(parts)


def _above(rows: Sequence[CollectiveRow]) -> str:
    """The logs whose own median is above a target, as a paragraph."""
    sentences = []
    for size, (name, target) in TARGETS.items():
        figures = {log: one[size] for log, one in by_log(rows).items()}
        logs = [
            f"`{log}` ({percent(one.median)})" for log, one in figures.items() if one and one.median > target
        ]
        sentences.append(f"{', '.join(logs) or 'none'} in sizes {name} (target {100 * target:.0f} %)")
    return f"Logs whose own median is above its target: {'; '.join(sentences)}.\n"


def _cells(figures: Mapping[str, SizeErrors | None]) -> tuple[str, ...]:
    return tuple(cell for size in ("large", "small") for cell in _figures(figures[size]))


def _figures(one: SizeErrors | None) -> tuple[str, ...]:
    if one is None:
        return (NONE,) * 4
    return count(one.rows), percent(one.median), percent(one.p90), signed_percent(one.signed_median)
