"""Which software a case ran, as the simulator's presets know it.

Decided by the case's ``software`` and ``hardware`` blocks, and by what the job measured of its network before
the step (``CHECKED``): never by its id, source, family or outcome (tests/test_validation_preset.py permutes
those). The table below is the whole rule, but for these two and the ``known_`` functions. What recipe files
of one release differ in is in recipes.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ...sim.scenario.frameworks import applies, lookup_in
from ...sim.scenario.presets import WITHOUT_CUDNN
from ...sim.scenario.software import get_software
from ...sim.scenario.software.called import mentions
from ...sim.scenario.software.rules import rules_of
from ...sim.scenario.software.software import grouped
from .case import CaseLayout, CaseSoftware


@dataclass(frozen=True, slots=True)
class PresetChoice:
    """Frameworks whose text matches ``pattern``, from year ``since`` to ``until``, are ``preset``."""

    pattern: str
    preset: str
    since: int = 0
    until: int = 9999

    def matches(self, framework: str, year: int) -> bool:
        return (
            self.since <= year <= self.until and re.search(self.pattern, framework, re.IGNORECASE) is not None
        )


ReportedRank = Literal["first", "last", "fullest"]
"""The rank whose memory a run printed."""

# The first rule that matches holds: names that contain others ("Megatron-DeepSpeed") come before those.
RULES = (
    PresetChoice(r"^deepspeed zero-?3", "deepspeed-zero3-2021"),
    PresetChoice(r"megatron-deepspeed.*cuda_launch_blocking", "bigscience-2022"),
    PresetChoice(r"megatron-deepspeed", "megatron-deepspeed-2022"),
    PresetChoice(r"megatron-lm.*zero.?bubble", "megatron-zero-bubble-2023"),
    PresetChoice(r"aleph alpha", "aleph-alpha-2023"),
    PresetChoice(r"^meta in-house", "llama3-meta-2024"),
    PresetChoice(r"hai-llm", "deepseek-hai-2024"),
    PresetChoice(r"nanotron", "nanotron-2024"),
    PresetChoice(r"torchtitan", "torchtitan-2024", until=2024),
    PresetChoice(r"torchtitan", "torchtitan-2025", since=2025),
    PresetChoice(r"llm[ -]foundry|composer", "llm-foundry-2023"),
    PresetChoice(r"\bllm\.c\b", "llm-c-2024"),
    PresetChoice(r"maxtext", "maxtext-2025", since=2025),
    PresetChoice(r"automodel", "automodel-2025"),
    PresetChoice(r"mlperf\D*3\.0", "mlperf-3.0"),
    PresetChoice(r"mlperf\D*3\.1", "mlperf-3.1"),
    PresetChoice(r"mlperf\D*4\.", "mlperf-4"),
    PresetChoice(r"mlperf\D*5\.0", "mlperf-5.0"),
    PresetChoice(r"mlperf\D*5\.1", "mlperf-5.1"),
    PresetChoice(r"mlperf\D*[6-9]\.", "mlperf-6.0"),
    PresetChoice(r"nemo", "megatron-2022-sp", until=2022),  # there was no Megatron core yet
    PresetChoice(r"nemo", "nemo-2024", until=2024),
    PresetChoice(r"megatron[ -](lm )?core|megatron[ -]bridge", "megatron-core-2024", until=2024),
    PresetChoice(r"megatron[ -]bridge.* 26\.(0[6-9]|1)", "megatron-bridge-26.06", since=2026),
    PresetChoice(r"megatron[ -]bridge", "megatron-bridge-2026", since=2026),
    PresetChoice(r"megatron[ -]bridge", "megatron-bridge-2025", since=2025),
    PresetChoice(r"nemo", "nemo-2025", since=2025),
    PresetChoice(r"primus", "primus-2025"),
    PresetChoice(r"megatron[ -](lm )?core", "megatron-core-2025", since=2025),
    PresetChoice(r"^megatron-lm", "megatron-2021", until=2021),
    PresetChoice(r"^megatron-lm", "megatron-2022-sp", since=2022, until=2022),
    PresetChoice(r"^megatron-lm", "megatron-2023", since=2023),
    PresetChoice(r"gpt-neox", "gpt-neox-2022"),
    # Of which no code was read: what they are like, by what they are written in and cut parameters with.
    PresetChoice(mentions("generic-jax"), "generic-jax"),
    PresetChoice(rf"fsdp|zero-?3|fully.sharded|{mentions('generic-fsdp')}", "generic-fsdp"),
    PresetChoice(r"", "generic-megatron-2022", until=2022),
    PresetChoice(r"", "generic-megatron"),
)

CHECKED = {"nanotron-2024": "nanotron-2025"}
"""The preset of runs that show, in what they measured of their own network, that collectives were checked."""


def known_site(preset: str, interconnect: str, gpus: int) -> str:
    """The preset that the hardware makes of ``preset``: what one site's runs had and others' had not.

    Omni-Path means Jean Zay, where Megatron-DeepSpeed hung on 320 GPUs and more unless every launch blocked.
    """
    jean_zay = interconnect.startswith("omnipath") and gpus >= 320
    return "bigscience-2022" if preset == "megatron-deepspeed-2022" and jean_zay else preset


def known_engine(preset: str, zero: int, assumed: bool) -> str:
    """The preset of Megatron-DeepSpeed whose source says nothing of ZeRO: that of its Megatron alone.

    Without ``--deepspeed`` its model stands in Megatron's own DistributedDataParallel, and the optimizer is
    Megatron's (microsoft/Megatron-DeepSpeed megatron/training.py, get_model, setup_model_and_optimizer).
    vTrain describes its runs by what that class does with buckets, and no ZeRO (VIA-Research/vTrain
    src/config.py, use_gradient_bucket; config/validation).
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


