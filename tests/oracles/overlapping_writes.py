"""Checkpoints whose writes outlast the interval, from the definitions of docs/faults.md alone.

A job that crashes after exponential times, D until it is noticed, R to restore, and snapshots under ``skip``,
``block`` or ``queue``. Every life of the job begins alike (nothing is being written), so one life without an
end is laid out step by step, and random lives are looked up in it. Imports nothing of the simulator.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, kw_only=True)
class Overlapping:
    """Seconds; ``every`` counts steps. ``slow`` is how many times as long steps take beside a write."""

    policy: str
    m: float
    step: float
    every: int
    stall: float
    write: float
    down: float
    restore: float
    slow: float = 1.0


def durable_copies(job: Overlapping, until: float) -> tuple[np.ndarray, np.ndarray]:
    """When copies of one life become durable, and how many steps each holds."""
    now, steps = 0.0, 0
    ends: list[float] = []  # of writes, in order
    times, held = [], []
    while now < until:
        for _ in range(job.every):
            now = _one_step(job, now, ends[-1] if ends else 0.0)
        steps += job.every
        writing = [end for end in ends if end > now + 1e-6]
        if job.policy == "skip" and writing:
            continue
        room = 2 if job.policy == "queue" else 1
        if len(writing) >= room:  # memory is full: wait for the write under way, the first of them
            now = writing[len(writing) - room]
        now += job.stall
        ends.append(max([now, *ends[-1:]]) + job.write)
        times.append(ends[-1])
        held.append(steps)
    return np.array(times), np.array(held)


def _one_step(job: Overlapping, now: float, written: float) -> float:
    """When a step that begins now is done: slow until the last write has ended, then at full speed."""
    beside = max(0.0, written - now)
    if beside >= job.step * job.slow:
        return now + job.step * job.slow
    return now + beside + job.step - beside / job.slow


def kept_steps(job: Overlapping, lives: np.ndarray) -> np.ndarray:
    """Steps of each life that a restart finds on storage."""
    times, held = durable_copies(job, float(lives.max()) + job.write)
    number = np.searchsorted(times, lives, side="right")
    return np.where(number > 0, held[np.maximum(number - 1, 0)], 0)


def monte_carlo(job: Overlapping, lives: int, seed: int = 0) -> tuple[float, float]:
    """ETTR and its standard error, restores not exposed."""
    drawn = np.random.default_rng(seed).exponential(job.m, lives)
    kept = kept_steps(job, drawn) * job.step
    wall = drawn + job.down + job.restore
    ettr = kept.sum() / wall.sum()
    return float(ettr), float(np.sqrt(((kept - ettr * wall) ** 2).sum()) / wall.sum())
