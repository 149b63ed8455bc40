"""Laws of every field that users write: a number is finite, in its range and no bool, and units are there.

The walk finds all models that scenarios, campaigns and profiles are made of, so a new field is under these
laws by existing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pytest
from pydantic import BaseModel, ValidationError

from stepsim.hardware.calibrated.models import ProfileFile
from stepsim.hardware.fields import FROM_DOCUMENT, OneOf
from stepsim.sim.scenario.faults.bare import Bare
from stepsim.sim.scenario.models import Scenario

UNBOUNDED = {
    ("GradientSoftware", "bucket_elements"),
    ("ShardingSoftware", "max_live_elements"),
    ("ShardingSoftware", "combine_gather_bytes"),
    ("ShardingSoftware", "combine_scatter_bytes"),
    ("ShardingSoftware", "combine_reduce_bytes"),
}
"""Where ``.inf`` has a meaning of its own: one bucket for all, no limit, all of a layer in one."""

ANY_CONSTANT = "intervals"
"""Of a profile: of whichever constant of the block, so without a range or a unit of its own."""

SIGNED = {("OwnStepBlock", "pull")}
"""Logarithms of ratios: what is faster than predicted is below zero."""

NO_NUMBERS = (math.nan, -math.inf, True, False, "many", "nan")
ABSURD = (1e300, -1e300, -1, 10**40)


def bare_type(annotation: Any) -> Any:
    """The type without what stands beside it."""
    return bare_type(get_args(annotation)[0]) if get_origin(annotation) is Annotated else annotation


def branches(annotation: Any) -> Iterator[Any]:
    """The types of a union, without None; the type itself where it is none."""
    annotation = bare_type(annotation)
    if get_origin(annotation) in (Union, UnionType):
        for one in get_args(annotation):
            yield from branches(one)
    elif annotation is not NoneType:
        yield annotation


def models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    for one in branches(annotation):
        if isinstance(one, type) and issubclass(one, BaseModel):
            yield one
        elif get_origin(one) in (tuple, dict):
            for inner in get_args(one):
                yield from models_in(inner)


def models_below(*roots: type[BaseModel]) -> dict[str, type[BaseModel]]:
    found: dict[str, type[BaseModel]] = {}
    waiting = list(roots)
    while waiting:
        model = waiting.pop()
        if found.setdefault(f"{model.__module__}.{model.__name__}", model) is model:
            for info in model.model_fields.values():
                waiting += [m for m in models_in(info.annotation) if m not in found.values()]
    return found


SCENARIO = models_below(Scenario, Bare)
ALL = {**SCENARIO, **models_below(ProfileFile)}


def places(annotation: Any, kinds: tuple[type, ...]) -> Iterator[Any]:
    """For each place of a field where a value of ``kinds`` may stand: what puts a probe there."""
    for one in branches(annotation):
        if one in kinds:
            yield lambda probe: probe
        elif get_origin(one) is tuple:
            parts = [part for part in get_args(one) if part is not Ellipsis]
            for part in parts:
                for inner in places(part, kinds):
                    yield lambda probe, inner=inner, parts=parts: [inner(probe) for _ in parts]
        elif get_origin(one) is dict:
            key, value = get_args(one)
            sample = {int: 64}.get(bare_type(key), "x")
            for inner in places(value, kinds):
                yield lambda probe, inner=inner, sample=sample: {sample: inner(probe)}
            if bare_type(key) in kinds:
                yield lambda probe: {probe: 1}


def fields_of(*kinds: type) -> list[Any]:
    return [
        pytest.param(model, name, put, id=f"{model.__name__}.{name}-{number}")
        for model in ALL.values()
        for name, info in model.model_fields.items()
        for number, put in enumerate(places(info.annotation, kinds))
    ]


def refuses(model: type[BaseModel], name: str, value: Any, context: Any = None) -> bool:
    """Whether the field itself is among what is wrong; the others are missing, which does not matter."""
    try:
        model.model_validate({name: value}, context=context)
    except ValidationError as failure:
        return any(error["loc"][:1] == (name,) for error in failure.errors(include_url=False))
    return False


NUMBERS = fields_of(int, float)


def test_the_walk_finds_the_fields() -> None:
    seen = {(param.values[0].__name__, param.values[1]) for param in NUMBERS}
    assert {
        ("HostSoftware", "step_fixed_s"),
        ("Init", "curve"),
        ("StorageTier", "load"),
        ("PlacementSpec", "gpus"),
        ("Moe", "layer_freq"),
        ("AttentionBlock", "forward"),
        ("Run", "replications"),
    } <= seen
    assert len(NUMBERS) > 200


@pytest.mark.parametrize(("model", "name", "put"), NUMBERS)
def test_a_number_is_a_finite_number_in_its_range(model: type[BaseModel], name: str, put: Any) -> None:
    for probe in NO_NUMBERS:
        assert refuses(model, name, put(probe)), f"takes {probe!r}"
        assert refuses(model, name, put(probe), FROM_DOCUMENT), f"takes {probe!r} in a document"
    if (model.__name__, name) in UNBOUNDED:
        return
    assert refuses(model, name, put(math.inf))
    if name != ANY_CONSTANT:
        for probe in ABSURD:
            if probe == -1 and (model.__name__, name) in SIGNED:
                continue
            assert refuses(model, name, put(probe)), f"takes {probe!r}"


@pytest.mark.parametrize(("model", "name", "put"), fields_of(float))
def test_a_quantity_has_its_unit_in_a_document(model: type[BaseModel], name: str, put: Any) -> None:
    texts = ("30 s", "30 us", "30 MB/s", "30 MB")
    if name != ANY_CONSTANT and any(not refuses(model, name, put(text), FROM_DOCUMENT) for text in texts):
        assert refuses(model, name, put(30), FROM_DOCUMENT)
        assert refuses(model, name, put("30"), FROM_DOCUMENT)


def test_some_fields_are_quantities() -> None:
    """Guards the test before: where no text is taken, it says nothing."""
    taken = {
        (param.values[0].__name__, param.values[1])
        for param in fields_of(float)
        if not refuses(param.values[0], param.values[1], param.values[2]("30 s"), FROM_DOCUMENT)
    }
    assert {("StorageTier", "load"), ("Watchdog", "timeout"), ("Lasting", "constant")} <= taken


@pytest.mark.parametrize(("model", "name", "put"), fields_of(bool))
def test_a_flag_is_true_or_false(model: type[BaseModel], name: str, put: Any) -> None:
    assert not refuses(model, name, put(True))
    for probe in (0, 1, 1.0, "yes", "true"):
        assert refuses(model, name, put(probe)), f"takes {probe!r}"


@pytest.mark.parametrize("model", ALL.values(), ids=ALL)
def test_a_choice_takes_no_bool(model: type[BaseModel]) -> None:
    for name, info in model.model_fields.items():
        named = any(isinstance(one, OneOf) for one in info.metadata)
        if named or get_origin(bare_type(info.annotation)) is Literal:
            for probe in (True, False, 2.5):
                assert refuses(model, name, probe), f"{name} takes {probe!r}"


@pytest.mark.parametrize("model", ALL.values(), ids=ALL)
def test_a_block_takes_no_unknown_key_and_cannot_change(model: type[BaseModel]) -> None:
    assert model.model_config["extra"] == "forbid"
    assert model.model_config["frozen"] is True


@pytest.mark.parametrize("model", SCENARIO.values(), ids=SCENARIO)
def test_what_was_checked_stays_as_it_was(model: type[BaseModel]) -> None:
    """A scenario is known to be checked by its very parts: nothing in them may be mutable."""
    assert model.model_config["revalidate_instances"] == "always"
    for name, info in model.model_fields.items():
        kinds = {get_origin(one) or one for one in branches(info.annotation)}
        assert not kinds & {list, dict, set}, name