VOCABULARIES = {"megatron-zero-bubble-2023": 32_000}
"""Rows of an embedding that a source gives by its models' sizes alone, by preset.

The zero-bubble paper names its models 1.5B, 6.2B, 14.6B and 28.3B and states their layers and widths
(arXiv:2401.10241, Table 3). With an embedding that is also the head, as in its first script, all four names
are right for 25,000 to 33,500 rows; SentencePiece models of that size, which its scripts have, have 32,000
(docs/decisions/0090-sizes-tell-the-vocabulary.md).
"""


def known_vocabulary(preset: str, rows: int, assumed: bool) -> int:
    """The rows of the embedding of a run with ``preset``: those of its case, or if they are ``assumed``,
    those that the stated sizes of its source's models leave."""
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
    """Sequences of a microbatch of a run with ``preset``: what its source states, or if that is ``assumed``,
    those that its framework makes by itself."""
    each, rest = divmod(layout.global_batch, layout.dp * layout.pp)
    unsaid = assumed and layout.pp > 1 and preset in MICROBATCH_A_RANK and not rest
    return each if unsaid else layout.micro_batch


def known_precision(preset: str, layout: Mapping[str, Any], *, master_weights: bool = True) -> str:
    """The type of the products of a run with ``preset``: what its source states, but where the framework
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


UNFUSED = {
    "fused_norm": False,
    "fused_activation": False,
    "fused_softmax": False,
    "fused_rope": False,
    "fused_residual": False,
}
"""What ``fused_kernels: false`` means: norm, activation, bias and softmax as chains of small kernels."""

FUSED = {"fused_norm": True, "fused_activation": True, "fused_softmax": True}
"""What ``fused_kernels: true`` says of a trainer whose code nobody read; other presets know better."""

MODEL_FACTS: dict[str, dict[str, Any]] = {
    # Of the models trained with it, by their configurations (configs/20B.yml at 252ddc52, pythia's
    # models/*/*.yml); its defaults are learned positions and dropout 0.1 (neox_args.py at 007d6d0c).
    "gpt-neox-2022": {"position": "rope", "dropout": 0.0},
    "llm-c-2024": {"dropout": 0.0},  # train_gpt2.cu has none
    "llm-foundry-2023": {"dropout": 0.0},  # MPT: attn_pdrop, resid_pdrop and emb_pdrop are 0
    # training_results_v3.0 to v4.1, gpt3 conf/*.yaml: hidden_dropout and attention_dropout are 0
    "mlperf-3.0": {"dropout": 0.0},
    "mlperf-3.1": {"dropout": 0.0},
    "mlperf-4": {"dropout": 0.0},
}
"""What the models of a preset's framework have that a case does not say."""

