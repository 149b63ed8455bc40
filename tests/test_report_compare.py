"""Comparing two steps: the parts add up to the difference of the whole."""

from __future__ import annotations

import io
from dataclasses import replace

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from results import fake_result
from rich.console import Console
from small_plans import DOCUMENT

from stepsim.sim.report.compare import REST, Difference, comparison
from stepsim.sim.report.compare_table import _price_of, comparison_document, print_comparison
from stepsim.sim.result.result import Result
from stepsim.sim.result.step import PathSegment
from stepsim.sim.scenario.load import load_scenario
from stepsim.sim.simulate import simulate

names = st.sampled_from(["GEMM", "attention", "tp", "dp", "bubble", "host"])
paths = st.lists(st.builds(PathSegment, name=names, seconds=st.floats(0, 0.1)), max_size=8)


@given(paths, paths, st.floats(0.5, 2.0), st.floats(0.5, 2.0))
def test_parts_add_up_to_the_difference(
    path_a: list[PathSegment], path_b: list[PathSegment], step_a: float, step_b: float
) -> None:
    """Whatever the paths name, and however much of the step they leave out."""
    base = fake_result(pp=2, microbatches=2)
    a = replace(base, critical_path=tuple(path_a), step_time_s=step_a)
    b = replace(base, critical_path=tuple(path_b), step_time_s=step_b)
    found = comparison(a, b)
    assert sum(change.difference for change in found.critical_path) == pytest.approx(
        step_b - step_a, abs=1e-8
    )
    assert sum(change.a for change in found.critical_path) == pytest.approx(step_a, rel=1e-8)
    assert len({change.name for change in found.critical_path}) == len(found.critical_path)


def test_interleaving_halves_the_bubble_and_nothing_else() -> None:
    a = fake_result(pp=4, vpp=1, name="plain")
    b = fake_result(pp=4, vpp=2, name="interleaved", forward_s=0.005, backward_s=0.010)
    found = comparison(a, b)
    assert [(f.path, f.a, f.b) for f in found.fields] == [("parallelism.vpp", 1, 2)]
    changed = {c.name: c.difference for c in found.critical_path if abs(c.difference) > 1e-9}
    assert changed == {"bubble": pytest.approx(-0.045)}
    assert found.step_time_s.difference == pytest.approx(-0.045)
    assert REST not in {change.name for change in found.critical_path}


def test_memory_is_compared_where_each_is_fullest() -> None:
    found = comparison(fake_result(pp=4), fake_result(pp=8, microbatches=8))
    assert {c.name: c.difference for c in found.memory if c.difference} == {"activations": 8e9}
    assert sum(c.difference for c in found.memory) == found.peak_memory_bytes.difference


def test_a_step_against_itself_differs_in_nothing() -> None:
    result = fake_result()
    found = comparison(result, result)
    assert found.fields == ()
    assert not any(
        c.difference for c in (*found.critical_path, *found.exposed, *found.memory, *found.headline)
    )


def test_names_and_lists_of_fields() -> None:
    """Titles are no difference; a field of one side alone is."""
    a, b = fake_result(name="a"), fake_result(name="b")
    assert b.scenario is not None
    document = {**b.scenario.to_document(), "schedule": "x", "title": "B"}
    changed = replace(b, scenario=type(b.scenario)(**{**vars(b.scenario), "to_document": lambda: document}))
    assert [(f.path, f.a, f.b) for f in comparison(a, changed).fields] == [("schedule", None, "x")]


def test_a_preset_beside_a_stack_of_ones_own_is_compared_field_by_field() -> None:
    """Else every field of the stack would be a difference, also those that are equal."""

    def result(software: object) -> Result:
        return simulate(load_scenario({**DOCUMENT, "software": software}))

    found = comparison(result("megatron-core-2025"), result({"kernels": {"attention": "fa2"}}))
    fields = {field.path: (field.a, field.b) for field in found.fields}
    assert fields["software.name"] == ("megatron-core-2025", "custom")
    assert fields["software.read"] == (True, False)
    assert all(a != b for a, b in fields.values())
    assert len(fields) < 30


def test_large_numbers_are_written_with_a_power_of_ten() -> None:
    base = load_scenario("llama3-8b-h100")
    a, b = (simulate(base.with_({"training.tokens": tokens})) for tokens in (1e12, 2e12))
    console = Console(file=io.StringIO(), width=80, highlight=False)
    print_comparison(comparison(a, b), console)
    (line,) = (one for one in console.file.getvalue().splitlines() if "training.tokens" in one)  # type: ignore[attr-defined]
    assert line.split() == ["training.tokens", "1e+12", "2e+12"]


def test_prices_of_both_sides_are_compared() -> None:
    """Half the step on twice the price costs the same; without a price on either side nothing is said."""
    base = load_scenario("llama3-8b-h100")
    plain = simulate(base)
    cheap, dear = (simulate(base.with_({"cluster.price_per_gpu_hour": price})) for price in (2, 4))
    assert comparison_document(comparison(plain, dear))["cost"] is None
    found = comparison(cheap, dear)
    costs = comparison_document(found)["cost"]
    assert costs["currency"] == "USD"
    assert costs["per_step"]["a"] == pytest.approx(8 * plain.step_time_s / 3600 * 2)
    assert costs["per_trillion_tokens"]["b"] == pytest.approx(2 * costs["per_trillion_tokens"]["a"])
    console = Console(file=io.StringIO(), width=80, highlight=False)
    print_comparison(found, console)
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    (line,) = (one for one in text.splitlines() if "cost of a step, USD" in one)
    assert line.split()[-2:] == ["+100.0", "%"]


@pytest.mark.parametrize(
    ("both", "written"),
    [
        ((0.00612, 0.00634), ("0.006120", "0.006340")),
        ((7.5, 7.91), ("7.50", "7.91")),
        ((0.5, 12.0), ("0.5000", "12.0000")),
    ],
)
def test_prices_below_one_have_four_digits(both: tuple[float, float], written: tuple[str, str]) -> None:
    price = _price_of(Difference(name="cost", a=both[0], b=both[1]))
    assert (price(both[0]), price(both[1])) == written


def test_document_and_table_say_the_same() -> None:
    found = comparison(fake_result(pp=4, name="left"), fake_result(pp=8, microbatches=8, name="right"))
    document = comparison_document(found)
    assert orjson.loads(orjson.dumps(document)) == document
    step = document["step_time_s"]
    assert step["difference"] == pytest.approx(step["b"] - step["a"])
    console = Console(file=io.StringIO(), width=80, highlight=False)
    print_comparison(found, console)
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    assert max(map(len, text.splitlines())) <= 80
    for part in (
        "left",
        "right",
        "parallelism.pp",
        "360.0 ms",
        "480.0 ms",
        "+120.0 ms",
        "+33.3 %",
        "+8.0 GB",
    ):
        assert part in text
