"""Spans as files: every span, every field, in a set order."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pandas as pd
import pytest
from results import fake_result

from stepsim.sim.report.spans_file import write_spans


def test_csv_holds_every_span_in_order(tmp_path: Path) -> None:
    result = fake_result(pp=2)
    write_spans(result, tmp_path / "spans.csv")
    read = pd.read_csv(tmp_path / "spans.csv", keep_default_na=False)
    expected = result.spans.sort_values(["rank", "start_s", "end_s", "stream", "name"]).reset_index(drop=True)
    assert list(read.columns) == list(expected.columns)
    assert len(read) == len(expected) > 60
    for column in read.columns:
        assert list(read[column]) == list(expected[column])


def test_the_same_spans_in_another_order_are_the_same_file(tmp_path: Path) -> None:
    from dataclasses import replace

    result = fake_result(pp=2)
    turned = replace(result, spans_source=lambda: reversed(list(result.iter_spans())))
    write_spans(result, tmp_path / "a.csv")
    write_spans(turned, tmp_path / "b.csv")
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()


def test_unknown_suffixes_name_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"spans\.xlsx.*\.csv and \.parquet"):
        write_spans(fake_result(), tmp_path / "spans.xlsx")


def test_parquet_without_pyarrow_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(ValueError, match=r"stepsim\[parquet\]"):
        write_spans(fake_result(), tmp_path / "spans.parquet")
    assert not list(tmp_path.iterdir())


def test_parquet_reads_back(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="needs the extra stepsim[parquet]")
    result = fake_result(pp=2)
    write_spans(result, tmp_path / "spans.parquet")
    read = pd.read_parquet(tmp_path / "spans.parquet")
    assert len(read) == len(result.spans)
    assert read["end_s"].max() == pytest.approx(result.step_time_s)
