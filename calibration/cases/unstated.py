"""Facts of runs that no source states and that are known all the same: sites, networks, boards, vocabularies.

They follow from the fields of a case, from those that it lists as ``assumed``, and from what its job measured
of its network before the step (``CHECKED``): never from its id, source, family or outcome. Which preset a
case ran is in preset.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...sim.scenario.frameworks import applies, lookup_in
from ...sim.scenario.software.rules import rules_of
from .case import CaseHardware, CaseLayout

CHECKED = {"nanotron-2024": "nanotron-2025"}
"""The preset of runs that show, in what they measured of their own network, that collectives were checked."""


def known_site(preset: str, interconnect: str, gpus: int) -> str:
    """The preset that the hardware makes of ``preset``: what one site's runs had and others' had not.

    Omni-Path means Jean Zay, where Megatron-DeepSpeed hung on 320 GPUs and more unless every launch blocked.
    """
    jean_zay = interconnect.startswith("omnipath") and gpus >= 320
    return "bigscience-2022" if preset == "megatron-deepspeed-2022" and jean_zay else preset


def known_engine(preset: str, zero: int, assumed: bool) -> str:
    """The preset of a run: Megatron's of 2021 where it names Megatron-DeepSpeed and says nothing of ZeRO.

    ``assumed``: the case took stage 0 because its source states none. Without ``--deepspeed`` its model
    stands in Megatron's own DistributedDataParallel, and the optimizer is Megatron's
    (microsoft/Megatron-DeepSpeed megatron/training.py, get_model, setup_model_and_optimizer). vTrain
    describes its runs by what that class does with buckets, and no ZeRO (VIA-Research/vTrain src/config.py,
    use_gradient_bucket; config/validation).
    """
    silent = preset == "megatron-deepspeed-2022" and assumed and zero == 0
    return "megatron-2021" if silent else preset


SITE_NETWORKS = {"aleph-alpha-2023": "ib-hdr200-x2"}
"""Networks that no source states, by the preset of the one trainer that ran over them: inferred from what
crosses hosts in its runs (docs/decisions/0070-what-a-source-does-not-state.md)."""


def known_network(preset: str, interconnect: str, assumed: bool) -> str:
    """The network of a run with ``preset``: what its source states, or if that is ``assumed``, what its site
    is known to have."""
    return SITE_NETWORKS.get(preset, interconnect) if assumed else interconnect


MEASURED_PRODUCTS = {("Megatron-LM core (TE 2.11, torch 2.10)", "B200-SXM-180GB"): 0.93}
"""What GEMMs reached that were measured on the one machine of a framework's text and a GPU, over what is
predicted for that type under its limit (``cluster.power.measured_products``).

MooreThreads/SimuMax publishes the GEMMs of its B200 beside its steps (configs/system/
b200_bf16_ceperm.json). The 65 of 2 ms and more that accumulate nothing run at 0.93 of what 1,000 W leave at
the type's energy of a FLOP, in the median; the whole sweep at 0.72 of the boost clock, where 0.77 is left
(docs/decisions/0207-products-of-ones-own-boards.md)."""


def known_products(framework: str, hardware: CaseHardware) -> float | None:
    """What GEMMs reached on the very GPUs of a run, over what is predicted for their type; None where
    nobody measured them."""
    one_host = hardware.gpus <= hardware.gpus_per_node
    return MEASURED_PRODUCTS.get((framework, hardware.gpu)) if one_host else None


VOCABULARIES = {"megatron-zero-bubble-2023": 32_000}
"""Rows of an embedding that a source gives by its models' sizes alone, by preset.

