"""Buckets close with the parameter that fills them, and a table of the vocabulary is one parameter."""

from __future__ import annotations

from typing import Any

from small_scenarios import lowered, scenario

from stepsim.sim.program.program import Collective


def test_a_table_as_large_as_both_branches_of_an_mlp_is_no_mlp() -> None:
    """Of 2 x FFN rows: the branches are two matrices here, and close a bucket each; the table closes one."""
    gradients = {"reduction": "nanotron-buckets", "bucket_elements": 300_000}
    software = {"preset": "nanotron-2024", "gradients": gradients, "kernels": {"split_gate": True}}
    fields: dict[str, Any] = {"gpu": "H100-SXM5-80GB", "interconnect": "ib-ndr400-x8", "dp": 4, "zero": 0}
    fields |= {
        "mlp": "swiglu",
        "vocab_size": 2048,
        "tied_embeddings": True,
        "position": "rope",
        "biases": False,
    }
    job = scenario(software=software, **fields)
    model = job.model
    assert model.vocab_size == 2 * model.ffn_hidden_size
    works = [op.work for op in lowered(job).programs.classes[0].ops if op.name == "gradient all_reduce"]
    last = [work for work in works if isinstance(work, Collective)][-1]
    assert last.transfer.bytes > 4 * model.vocab_size * model.hidden_size