LOSS_COMPILED = ("torchtitan-2025",)
"""Presets whose fused loss is torch.compile's, and torch's cross_entropy of FP32 logits where a run compiles
nothing (pytorch/torchtitan components/loss.py, build_cross_entropy_loss: ``if training.compile``)."""

LOSS_EAGER = {"cross_entropy": "eager", "logits_fp32": True}
"""Their loss where nothing is compiled, in words of a preset."""

MODEL_WORDS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("without dropout", {"dropout": 0.0}),
    ("norms of heads", {"qk_norm": True}),  # of queries and keys: Megatron core's --qk-layernorm, Qwen3
)
"""What a framework's text says of the models that ran, in words of a model."""

TRAINING_WORDS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("checkpoints on the host", {"activation_offload": True}),  # what layers keep, beside those that follow
)
"""What a framework's text says of the training, in words of a scenario's ``training``."""

SAME_NAME = (
    "torch_compile",
    "overlap_grad_reduce",
    "overlap_param_gather",
    "tp_comm_overlap",
    "moe_a2a_overlap",
)
"""Flags of a case that a preset has under the same name, in one of its groups."""


DISPATCHERS = (("a2a dispatcher", "alltoall"), ("deepep", "deepep"), ("hybridep", "hybridep"))
"""What a framework's text says of how tokens reach experts, in words of a preset."""

WORDS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("cuda graphs", {"cuda_graphs": True}),  # layers are launched as one graph
    (
        "graphs but for experts",
        {"graphs_leave_out_experts": True},
    ),  # Megatron core: attn moe_router moe_preprocess
    ("fused router", {"moe_router_fusion": True}),  # Megatron core: --moe-router-fusion
    ("each projection gathers", {"tp_gathers_each": True}),
    # Megatron core from 0.16 on: more ranks of tensor parallelism than query groups (attention.py)
    ("shared key and value heads", {"shared_kv_heads": True}),
    ("synchronous tensor parallelism", {"tp_async_backward": False}),
    # DeepSpeed module_inject/layers.py: LinearLayer and LinearAllreduce hold plain tensors
    ("autotp", {"host_s_per_dtensor": 0.0}),
    ("reduces in 16 bit", {"reduce_grad_bytes": 2}),
    # Gradients stay in the type of the parameters and are reduced in it: InternEvo at 0aa6d26e,
    # internlm/solver/optimizer/hybrid_zero_optim.py (reduce_tensor with dtype None; its owner alone has FP32)
    ("internevo", {"reduce_grad_bytes": 2, "main_grad_bytes": 2}),
    ("fsdp1", {"implementation": "fsdp1"}),
    ("profile-guided", {"profile_guided": True}),  # XLA, by a profile (PGLE)
    ("fp32 head", {"head_fp32": True}),
    ("pipelined gathers", {"gathers_ahead": True}),  # XLA was told so, or layers are no loop
    ("16-bit weights", {"master_weights": False}),  # made or loaded in 16 bit, updated by torch.optim
    ("ulysses", {"cp_comm": "a2a"}),  # context parallelism by exchanging heads for sequence
    ("reentrant checkpoints", {"recompute_stops_early": False}),  # all of a layer runs again
    ("reduces last", {"reduce": "last"}),  # no_sync, or set_requires_gradient_sync(False)
    ("uncompiled loss", LOSS_EAGER),  # torchtitan's compile.components without loss
    ("fused update", {"update_copy": False}),  # AdamW in one kernel, not torch's foreach
    ("repeated heads", {"repeats_kv": True}),  # K and V are expanded to all query heads
    ("16-bit loss", {"logits_fp32": False}),  # logits stay in the type of the products
    ("fused loss", {"cross_entropy": "fused", "logits_fp32": False}),  # a kernel for 16-bit logits
    ("float8 all-gather", {"fp8_parameters": True}),  # weights are cast before they are gathered
    ("16-bit moments", {"moment_bytes": 2}),  # Megatron core: --exp-avg-dtype bf16 --exp-avg-sq-dtype bf16
    ("16-bit attention", {"fp8_attention": False}),  # where recipes of its release have both
)
"""What else a framework's text says, in words of a preset."""

