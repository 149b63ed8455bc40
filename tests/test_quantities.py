"""Units: exact values, round trips, and refusals that say what to write."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepsim.hardware.quantities import Dimension, format_quantity, parse_quantity

DIMENSIONS: tuple[Dimension, ...] = (
    "bytes", "bytes_per_s", "seconds", "flops", "flops_per_s", "hertz", "watts",
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "dimension", "si"),
    [
        ("400 Gb/s", "bytes_per_s", 50e9),
        ("400Gbps", "bytes_per_s", 50e9),
        ("400 Gbit/s", "bytes_per_s", 50e9),
        ("50 GB/s", "bytes_per_s", 50e9),
        ("3.35 TB/s", "bytes_per_s", 3.35e12),
        ("1 GiB/s", "bytes_per_s", 2**30),
        ("80 GB", "bytes", 80e9),
        ("80 GiB", "bytes", 80 * 2**30),
        ("8 Gib", "bytes", 2**30),
        ("1.5e3 kB", "bytes", 1.5e6),
        ("2 us", "seconds", 2e-6),
        ("2 \u00b5s", "seconds", 2e-6),
        ("2 \u03bcs", "seconds", 2e-6),
        ("  13.75   s ", "seconds", 13.75),
        ("30 min", "seconds", 1800),
        ("989 TFLOP/s", "flops_per_s", 989e12),
        ("312 TFLOP", "flops", 312e12),
        ("1.98 GHz", "hertz", 1.98e9),
        ("700 W", "watts", 700),
    ],
)
def test_known_units(text: str, dimension: Dimension, si: float) -> None:
    assert parse_quantity(text, dimension) == pytest.approx(si, rel=1e-15)


def test_plain_int_is_bytes_only_where_a_size_is_asked_for() -> None:
    assert parse_quantity(1024, "bytes") == 1024.0
    for dimension in DIMENSIONS:
        if dimension != "bytes":
            with pytest.raises(ValueError, match="no unit"):
                parse_quantity(1024, dimension)


@pytest.mark.parametrize(
    ("text", "dimension", "words"),
    [
        ("400", "bytes_per_s", ["400 has no unit", "400 Gb/s", "50 GB/s"]),
        ("400 Gb", "bytes_per_s", ["'400 Gb' is not a rate", "Gb measures a size"]),
        ("400 gb/s", "bytes_per_s", ["unknown", "did you mean"]),
        ("80 GB/s", "bytes", ["GB/s measures a rate", "80 GiB"]),
        ("2 parsec", "seconds", ["the unit 'parsec' is unknown", "2 us"]),
        ("fast", "bytes_per_s", ["'fast' is not a rate", "number and a unit"]),
        ("-1 s", "seconds", ["'-1 s' is out of range"]),
        ("1e999 s", "seconds", ["out of range"]),
    ],
)
def test_refusals_say_what_to_write(text: str, dimension: Dimension, words: list[str]) -> None:
    with pytest.raises(ValueError) as refusal:  # noqa: PT011 - the words are checked below
        parse_quantity(text, dimension)
    for word in words:
        assert word in str(refusal.value)


@given(
    value=st.floats(min_value=0, allow_nan=False, allow_infinity=False), dimension=st.sampled_from(DIMENSIONS)
)
def test_formatting_loses_nothing(value: float, dimension: Dimension) -> None:
    assert parse_quantity(format_quantity(value, dimension), dimension) == value


@given(value=st.floats(min_value=1e-3, max_value=1e6))
def test_eight_bits_are_a_byte(value: float) -> None:
    for prefix in ("", "k", "M", "G", "T", "Ki", "Mi", "Gi"):
        bits = parse_quantity(f"{value!r} {prefix}b/s", "bytes_per_s")
        size = parse_quantity(f"{value!r} {prefix}B/s", "bytes_per_s")
        assert math.isclose(8 * bits, size, rel_tol=1e-15)