The zero-bubble paper names its models 1.5B, 6.2B, 14.6B and 28.3B and states their layers and widths
(arXiv:2401.10241, Table 3). With an embedding that is also the head, as in its first script, all four names
are right for 25,000 to 33,500 rows; SentencePiece models of that size, which its scripts have, have 32,000
(docs/decisions/0090-sizes-tell-the-vocabulary.md).
"""


def known_vocabulary(preset: str, rows: int, assumed: bool) -> int:
    """The rows of the embedding of a run with ``preset``: those of its case; if these are ``assumed``, those
    that follow from the model sizes that the source states."""
    return VOCABULARIES.get(preset, rows) if assumed else rows


TIED = ("aleph-alpha-2023",)
"""Presets whose trainer ties the head to the embedding if nobody says otherwise: Aleph-Alpha/scaling
transformer/context/config.py (weight_tying, True by default), transformer/model/model.py (TiedLayerSpec). The
utilisation that its paper prints has both tables in it either way, since it is of the parameters of all
layers, tied ones twice (transformer/train.py, parameters_total; core/nn/parallel_module/parallel_module.py,
get_params_count; docs/decisions/0109-margins-of-frameworks.md)."""


def known_tying(preset: str, tied: bool, assumed: bool) -> bool:
    """Whether embedding and head of a run with ``preset`` are one table: what its source states, or if that
    is ``assumed``, what its trainer does by itself."""
    return (preset in TIED or tied) if assumed else tied


MICROBATCH_A_RANK = ("torchtitan-2024",)
"""Presets that cut a replica's batch into as many microbatches as the pipeline has ranks, if nobody says
otherwise, however many stages each rank has. torchtitan's interleaved schedules have as many microbatches as
stages from January 2025 on (pytorch/torchtitan torchtitan/parallelisms/pipelining_utils.py,
build_pipeline_schedule; pull request 781, "fix num_microbatches input for PP")."""


def known_micro_batch(preset: str, layout: CaseLayout, assumed: bool) -> int:
    """Sequences of a microbatch of a run with ``preset``: the number that its source states, or if that is
    ``assumed``, the framework's default."""
    each, rest = divmod(layout.global_batch, layout.dp * layout.pp)
    unsaid = assumed and layout.pp > 1 and preset in MICROBATCH_A_RANK and not rest
    return each if unsaid else layout.micro_batch


def known_precision(preset: str, layout: Mapping[str, Any], *, master_weights: bool = True) -> str:
    """The type of the GEMMs of a run with ``preset``: what its source states, but where the framework
    takes another in such a layout whatever its configuration says.

    Weights that were made in 16 bit, without masters, are multiplied in 16 bit wherever they lie.
    """
    if not master_weights:
        return str(layout["precision"])
    lookup = lookup_in({"parallelism": layout})
    fixed = (
        rule.always
        for rule in rules_of(preset)
        if rule.path == "training.precision" and rule.always and applies(rule, lookup)
    )
    return str(next(fixed, layout["precision"]))


def known_zero(preset: str, layout: Mapping[str, Any]) -> int:
    """The stage of ZeRO of a run with ``preset``: what its source states, but where the framework has another
    in such a layout whatever its configuration says."""
    lookup = lookup_in({"parallelism": layout, "training": layout})
    fixed = (
        rule.always
        for rule in rules_of(preset)
        if rule.path == "parallelism.zero" and rule.always and applies(rule, lookup)
    )
    return int(next(fixed, layout["zero"]))


SIMPLE_ALONE = {"nanotron-2024": "efa-3200", "nanotron-2025": "efa-3200"}
"""Networks over which the one site of a preset ran NCCL with Simple alone, as the plugin of EFA has it where
NICs do not promise to write 128 bytes in order: seen in what its jobs measured of their rings, before any
step (docs/decisions/0098-protocols-by-the-pace-of-rings.md)."""


def known_protocol(document: Mapping[str, Any], interconnect: str) -> dict[str, Any]:
    """The ``software`` of a run over a network, with the protocols that NCCL had there."""
    if SIMPLE_ALONE.get(document["preset"]) != interconnect:
        return dict(document)
    return {**document, "exchange": document.get("exchange", {}) | {"nccl_proto": "Simple"}}