FETCHED_SINCE = 2026
"""The first year of runs whose products on Hopper fetch their tiles. Twice the time beside a collective was
seen in December 2024 and July 2025, the share of its SMs in January 2026 and with cuBLAS 13.1. JAX runs
cuBLAS, too: its recipes for H100 have ``--xla_gpu_enable_triton_gemm=false`` (AI-Hypercomputer/maxtext
MaxText/configs/a3, NVIDIA/dgxc-benchmarking maxtext/configure.sh at 0b71cfda, NVIDIA/JAX-Toolbox's image)
(docs/decisions/0106-products-that-take-two-passes.md)."""


def products_of(year: int) -> str:
    """What 16-bit products on Hopper lose beside collectives in runs of a ``year``, in words of a preset."""
    return "share" if year >= FETCHED_SINCE else "two-passes"


COMBINED = {
    "gathers": "combine_gather_bytes",
    "scatters": "combine_scatter_bytes",
    "reductions": "combine_reduce_bytes",
}
"""Fields of XLA's thresholds by the word for their collectives in ``gathers combined to 128 MiB``."""


def combined_bytes(framework: str) -> dict[str, float]:
    """The thresholds that a framework's text states, in words of a preset.

    >>> combined_bytes("Pax (JAX; gathers combined to 512 MiB, scatters combined to 8 MiB)")
    {'combine_gather_bytes': 536870912.0, 'combine_scatter_bytes': 8388608.0}
    """
    stated = re.findall(r"(gathers|scatters|reductions) combined to (\d+) MiB", framework)
    return {COMBINED[kind]: float(number) * 2**20 for kind, number in stated}


def loss_chunks(framework: str) -> dict[str, int]:
    """Into how many parts a framework's text says that head and loss are cut, in words of a preset.

    >>> loss_chunks("TRL (FSDP2; loss in 512 chunks)")
    {'loss_chunks': 512}
    """
    stated = re.search(r"loss in (\d+) chunks", framework)
    return {"loss_chunks": int(stated[1])} if stated else {}


def preset_of(software: CaseSoftware) -> str:
    """Name of the preset; of a framework that has none, a generic one, whose interval is wider."""
    return next(rule.preset for rule in RULES if rule.matches(software.framework, software.year))


def model_facts(software: CaseSoftware) -> dict[str, Any]:
    """What is known of the models of a case's framework, by its preset and by what its text says."""
    facts = dict(MODEL_FACTS.get(preset_of(software), {}))
    for words, meant in MODEL_WORDS:
        facts |= meant if words in software.framework.lower() else {}
    return facts


def training_facts(software: CaseSoftware) -> dict[str, Any]:
    """What a case's framework's text says of the training itself."""
    said = software.framework.lower()
    return {name: value for words, meant in TRAINING_WORDS if words in said for name, value in meant.items()}


