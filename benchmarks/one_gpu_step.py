"""A training step of a few Llama layers on one GPU, timed, to be held against what stepsim predicts of it.

    python benchmarks/one_gpu_step.py [eager|compiled] [FOLDER]

Needs torch and a GPU. Prints medians of steps, of forward and backward, of the update and of one layer, the
memory that torch reserved, clock and power; with a folder it writes a profiled step there, for
``stepsim explain``. docs/kernels.md tells what an H100 gave, and the scenario.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as functional
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from stepsim.calibration.measure.device import read_device

HIDDEN, HEADS, GROUPS, WIDE, VOCABULARY, TOKENS, LAYERS, HEAD = 4096, 32, 8, 14336, 32000, 8192, 4, 128


def linear(inputs: int, outputs: int) -> Any:
    return nn.Linear(inputs, outputs, bias=False)


class Layer(nn.Module):
    """A layer as torchtitan writes it: Q, K and V apart, complex rotary positions, a split gate."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = (
            linear(HIDDEN, HIDDEN),
            linear(HIDDEN, GROUPS * HEAD),
            linear(HIDDEN, GROUPS * HEAD),
        )
        self.proj = linear(HIDDEN, HIDDEN)
        self.gate, self.up, self.down = linear(HIDDEN, WIDE), linear(HIDDEN, WIDE), linear(WIDE, HIDDEN)
        self.first, self.second = nn.RMSNorm(HIDDEN), nn.RMSNorm(HIDDEN)

    def forward(self, x: Any, turns: Any) -> Any:
        normed = self.first(x)
        q, k, v = (one(normed).view(1, TOKENS, -1, HEAD) for one in (self.q, self.k, self.v))
        heads = [one.transpose(1, 2) for one in (turned(q, turns), turned(k, turns), v)]
        mixed = functional.scaled_dot_product_attention(*heads, is_causal=True, enable_gqa=True)
        x = x + self.proj(mixed.transpose(1, 2).reshape(1, TOKENS, HIDDEN))
        normed = self.second(x)
        return x + self.down(functional.silu(self.gate(normed)) * self.up(normed))


def turned(x: Any, turns: Any) -> Any:
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * turns).flatten(3).type_as(x)


class Model(nn.Module):
    """Embedding, layers, norm and head."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.layers = (
            nn.Embedding(VOCABULARY, HIDDEN),
            nn.ModuleList(Layer() for _ in range(LAYERS)),
        )
        self.norm, self.head = nn.RMSNorm(HIDDEN), linear(HIDDEN, VOCABULARY)

    def forward(self, tokens: Any, turns: Any) -> Any:
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x, turns)
        return self.head(self.norm(x))


@torch.compile
def loss(logits: Any, targets: Any) -> Any:
    return functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def timed(run: Callable[[], object], runs: int) -> dict[str, float | None]:
    """Milliseconds of ``runs`` runs between events, all issued before the first is awaited."""
    pairs = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(runs)]
    for start, end in pairs:
        start.record()
        run()
        end.record()
    reading = read_device("cuda")
    torch.cuda.synchronize()
    found = sorted(start.elapsed_time(end) for start, end in pairs)
    shown = {"sm_clock_hz": reading.sm_clock_hz, "power_w": reading.power_w}
    return {"ms": statistics.median(found), "least_ms": found[0], "most_ms": found[-1], **shown}


def training(model: Any, turns: Any) -> tuple[Callable[[], None], Callable[[], None]]:
    """Forward with backward, and the update: gradients in FP32 by a hook, clipped; AdamW on FP32 weights."""
    weights = list(model.parameters())
    masters = [one.detach().float() for one in weights]
    for weight, master in zip(weights, masters, strict=True):
        master.grad = torch.zeros_like(master)

        def add(one: Any, total: Any = master.grad) -> None:
            total.add_(one.grad)
            one.grad = None

        weight.register_post_accumulate_grad_hook(add)
    optimizer = torch.optim.AdamW(masters, lr=1e-5, fused=True)
    tokens, targets = torch.randint(0, VOCABULARY, (2, 1, TOKENS), device="cuda")

    def forward_backward() -> None:
        loss(model(tokens, turns), targets).backward()

    def update() -> None:
        with torch.no_grad():
            nn.utils.clip_grad_norm_(masters, 1.0, foreach=True)
            optimizer.step()
            torch._foreach_copy_(weights, masters)
            torch._foreach_zero_([one.grad for one in masters])

    return forward_backward, update


def measured(compiled: bool, folder: str | None) -> dict[str, Any]:
    with torch.device("cuda"):
        model = Model().bfloat16()
        by_place = torch.outer(torch.arange(TOKENS).float(), 5e5 ** (-torch.arange(0, HEAD, 2) / HEAD))
        turns = torch.polar(torch.ones_like(by_place), by_place)[:, None]
    forward_backward, update = training(model, turns)
    if compiled:
        for layer in model.layers:
            layer.compile(fullgraph=True)

    def step() -> None:
        forward_backward()
        update()

    for _ in range(3):
        step()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    start_s = time.perf_counter()
    step()
    found: dict[str, Any] = {"host_ms": (time.perf_counter() - start_s) * 1e3, "step": timed(step, 20)}
    found["reserved_bytes"] = torch.cuda.max_memory_reserved()
    found |= {"forward and backward": timed(forward_backward, 10), "update": timed(update, 10)}
    x = torch.randn(1, TOKENS, HIDDEN, device="cuda").bfloat16().requires_grad_()
    dy = torch.randn_like(x)
    found["one layer"] = timed(lambda: model.layers[0](x, turns).backward(dy), 30)
    if folder:
        with torch.profiler.profile(record_shapes=True) as profile:
            step()
            torch.cuda.synchronize()
        profile.export_chrome_trace(f"{folder}/{'compiled' if compiled else 'eager'}.json.gz")
    return found


if __name__ == "__main__":
    torch.manual_seed(0)
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        print(json.dumps(measured("compiled" in sys.argv[1:2], next(iter(sys.argv[2:]), None)), indent=1))
