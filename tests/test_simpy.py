"""The clock of the engine is SimPy's: the same programs take as long on plain SimPy, by its public names."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Generator
from typing import Any, cast

import pytest
import simpy
from checkout import modules
from small_scenarios import lowered, scenario

from stepsim.sim.engine import clock, signal
from stepsim.sim.engine import replay as replaying
from stepsim.sim.engine.clock import AFTER_ALL, Clock
from stepsim.sim.fold.partition import partition_of
from stepsim.sim.fold.programs import programs_of_classes
from stepsim.sim.fold.ranks import Degradation, ranks_of
from stepsim.sim.program.program import Programs


class Plain(simpy.Environment):
    """``Clock`` by public names of SimPy: an event for each call, run by ``Environment.run``."""

    def __init__(self) -> None:
        super().__init__()
        self.tick: Callable[[int], object] | None = None
        self._due: dict[simpy.Event, tuple[int, float]] = {}
        self.count = 0

    @property
    def time(self) -> float:
        return float(self.now)

    def schedule(self, event: simpy.Event, priority: Any = simpy.events.NORMAL, delay: float = 0) -> None:
        priority, delay = self._due.pop(event, (priority, delay))
        super().schedule(event, priority, delay)

    def step(self) -> None:
        super().step()
        self.count += 1

    def succeed(self, event: simpy.Event, delay_s: float, priority: int = simpy.events.NORMAL) -> None:
        self._due[event] = priority, delay_s
        event.succeed()

    def call(self, delay_s: float, function: clock.Call, value: Any = None) -> None:
        self.timeout(delay_s).callbacks.append(lambda _: cast(None, function(value)))

    def call_after_all(self, function: clock.Call, value: Any = None) -> None:
        event = self.event()
        event.callbacks.append(lambda _: cast(None, function(value)))
        self.succeed(event, 0.0, AFTER_ALL)

    def call_first(self, function: clock.Call, value: Any = None) -> None:
        event = self.event()
        event.callbacks.append(lambda _: cast(None, function(value)))
        self.succeed(event, 0.0, simpy.events.URGENT)

    def run_to_end(self) -> int:
        self.run()
        return self.count


def happen_soon(event: simpy.Event) -> None:
    """``happen_now`` by public names: those who wait go on before all else that is due."""
    cast(Any, event.env).succeed(event, 0.0, simpy.events.URGENT)


# Programs of the engine ------------------------------------------------------------------------------


def folded(degradation: Degradation, **fields: Any) -> Programs:
    step = lowered(scenario(**fields))
    ranks = ranks_of(step)
    return programs_of_classes(step.programs, ranks, partition_of(ranks, degradation).rank, degradation)


@pytest.mark.parametrize("host", [True, False])
@pytest.mark.parametrize(
    ("degradation", "fields"),
    [
        (Degradation(), {"tp": 2}),
        (Degradation(), {"pp": 2, "dp": 2, "zero": 1}),
        (Degradation(slow={1: 1.25}), {"tp": 2, "pp": 2}),
        (Degradation(link_share={(0, "nic.out"): 0.5}), {"pp": 2, "dp": 2, "gpus_per_node": 2}),
        (Degradation(later=((1e-3, Degradation(slow={0: 2.0})),)), {"tp": 2}),
        (Degradation(later=((1e-3, Degradation(slow={0: math.inf})),)), {"tp": 2, "pp": 2}),
    ],
)
def test_programs_take_as_long_on_plain_simpy(
    degradation: Degradation, fields: dict[str, Any], host: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = folded(degradation, **fields)
    ours = replaying.replay(programs, host=host)
    monkeypatch.setattr(replaying, "Clock", Plain)
    monkeypatch.setattr(signal, "happen_now", happen_soon)
    plain = replaying.replay(programs, host=host)
    assert plain.events >= ours.events > 0
    for times in ("start", "begin", "end", "source", "step_s", "makespan_s", "slowed"):
        assert getattr(plain, times) == getattr(ours, times), times


# What processes of SimPy may do ----------------------------------------------------------------------

Told = list[tuple[float, str]]


def processes(env: simpy.Environment, told: Told) -> None:
    """Timeouts that tie, an event for two, an interrupt, a failure that is caught, a process that returns."""
    shared = env.event()

    def waits(name: str) -> Generator[simpy.Event, Any, str]:
        value = yield shared
        told.append((env.now, f"{name} has {value}"))
        try:
            yield env.timeout(10)
        except simpy.Interrupt as why:
            told.append((env.now, f"{name} interrupted: {why.cause}"))
        return name

    def fails() -> Generator[simpy.Event, Any, None]:
        yield env.timeout(1)
        raise KeyError("caught")

    def leads() -> Generator[simpy.Event, Any, None]:
        first, second = env.process(waits("first")), env.process(waits("second"))
        yield env.timeout(1) | env.timeout(1)
        told.append((env.now, "a tie"))
        shared.succeed("a value")
        yield env.timeout(2)
        first.interrupt("enough")
        try:
            yield env.process(fails())
        except KeyError as error:
            told.append((env.now, f"failed: {error}"))
        found = yield second & first
        told.append((env.now, f"both: {list(found.values())}"))

    env.process(leads())


def test_processes_run_as_on_plain_simpy() -> None:
    there: Told = []
    here: Told = []
    plain, ours = simpy.Environment(), Clock()
    processes(plain, there)
    processes(ours, here)
    plain.run()
    ours.run_to_end()
    assert len(there) == 6
    assert here == there
    assert ours.now == ours.time == plain.now


@pytest.mark.parametrize("env", [simpy.Environment(), Clock()])
def test_what_nobody_catches_is_raised(env: simpy.Environment) -> None:
    def fails() -> Generator[simpy.Event, Any, None]:
        yield env.timeout(1)
        raise KeyError("uncaught")

    env.process(fails())
    with pytest.raises(KeyError, match="uncaught"):
        env.run_to_end() if isinstance(env, Clock) else env.run()


@pytest.mark.parametrize("env", [Plain(), Clock()])
def test_calls_and_events_take_turns_in_the_order_of_their_making(env: Any) -> None:
    told: list[str] = []
    env.call_after_all(told.append, "after all")
    env.timeout(0).callbacks.append(lambda _: told.append("timeout"))
    env.call(0.0, told.append, "call")
    env.call_first(told.append, "first")
    env.timeout(0).callbacks.append(lambda _: told.append("another"))
    env.call(1.0, told.append, "later")
    assert env.run_to_end() == 6
    assert told == ["first", "timeout", "call", "another", "after all", "later"]


# Where private names are read ------------------------------------------------------------------------


def private_names_of_simpy() -> set[str]:
    """Attributes of SimPy's own objects, and those that their code sets, which begin with an underscore."""
    env = simpy.Environment()

    def nothing() -> Generator[simpy.Event, Any, None]:
        yield env.timeout(0)

    things = (env, env.event(), env.timeout(0), env.process(nothing()))
    found = {name for thing in things for name in dir(thing)} | {"_ok", "_defused"}
    return {name for name in found if name.startswith("_") and not name.startswith("__")}


@pytest.mark.slow
def test_one_file_reads_private_names_of_simpy() -> None:
    private = private_names_of_simpy()
    assert {"_queue", "_eid", "_now", "_ok", "_value", "_defused"} <= private
    read = {
        name
        for name, path in modules().items()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr in private
    }
    assert read == {"stepsim.sim.engine.clock"}