def software_document(
    software: CaseSoftware,
    gpu: str = "",
    recipe: Mapping[str, Any] | None = None,
    instead: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The ``software`` of a scenario: a preset, and what the case itself says otherwise, but for ``instead``.

    A flag that is None leaves the preset's own value, or that of the ``recipe`` (recipes.py).
    ``fused_kernels: true`` does too, where the preset tells which of its kernels are fused; so does
    ``p2p_overlap: true`` where the preset overlaps by a rule of its own.
    """
    preset = preset_of(software)
    fields: dict[str, Any] = {**(recipe or {}), "attention": software.attention}
    fields |= {name: flag for name in SAME_NAME if (flag := getattr(software, name)) is not None}
    framework = software.framework.lower()
    if software.overlap_grad_reduce is not None:
        fields["overlap_assumed"] = "none"  # the source says what runs beside compute
    if known := [name for words, name in DISPATCHERS if words in framework]:
        fields["moe_dispatcher"] = known[0]
    if preset in LOSS_COMPILED and not software.torch_compile:
        fields |= LOSS_EAGER
    for words, meant in WORDS:
        fields |= meant if words in framework else {}
    fields |= combined_bytes(software.framework) | loss_chunks(software.framework)
    if not software.fused_kernels:
        fields |= UNFUSED
    elif preset.startswith("generic-"):
        fields |= FUSED
    if gpu.startswith("MI") and software.attention in ("cudnn", "fa3"):
        fields["attention"] = WITHOUT_CUDNN  # the word of a case for TransformerEngine's fused attention
    if preset == "llm-foundry-2023" and software.attention == "fa2":
        # Its benchmarks take attn_impl triton (submit_benchmarks.py): FlashAttention as a Triton kernel.
        # FlashAttention-2 beats that by 1.3 to 2.5, and the first by 1.7 to 3.0 (arXiv:2307.08691, 4.1).
        fields["attention"] = "fa1"
    if preset == "mlperf-3.0" and software.attention == "fa2":
        fields["attention"] = "fa1"  # May 2023: FlashAttention-2 came in July (arXiv:2307.08691)
    if preset == "aleph-alpha-2023" and software.attention != "fa2":
        fields["fused_norm"] = (
            False  # its RMSNorm kernel is an option beside FlashAttention-2 only (section 3)
        )
    if (products := products_of(software.year)) != get_software(preset).kernels.hopper_products:
        fields["hopper_products"] = products
    if software.p2p_overlap is False:
        fields["point_to_point"] = "blocking"
    elif software.p2p_overlap and get_software(preset).pipeline.point_to_point == "blocking":
        fields["point_to_point"] = "async"
    return {"preset": preset, **grouped({**fields, **(instead or {})})}


WHOLE_SPECS = ("aleph-alpha-2023",)
"""Presets that split everything the model is made of into parts of equal number, not its layers alone."""


def stage_split(
    software: CaseSoftware, split: str | tuple[int, ...], num_layers: int, stages: int
) -> str | list[int]:
    """``parallelism.stage_split`` as the software means the word of a case, or as the case lists it.

    Aleph Alpha's trainer puts the embedding, the layers, the final norm and the head in one list and cuts it
    into parts of equal number, the remainder one each to the first (Aleph-Alpha/scaling
    core/nn/parallel_module/pipeline_partitioning.py, pipe_partition_uniform, its default;
    transformer/model/model.py, get_transformer_layer_specs). So 80 layers on 8 stages are not ten on each:

    >>> from types import SimpleNamespace
    >>> trainer = SimpleNamespace(framework="Aleph Alpha in-house", year=2023)
    >>> stage_split(trainer, "uniform", 80, 8)
    [10, 11, 11, 10, 10, 10, 10, 8]
    """
    if not isinstance(split, str):
        return list(split)
    if (
        preset_of(software) not in WHOLE_SPECS
        or stages == 1
        or split not in ("uniform", "uneven_unspecified")
    ):
        return split
    each, more = divmod(num_layers + 3, stages)
    parts = [each + (stage < more) for stage in range(stages)]
    parts[0] -= 1
    parts[-1] -= 2
    return parts


def reported_rank(software: CaseSoftware) -> ReportedRank:
    """The rank whose memory this software prints: global rank 0, the last one, or the fullest.

    nanotron logs from rank 0 alone (helpers.py, log_memory; the README of the case files says so too). So do
    MLPerf's runs of NeMo 2: max_memory_usage of their logs (the notes of the cases). What Megatron-LM writes
    for TensorBoard is of the last rank (megatron/training/global_vars.py, _set_tensorboard_writer), which is
    in the last stage of a pipeline.
    """
    if "memory of the last rank" in software.framework.lower():
        return "last"
    first = preset_of(software) in ("nanotron-2024", "mlperf-5.0", "mlperf-5.1")
    return "first" if first else "fullest"
