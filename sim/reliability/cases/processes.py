"""Cases 6, 7, 12, 16, 17, 20 to 22: spares, sizes, slow hosts, guards, where expectations are exact."""

from __future__ import annotations

import math
from collections.abc import Iterator
from random import Random
from typing import Any

from ....hardware.quantities import DAY_S
from ..campaign.plan import Tier
from ..campaign.recovering_rules import survives
from ..planning.build_plan import p99_spares
from ..study.closed_forms import erlang_b, peer_survival, slow_episodes
from ..study.statistics import mean_of, ratio_of
from .case import CaseVerdict, deviations, job, run_case, verdict


def spares_document(spares: int, repair: dict[str, Any] | str, days: float) -> dict[str, Any]:
    """Hosts that fail while the job runs, and nothing else that costs time."""
    return {
        "name": "spares",
        "step_time": "1 s",
        "cluster": {"gpus": 16384, "gpus_per_node": 8},
        "faults": {"processes": [{"kind": "node_down", "scope": "node", "rate_per_unit_day": 3.79e-3}]},
        "detection": "0 s",
        "recovery": {
            "restart_cost": "0 s",
            "spares": {"warm": spares},
            "repair": {"reboot": "0 s", "p_reboot_fixes": 0.0, "replace": repair},
            "crash_loop": {"max_no_progress": 10000},
        },
        "checkpoint": {"storage": {"every": "1 step", "mode": "blocking", "stall": "0 s", "load": "0 s"}},
        "run": {"horizon": f"{days} d"},
    }


def spares(days: float = 500.0, runs: int = 8) -> Iterator[CaseVerdict]:
    """Case 6: Erlang's loss formula, whatever the law of repairs."""
    for count, mean in ((4, 1.0), (8, 1.0), (12, 1.0), (16, 2.0)):
        want = erlang_b(count + 1, 2048 * 3.79e-3 * mean)
        for law, repair in (
            ("exponential", {"exponential": {"mean": f"{mean} d"}}),
            ("constant", f"{mean} d"),
        ):
            found = run_case(spares_document(count, repair, days * (4 if want < 0.1 else 1)), runs)
            got = ratio_of(found.category("idle"), found.walls, 0.95)
            off = deviations(got, want)
            yield CaseVerdict(
                number="6",
                title=f"{count} spares, {law} repair of {mean:g} d: share of time waiting",
                expected=f"{want:.4f}",
                found=f"{got.mean:.4f} ({off:+.1f} SE)",
                tolerance="3 SE, 3 % where that is finer",
                verdict=verdict(
                    abs(off) <= 3.2 and (abs(got.mean / want - 1) < 0.03 or got.half_width > 0.03 * want)
                ),
                source="Erlang B (docs/faults.md)",
            )


def sizes(runs: int = 40) -> Iterator[CaseVerdict]:
    """Cases 7 and 7b: mean time between failures by size of the job."""
    for gpus, said, hours in (
        (16384, "1.803 h (paper 1.8)", 1.803),
        (131072, "0.225 h (paper 0.23)", 0.2254),
        (100000, "17.7 min (FT-HSDP: 18 min)", 17.7 / 60),
    ):
        got = _mtbf_h(gpus, horizon_h=hours * 400, runs=runs)
        yield CaseVerdict(
            number="7",
            title=f"RSC-1's rate on {gpus:,} GPUs: mean time between failures",
            expected=said,
            found=f"{got:.4g} h",
            tolerance="2 %",
            verdict=verdict(abs(got / hours - 1) <= 0.02),
            source="arXiv:2410.21680, arXiv:2602.00277",
        )
    got = _mtbf_h(1024, horizon_h=200, runs=runs)
    yield CaseVerdict(
        number="7b",
        title="the same on 1,024 GPUs: must not match",
        expected="7.9 h measured",
        found=f"{got:.3g} h",
        tolerance="-",
        verdict="explained" if got > 20 else "missed",
        source="arXiv:2410.21680",
        note="per-host hardware rates give 28.8 h; what interrupts small jobs is software and a few "
        "bad hosts, which belong in a process of scope job and in heterogeneity.node_frailty",
    )


def _mtbf_h(gpus: int, *, horizon_h: float, runs: int) -> float:
    """Mean hours between failures of a job of ``gpus``, whose hosts fail at RSC-1's rate."""
    document = {
        "name": "size",
        "step_time": "10 s",
        "cluster": {"gpus": gpus, "gpus_per_node": 8},
        "faults": {"presets": ["rsc-1"]},
        "detection": "0 s",
        "recovery": {"restart_cost": "0 s"},
        "checkpoint": {"storage": {"every": "1 step", "stall": "0 s", "load": "0 s"}},
        "run": {"horizon": f"{horizon_h} h"},
    }
    return run_case(document, runs).mtbf_s / 3600


def standbys() -> Iterator[CaseVerdict]:
    """Case 12: ByteRobust's standby hosts."""
    sizes_ = (128, 256, 512, 1024)
    got = [p99_spares(nodes, 1.2e-3) for nodes in sizes_]
    yield CaseVerdict(
        number="12",
        title="standbys for 128/256/512/1,024 hosts at 1.2e-3 a day",
        expected="2/2/3/4",
        found="/".join(map(str, got)),
        tolerance="exact",
        verdict=verdict(got == [2, 2, 3, 4]),
        source="arXiv:2509.16293",
    )


