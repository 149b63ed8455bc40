"""Hand-made Results for the tests of the views: a pipeline step built from a few times.

``fake_result`` replays 1F1B or interleaved 1F1B with one forward and one backward time, so every
figure in a view can be worked out by hand. Knows no kernels and no network.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

from stepsim.sim.result.result import Result
from stepsim.sim.result.step import ActionSpan, Assumption, PathSegment, RankClass, Span, StageMemory

Step = tuple[str, int, int]  # kind, virtual stage, microbatch


def fake_scenario(
    *, pp: int, vpp: int, dp: int, microbatches: int, name: str, **changes: Any
) -> SimpleNamespace:
    """A stand-in with the attributes of a Scenario that the views read."""
    gpus = changes.get("gpus", 8 * pp * dp)
    document = {
        "name": name,
        "model": "llama3.1-405b",
        "cluster": {"gpu": "H100-SXM5-80GB", "gpus": gpus},
        "parallelism": {"tp": 8, "pp": pp, "vpp": vpp, "dp": dp},
        "training": {"global_batch": dp * microbatches, "micro_batch": 1, "seq_length": 8192},
    }
    return SimpleNamespace(
        name=name,
        title=changes.get("title", ""),
        published=changes.get("published"),
        model=SimpleNamespace(name="llama3.1-405b"),
        cluster=SimpleNamespace(
            gpu="H100-SXM5-80GB",
            gpu_name="H100-SXM5-80GB",
            node=None,
            gpus=gpus,
            price_per_gpu_hour=changes.get("price_per_gpu_hour"),
            currency="USD",
            price_list=None,
        ),
        parallelism=SimpleNamespace(
            sequence_parallel=True, tp=8, pp=pp, vpp=vpp, cp=1, ep=1, dp=dp, zero=1, fsdp_shard_size=None
        ),
        training=SimpleNamespace(
            global_batch=dp * microbatches,
            micro_batch=1,
            seq_length=8192,
            attended_length=8192,
            precision="bf16",
            recompute=changes.get("recompute", "none"),
            tokens=changes.get("tokens"),
        ),
        schedule="1f1b" if vpp == 1 else "interleaved",
        num_microbatches=microbatches,
        world_size=gpus,
        to_document=lambda: document,
    )


def published(step_time_s: float | None, mfu: float | None = None) -> SimpleNamespace:
    return SimpleNamespace(step_time_s=step_time_s, mfu=mfu, source="a paper, table 1", note="")


def order(rank: int, pp: int, vpp: int, microbatches: int) -> list[Step]:
    """1F1B or interleaved order of one rank (microbatches a multiple of pp when interleaved)."""
    total = microbatches * vpp
    warmup = pp - rank - 1 if vpp == 1 else (pp - rank - 1) * 2 + (vpp - 1) * pp
    warmup = min(warmup, total)

    def forward(k: int) -> Step:
        group, inner = divmod(k, pp * vpp)
        chunk = inner // pp
        return "F", chunk * pp + rank, group * pp + inner % pp

    def backward(k: int) -> Step:
        group, inner = divmod(k, pp * vpp)
        chunk = vpp - 1 - inner // pp
        return "B", chunk * pp + rank, group * pp + inner % pp

    if vpp == 1:
        forwards: list[Step] = [("F", rank, k) for k in range(total)]
        backwards: list[Step] = [("B", rank, k) for k in range(total)]
    else:
        forwards, backwards = [forward(k) for k in range(total)], [backward(k) for k in range(total)]
    steps = forwards[:warmup]
    for k in range(total - warmup):
        steps += [forwards[warmup + k], backwards[k]]
    return steps + backwards[total - warmup :]


def replay(pp: int, vpp: int, microbatches: int, forward_s: float, backward_s: float) -> list[ActionSpan]:
    """Earliest start of every action, transfers taking no time."""
    last = pp * vpp - 1
    done: dict[Step, float] = {}
    spans: list[ActionSpan] = []
    queues = [order(rank, pp, vpp, microbatches) for rank in range(pp)]
    at, clock = [0] * pp, [0.0] * pp
    while any(at[rank] < len(queues[rank]) for rank in range(pp)):
        for rank in range(pp):
            while at[rank] < len(queues[rank]):
                step = kind, stage, microbatch = queues[rank][at[rank]]
                before: Step | None = (
                    ("F", stage - 1, microbatch) if kind == "F" else ("B", stage + 1, microbatch)
                )
                if kind == "F" and stage == 0:
                    before = None
                elif kind == "B" and stage == last:
                    before = ("F", stage, microbatch)
                if before is not None and before not in done:
                    break
                start = max(clock[rank], done[before] if before else 0.0)
                clock[rank] = done[step] = start + (forward_s if kind == "F" else backward_s)
                spans.append(ActionSpan(rank, kind, stage, microbatch, start, clock[rank]))
                at[rank] += 1
    return spans


def spans_of(actions: list[ActionSpan], pp: int, step_time_s: float, tail_s: float) -> Iterator[Span]:
    """In every action 80 % compute, then 20 % of an exposed TP collective; DP and Adam at the end."""
    for action in actions:
        label = f"{action.stage}{action.kind}{action.microbatch}"
        knee = action.start_s + 0.8 * (action.end_s - action.start_s)
        yield Span(action.rank, "compute", "GEMM", "compute", label, action.start_s, knee, 1e9, 1e12)
        yield Span(action.rank, "tp", "all_reduce activations", "tp", label, knee, action.end_s, 1e8, 0.0)
    end = step_time_s - tail_s
    for rank in range(pp):
        # half of the reduction hides under the last backward
        yield Span(
            rank, "dp", "reduce_scatter gradients", "dp", "", end - tail_s / 2, end + tail_s / 2, 2e9, 0.0
        )
        yield Span(rank, "compute", "Adam", "optimizer", "", end + tail_s / 2, step_time_s, 3e9, 0.0)


def stage_memory(pp: int, rank: int, step_time_s: float, capacity_bytes: float) -> StageMemory:
    terms = {
        "weights": 6e9,
        "gradients": 12e9,
        "optimizer": 4e9,
        "activations": 2e9 * (pp - rank),
        "logits": 1e9,
    }
    peak = sum(terms.values())
    timeline = ((0.0, 0.0), (step_time_s / 3, terms["activations"]), (step_time_s, 0.0))
    return StageMemory(
        pp=rank,
        terms=terms,
        peak_bytes=peak,
        peak_s=step_time_s / 3,
        peak_action=f"{rank}F{pp - rank - 1}",
        static_bytes=22e9,
        capacity_bytes=capacity_bytes,
        timeline=timeline,
    )


def fake_result(
    *,
    pp: int = 4,
    vpp: int = 1,
    microbatches: int = 8,
    dp: int = 2,
    forward_s: float = 0.010,
    backward_s: float = 0.020,
    tail_s: float = 0.030,
    capacity_bytes: float = 80e9,
    name: str = "small",
    **changes: Any,
) -> Result:
    actions = replay(pp, vpp, microbatches, forward_s, backward_s)
    step_time_s = max(action.end_s for action in actions) + tail_s
    busy_s = microbatches * vpp * (forward_s + backward_s)
    bubble_s = step_time_s - tail_s - busy_s
    ranks_per_stage = 8 * dp
    scenario = fake_scenario(pp=pp, vpp=vpp, dp=dp, microbatches=microbatches, name=name, **changes)
    tokens = dp * microbatches * 8192.0
    model_flops = 0.42 * step_time_s * scenario.cluster.gpus * 989e12
    return Result(
        scenario=cast(Any, scenario),
        step_time_s=step_time_s,
        makespan_s=step_time_s,
        tokens_per_step=tokens,
        model_flops=model_flops,
        model_flops_causal=model_flops * 0.95,
        hardware_flops=model_flops * 1.1,
        peak_flops_per_gpu=989e12,
        ranks=tuple(
            RankClass(name=f"pp {r}", pp=r, count=ranks_per_stage, first_rank=r * ranks_per_stage)
            for r in range(pp)
        ),
        actions=tuple(actions),
        bubble_per_stage=(bubble_s / busy_s,) * pp,
        bubble_fraction=bubble_s / busy_s,
        exposed_communication_s={"tp": 0.2 * busy_s, "cp": 0.0, "ep": 0.0, "pp": 0.0, "dp": tail_s / 2},
        memory=tuple(stage_memory(pp, r, step_time_s, capacity_bytes) for r in range(pp)),
        critical_path=(
            PathSegment(name="GEMM", seconds=0.8 * busy_s),
            PathSegment(name="tp", seconds=0.2 * busy_s),
            PathSegment(name="bubble", seconds=bubble_s),
            PathSegment(name="dp", seconds=tail_s / 2),
            PathSegment(name="optimizer", seconds=tail_s / 2),
        ),
        assumptions=(
            Assumption(text="GEMM efficiency by shape", source="profile H100-SXM5", in_range=True),
            Assumption(text="all-reduce over 16 nodes", source="nccl-tests, table 3", in_range=False),
            Assumption(text="one optimizer barrier", source="Megatron-LM"),
        ),
        timing={"build_s": 0.01, "lower_s": 0.02, "fold_s": 0.0, "replay_s": 0.03, "total_s": 0.06},
        events=len(actions) * 2,
        spans_source=lambda: spans_of(actions, pp, step_time_s, tail_s),
    )
