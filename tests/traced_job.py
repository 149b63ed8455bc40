"""A small training job on two processes with gloo, traced by torch's profiler, for ``test_explain_torch.py``.

    python traced_job.py RANK FOLDER

Three steps are traced behind one that warms up; rank 1 sleeps in each of them before its forward pass.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

HIDDEN, LAYERS, TOKENS = 256, 3, 512
WORLD, STEPS, LATE_S = 2, 3, 0.5


def main(rank: int, folder: Path) -> None:
    """Train and write ``rank-N.json``."""
    import torch
    from torch import distributed
    from torch.profiler import ProfilerActivity, profile, schedule

    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    torch.manual_seed(0)
    store = f"file://{folder}.store"  # where they meet: a port might be taken meanwhile
    distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=WORLD)
    layers = [torch.nn.Sequential(torch.nn.Linear(HIDDEN, HIDDEN), torch.nn.GELU()) for _ in range(LAYERS)]
    model = torch.nn.Sequential(*layers)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    inputs = torch.randn(TOKENS, HIDDEN)

    def step() -> None:
        if rank == 1:
            time.sleep(LATE_S)
        loss = model(inputs).square().mean()
        loss.backward()
        for parameter in model.parameters():
            distributed.all_reduce(parameter.grad)
        optimizer.step()
        optimizer.zero_grad()

    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=0, warmup=1, active=STEPS),
        record_shapes=True,
        on_trace_ready=lambda found: found.export_chrome_trace(str(folder / f"rank-{rank}.json")),
    ) as profiler:
        for _ in range(1 + STEPS):
            distributed.barrier()
            step()
            profiler.step()
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]).resolve())