def slow_document(gpus: int, process: dict[str, Any]) -> dict[str, Any]:
    """Hosts that are slow, and nothing else."""
    return {
        "name": "slow",
        "step_time": "10 s",
        "cluster": {"gpus": gpus, "gpus_per_node": 8},
        "faults": {"clock": "wall", "processes": [{"kind": "gpu_throttle", "scope": "node", **process}]},
        "run": {"work": "30 d"},
    }


def slow_hosts(runs: int = 2000) -> Iterator[CaseVerdict]:
    """Case 16: one slow host is enough."""
    for nodes in (16, 128, 512):
        want = 1 + 0.1 * (1 - 0.995**nodes)
        found = run_case(slow_document(nodes * 8, {"prevalence": 0.005, "slow_factor": 1.1}), runs)
        got = mean_of([wall / (30 * DAY_S) for wall in found.walls], 0.95)
        off = deviations(got, want)
        yield CaseVerdict(
            number="16",
            title=f"0.5 % of hosts 10 % slow, {nodes} hosts: mean step over the healthy one",
            expected=f"{want:.5f}",
            found=f"{got.mean:.5f} ({off:+.1f} SE)",
            tolerance="3 SE",
            verdict=verdict(abs(off) <= 3),
            source="arXiv:2402.15627; derived",
        )


def episodes(runs: int = 40) -> Iterator[CaseVerdict]:
    """Case 17: slow episodes that come and go."""
    want = slow_episodes(2048 * 0.002 * 3 / 24, 1.34)
    for law, duration in (("constant", "3 h"), ("exponential", {"exponential": {"mean": "3 h"}})):
        process = {"rate_per_unit_day": 0.002, "slow_factor": 1.34, "duration": duration}
        got = run_case(slow_document(16384, process), runs).ettr
        off = deviations(got, want)
        yield CaseVerdict(
            number="17",
            title=f"slow episodes of 3 h ({law}), 0.002 per host and day, factor 1.34: throughput",
            expected=f"{want:.4f}",
            found=f"{got.mean:.4f} ({off:+.1f} SE)",
            tolerance="3 SE, and the edge of 30 d",
            verdict=verdict(abs(off) <= 3.3),
            source="M/G/inf (docs/faults.md)",
        )


def guards(runs: int = 4) -> Iterator[CaseVerdict]:
    """Case 20: restarts that never end are seen and stopped."""
    from .case import renewal

    document = renewal(m=5.0, c=1.0, d=0.0, r=60.0, tau=10.0, exposed=True, segments=100)
    document["recovery"] = {"restart_cost": "60 min"}
    found = run_case(document, runs)
    yield CaseVerdict(
        number="20",
        title="a failure every 5 min, restarts of 60 min: nothing gets done",
        expected="stops with no progress",
        found=", ".join(f"{name} {n}" for name, n in found.ended.items()),
        tolerance="guard",
        verdict=verdict(found.ended == {"no_progress": runs}),
        source="arXiv:2603.00357",
        note="after 100 restarts without a new checkpoint (recovery.crash_loop.max_no_progress)",
    )


def identity(runs: int = 10) -> Iterator[CaseVerdict]:
    """Case 21: without checkpoint costs and lost work, wall time is work and recoveries, exactly."""
    found = run_case(job("identity"), runs)
    worst = 0.0
    for one in found.outcomes:
        lost = one.seconds["recompute"]
        gap = one.wall_s - (30 * DAY_S + one.interruptions * 1200.0 + lost)
        worst = max(worst, abs(gap) / one.wall_s)
    yield CaseVerdict(
        number="21",
        title="wall = work + failures x recovery (steps of 1 ms, saved each)",
        expected="0",
        found=f"{worst:.1e} of the wall clock",
        tolerance="1e-9",
        verdict=verdict(worst < 1e-9),
        source="AIReSim, arXiv:2603.07041",
        note="less than a millisecond of work a failure, the step in flight, is booked as lost",
    )


def peer_groups(draws: int = 100_000) -> Iterator[CaseVerdict]:
    """Case 22: copies in peers' memory after several hosts are lost at once."""
    chance = Random(7)
    tier = Tier(name="peer_memory", every=1, stall_s=0.0, lag_s=0.0, load_s=0.0, save_s=0.0, group=2)
    for lost in (2, 3):
        want = peer_survival(16, 2, lost)
        good = sum(survives(tier, set(chance.sample(range(16), lost)), 16) for _ in range(draws)) / draws
        error = math.sqrt(want * (1 - want) / draws)
        yield CaseVerdict(
            number="22",
            title=f"16 hosts, groups of 2, {lost} lost at once: the copy survives",
            expected=f"{want:.3f}",
            found=f"{good:.4f} ({(good - want) / error:+.1f} SE)",
            tolerance="3 SE",
            verdict=verdict(abs(good - want) <= 3 * error),
            source="GEMINI (SOSP'23), figure unverified; derived",
        )
