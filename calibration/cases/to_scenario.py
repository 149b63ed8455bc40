"""A case as a scenario: which field of the one goes where in the other.

A pure mapping. The scenario gets neither the id, the family, the notes nor the outcome, so that
equal configurations are equal scenarios.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ...sim.network.collectives import shows_checks
from ...sim.scenario.blocks import ClusterSpec
from ...sim.scenario.machine import cluster_of, slurm_segment
from .case import Case, CaseModel, CaseNetwork
from .model_facts import known_facts
from .preset import model_facts, preset_of, routing_said, software_document, stage_split, training_facts
from .recipes import fields_instead, recipe_fields, recipe_order
from .unstated import (
    CHECKED,
    known_engine,
    known_micro_batch,
    known_network,
    known_precision,
    known_products,
    known_protocol,
    known_site,
    known_tying,
    known_vocabulary,
    known_zero,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...sim.scenario.models import Scenario

LAUNCHERS = ("Megatron-Bridge", "NeMo")
"""Frameworks whose launchers ask SLURM for segments of hosts (``--segment``). Whoever trains experts does, as
their groups have to lie within one NVLink domain (yanring/Megatron-MoE-ModelZoo sbatch_benchmarking.sh,
``SEGMENT``: hosts of one expert group, times what divides the job)."""

NAME = "case"
"""Name of every scenario made here."""

PARALLELISM = (
    "tp", "pp", "vpp", "cp", "ep", "etp", "dp", "zero", "fsdp_shard_size", "sequence_parallel", "stage_split",
)  # fmt: skip
TRAINING = ("global_batch", "micro_batch", "precision", "recompute", "cpu_offload")


def to_scenario(case: Case, *, as_stated: bool = False) -> Scenario:
    """The scenario of a case; ``as_stated``: without what is known of its site from its own source's runs.

    Raises ValueError, with the reason, where there is none.
    """
    from ...sim.scenario.load import scenario_from_document

    return scenario_from_document(scenario_document(case, as_stated=as_stated), NAME)


def scenario_document(case: Case, *, as_stated: bool = False) -> dict[str, Any]:
    """The scenario file of a case, as a document. Raises NotSupported for software that has no preset."""
    release = preset_of(case.software)
    software = _software(case, release)
    preset = software["preset"]  # facts of its source go by it, whatever its measured network shows besides
    cluster = _cluster(case, preset, as_stated=as_stated)
    if case.measured_network:
        spec = ClusterSpec.model_validate(cluster)
        if spec.measured_network and shows_checks(spec.measured_network, cluster_of(spec)):
            software["preset"] = CHECKED.get(preset, preset)
    if not as_stated or case.measured_network:  # a run that states what its rings took has stated this
        software = known_protocol(software, case.hardware.interconnect)
    return {
        "model": _model(case, preset),
        "cluster": cluster,
        "parallelism": _parallelism(case, release, software["preset"]),
        "training": _training(case, preset, software),
        "schedule": case.layout.schedule,
        "software": software,
    }


def _software(case: Case, release: str) -> dict[str, Any]:
    """The ``software`` of a case that ``release`` stands for, with what is known of its site and engine."""
    known = fields_instead(release, case)
    software = software_document(case.software, case.hardware.gpu, recipe_fields(release, case), known)
    at_site = known_site(software["preset"], case.hardware.interconnect, case.hardware.gpus)
    software["preset"] = known_engine(at_site, case.layout.zero, "layout.zero" in case.assumed)
    if "software.attention" in case.assumed and "attention" not in known:
        software.setdefault("kernels", {})["attention_assumed"] = True
    return software


def _cluster(case: Case, preset: str, *, as_stated: bool) -> dict[str, Any]:
    """The ``cluster`` of a case, with the network that its source is known to have unless ``as_stated``."""
    cluster: dict[str, Any] = asdict(case.hardware) | segments(case) | message_chunk(case) | boards(case)
    if not as_stated:
        assumed = "hardware.interconnect" in case.assumed
        cluster["interconnect"] = known_network(preset, cluster["interconnect"], assumed)
    if case.measured_network:
        cluster["measured_network"] = measured_network_document(case.measured_network)
    return cluster


def _parallelism(case: Case, release: str, preset: str) -> dict[str, Any]:
    """The ``parallelism`` of a case, its ranks in the order of its recipe, if that says one."""
    layout = case.layout
    stages = layout.pp * layout.vpp
    order = recipe_order(release, case)
    return (
        {key: getattr(layout, key) for key in PARALLELISM}
        | {"stage_split": stage_split(case.software, layout.stage_split, case.model.num_layers, stages)}
        | {"zero": known_zero(preset, asdict(layout))}
        | ({"order": order} if order else {})
    )


def _training(case: Case, preset: str, software: Mapping[str, Any]) -> dict[str, Any]:
    """The ``training`` of a case of ``preset``, in the precision of the ``software`` that it ran."""
    layout = case.layout
    masters = software.get("gradients", {}).get("master_weights", True)
    precision = known_precision(software["preset"], asdict(layout), master_weights=masters)
    sequences = known_micro_batch(preset, layout, "layout.micro_batch" in case.assumed)
    return (
        {"seq_length": case.model.seq_length}
        | {key: getattr(layout, key) for key in TRAINING}
        | {"micro_batch": sequences, "precision": precision}
        | training_facts(case.software)
        | routing_said(case)
    )


def _model(case: Case, preset: str) -> dict[str, Any]:
    """The ``model`` of a run with ``preset``, with what is known where its source is silent."""
    rows = known_vocabulary(preset, case.model.vocab_size, "model.vocab_size" in case.assumed)
    tied = known_tying(preset, case.model.tied_embeddings, "model.tied_embeddings" in case.assumed)
    ends = {"vocab_size": rows, "padded_vocab_size": rows, "tied_embeddings": tied}
    return known_facts(model_document(case.model) | ends) | model_facts(case.software)


def segments(case: Case) -> dict[str, int]:
    """The GPUs of each NVLink domain that a job of several racks uses, where its launcher says so."""
    hardware = case.hardware
    if case.layout.ep == 1 and not case.software.framework.startswith(LAUNCHERS):
        return {}
    used = slurm_segment(hardware.gpu, hardware.gpus, hardware.gpus_per_node)
    return {} if used is None else {"gpus_per_domain": used}


def message_chunk(case: Case) -> dict[str, str]:
    """How the recipes of a release have NCCL cut messages between hosts, where they say so.

    NVIDIA/NeMo scripts/performance/llm, every pretrain_*.py: PerfEnvPlugin with ``nccl_pp_comm_chunksize``
    of 2,097,152 where there are stages, which sets NCCL_P2P_NET_CHUNKSIZE (lightning/run/plugins.py).
    """
    cut = preset_of(case.software) == "nemo-2025" and case.layout.pp > 1
    return {"message_chunk": "2 MiB"} if cut else {}


def boards(case: Case) -> dict[str, Any]:
    """What the GPUs of a run sustain under their limit, where their own GEMMs were measured."""
    reached = known_products(case.software.framework, case.hardware)
    return {} if reached is None else {"power": {"measured_products": reached}}


def model_document(model: CaseModel) -> dict[str, Any]:
    """The ``model`` of a scenario, which has no sequence length. A case states the rows that the run had."""
    document = asdict(model)
    del document["seq_length"]
    return document | {"padded_vocab_size": model.vocab_size}


def measured_network_document(network: CaseNetwork) -> dict[str, str]:
    """Bus bandwidths with their unit, as a scenario wants them."""
    return {
        name.removesuffix("_gbps") + "_bytes_per_s": f"{gigabytes_per_s!r} GB/s"
        for name, gigabytes_per_s in asdict(network).items()
    }
