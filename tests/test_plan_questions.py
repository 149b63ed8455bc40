"""Questions of many predictions: what is found is the extreme value, sweeps predict what run does."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_plans import DOCUMENT, FIX, small
from typer.testing import CliRunner

import stepsim
from stepsim.cli.main import app
from stepsim.hardware.gpus import get_gpu
from stepsim.sim.plan.axis_values import fixed, varied
from stepsim.sim.plan.questions.find import FoundValue, Tried, _fewest, _largest, _longest, _screened, find
from stepsim.sim.plan.search.findings import Findings
from stepsim.sim.plan.search.plan import Means, candidates_of, wishes_of

WISHES = wishes_of(top=1, objective="step-time", deadline_s=None, budget=None, fits=0.9, audit=0)
IN_TIME = wishes_of(top=1, objective="step-time", deadline_s=1e9, budget=None, fits=0.9, audit=0)
LARGE = {"training__seq_length": 65536, "training__global_batch": 8}


def found(what: str, **asked: object) -> FoundValue:
    vary = asked.pop("vary", {})
    return find(what, small(**{**LARGE, **asked}), FIX, vary, WISHES, means=Means(jobs=1))  # type: ignore[arg-type]


def fits(**changes: object) -> bool:
    among, _ = candidates_of(small(**changes), FIX, {}, lambda _: None)
    return bool((among.fit_probability >= 0.9).any())


def test_the_longest_sequence_fits_and_the_next_does_not() -> None:
    answer = found("seq_length")
    assert answer.value is not None
    eighth = (1 << (answer.value.bit_length() - 1)) // 8
    assert fits(**{**LARGE, "training__seq_length": answer.value})
    assert not fits(**{**LARGE, "training__seq_length": answer.value + eighth})


def test_the_largest_microbatch_is_that_of_all_divisors() -> None:
    answer = found("micro_batch", training__seq_length=16384)
    divisors = [size for size in range(1, 9) if 8 % size == 0]
    good = []
    for size in divisors:
        asked = small(**{**LARGE, "training__seq_length": 16384})
        among, _ = candidates_of(asked, FIX, {"training.micro_batch": [size]}, lambda _: None)
        good += [size] if (among.fit_probability >= 0.9).any() else []
    assert answer.value == max(good)


def test_the_fewest_gpus_fit_and_fewer_that_were_tried_do_not() -> None:
    answer = found("gpus", training__seq_length=32768)
    assert answer.value is not None
    assert all(one.good == (one.value >= answer.value) for one in answer.tried)
    assert any(not one.good for one in answer.tried)


@given(
    gpus=st.sampled_from([2, 4, 8, 16, 24, 32, 40, 48, 96, 1024]),
    per_node=st.sampled_from([4, 8]),
    least=st.integers(1, 600),
    none=st.sets(st.sampled_from([1, 2, 3, 4, 8, 12, 16, 24, 32, 64, 128, 256, 512])),
)
def test_sizes_that_no_layout_has_hide_no_smaller_one_that_will_do(
    gpus: int, per_node: int, least: int, none: set[int]
) -> None:
    """``least`` GPUs are enough, and no layout has the sizes in ``none``: the answer is no larger than the
    least power of two, of GPUs or of hosts, that will do. Only whole hosts, or parts of one, are tried."""
    asked = set[int]()
    legal = {size for size in range(1, 2049) if (size % per_node == 0 or size < per_node)} - {*none} | {gpus}

    def tried(value: int) -> Tried:
        asked.add(value)
        known = value in legal
        return Tried(
            value=value,
            good=known and value >= least,
            legal=int(known),
            fit=int(known and value >= least),
            settings={},
            peak_bytes=1.0,
            capacity_bytes=1.0,
        )

    answer = _fewest(tried, gpus, per_node)
    assert all(size % per_node == 0 or size < per_node for size in asked)
    powers = {1 << k for k in range(11)} | {per_node << k for k in range(8)}
    wanted = min(size for size in {*powers, gpus} if size in legal and size >= least)
    assert answer is not None
    assert tried(answer).good
    assert answer <= wanted


def test_the_values_to_try_may_be_given() -> None:
    answer = found("gpus", vary={"cluster.gpus": [1, 4, 8]}, training__seq_length=32768)
    assert {one.value for one in answer.tried} <= {1, 4, 8}


def test_a_deadline_takes_as_many_gpus_as_it_needs() -> None:
    base = small(training__tokens=1e9)
    days = stepsim.plan(base, fix=FIX, top=1, audit=0, jobs=1).choices[0].days
    assert days is not None
    late = wishes_of(
        top=1, objective="step-time", deadline_s=86400 * days * 1.01, budget=None, fits=0.9, audit=0
    )
    answer = find("gpus", base, FIX, {"cluster.gpus": [4, 8, 16]}, late, means=Means(jobs=1))
    assert answer.value == 8
    assert answer.best is not None
    assert answer.best.step_time_s is not None


def test_what_cannot_be_found_is_refused() -> None:
    with pytest.raises(ValueError, match="seq_length"):
        found("layers")


@pytest.mark.parametrize(("values", "words"), [([], "no value"), (8, "a list"), ("8,16", "a list")])
def test_what_is_varied_is_a_list_of_values(values: object, words: str) -> None:
    with pytest.raises(ValueError, match=rf"cluster.gpus: .*{words}"):
        stepsim.plan(DOCUMENT, vary={"cluster.gpus": values}, jobs=1)  # type: ignore[dict-item]


def test_lines_of_fields_and_values() -> None:
    base = small()
    assert fixed(["parallelism.tp", "training.recompute=full"], base) == {
        "parallelism.tp": 2,
        "training.recompute": "full",
    }
    block = fixed(["parallelism"], base)
    assert block["parallelism.pp"] == 2
    assert "training.micro_batch" not in block
    assert varied(["cluster.gpus=64,128,64"]) == {"cluster.gpus": [64, 128]}
    for lines in (["cluster.gpus"], ["=4"], ["cluster.gpus=8", "cluster.gpus=9"]):
        with pytest.raises(ValueError, match="--vary"):
            varied(lines)


@pytest.mark.parametrize(
    "command", [["plan", "--find", "gpus"], ["plan"], ["sweep", "--replan"], ["sensitivity"]]
)
def test_what_no_prediction_can_promise_is_refused_before_the_search(command: list[str]) -> None:
    done = CliRunner().invoke(app, [command[0], "llama3-8b-h100", *command[1:], "--fits", "1"])
    assert done.exit_code == 2
    assert "no prediction is certain" in done.output


def test_the_largest_size_is_found_whatever_sizes_are_legal() -> None:
    sizes = range(1, 6)
    for legal in itertools.product((False, True), repeat=5):
        for most in range(6):
            tried = {
                size: SimpleNamespace(legal=known, good=known and size <= most)
                for size, known in zip(sizes, legal, strict=True)
            }
            good = [size for size in sizes if tried[size].good]
            found = _largest(cast(Any, tried.__getitem__), sizes)
            assert found == max(good, default=None)


@given(tokens=st.sampled_from([1, 100, 512, 4096, 6000]), most=st.integers(0, 100_000))
def test_the_longest_length_is_found_to_an_eighth(tokens: int, most: int) -> None:
    """Of the lengths up to ``most``: the scenario's, doubled or halved, and then so many eighths of it."""
    answer = _longest(lambda length: length <= most, tokens)
    lengths = [tokens << k for k in range(1, 18)] + [tokens >> k for k in range(tokens.bit_length())]
    base = max((length for length in lengths if length <= most), default=None)
    if base is None:
        assert answer is None
        return
    eighth = base // 8
    assert answer == (base + min(7, (most - base) // eighth) * eighth if eighth else base)


def test_the_layout_that_fills_its_gpu_least_is_told() -> None:
    """The same bytes on GPUs of 40 GB and of 80: half as full on the larger."""
    vary = {"cluster.gpu": ["A100-SXM4-40GB", "A100-SXM4-80GB"]}
    told = _screened(2, small(), FIX, vary, WISHES)
    assert told.settings["cluster.gpu"] == "A100-SXM4-80GB"
    assert told.capacity_bytes == get_gpu("A100-SXM4-80GB").hbm_bytes


@pytest.mark.parametrize(
    "question",
    [
        lambda: stepsim.sensitivity(small(), means=Means(jobs=1)),
        lambda: stepsim.sweep(small(), {"training.micro_batch": [1, 2]}, replan=True, jobs=1),
        lambda: find(
            "gpus", small(training__tokens=1e9), FIX, {"cluster.gpus": [4, 8]}, IN_TIME, means=Means(jobs=1)
        ),
    ],
    ids=["sensitivity", "sweep", "find"],
)
def test_an_interrupt_ends_a_question_of_several_plans(
    question: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan by itself would show its best so far; here the next one would begin as if nothing had been."""
    searched, whole = [], Findings.run

    def stopped(self: Findings) -> None:
        whole(self)
        searched.append(self)
        self.certificate = replace(self.certificate, interrupted=True)

    monkeypatch.setattr(Findings, "run", stopped)
    with pytest.raises(KeyboardInterrupt):
        question()
    assert len(searched) == 1
