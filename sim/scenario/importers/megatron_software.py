"""What a Megatron-LM run's options switch on: kernels, messages, overlaps, graphs, offload.

A field is put where an option, or the version's own default, says something; what the preset of the version
has anyway and no option names is left to it. Widths and gradients are in megatron_precision.py.

Sources: Megatron-LM megatron/training/arguments.py; core/distributed/distributed_data_parallel_config.py;
core/transformer/moe/README.md; core/optimizer/optimizer_config.py; core/model_parallel_config.py.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...network.nccl.choice import check_variable
from .cuda_graphs import PARTS_SINCE, SCOPE_NAMES, put_scopes
from .draft import Draft
from .megatron_model import DEFAULT
from .megatron_precision import put_gradients, put_optimizer, put_precision
from .megatron_version import Megatron
from .plain_names import plain_name
from .router_loss import put_router_loss
from .settings import Setting, Settings


def put_software(settings: Settings, megatron: Megatron, environment: Mapping[str, Setting]) -> None:
    """Put ``software`` and what of ``training`` is about precision, optimizer and offload."""
    draft = settings.draft
    draft.put("software.preset", megatron.preset, f"Megatron-LM {megatron.shown}")
    put_precision(settings)
    put_optimizer(settings)
    put_gradients(settings, megatron)
    _kernels(settings, megatron)
    _messages(settings, megatron)
    _exchanges(settings)
    _graphs(settings, megatron)
    _offload(settings)
    put_environment(settings, environment)


_FUSIONS = (
    ("masked_softmax_fusion", "fused_softmax"),
    ("bias_gelu_fusion", "fused_activation"),
    ("bias_swiglu_fusion", "fused_activation"),
    ("bias_dropout_fusion", "fused_residual"),
    ("apply_rope_fusion", "fused_rope"),
    ("rope_fusion", "fused_rope"),
)
"""Options that are on by default, and the fact of the software that each switches."""


def _kernels(settings: Settings, megatron: Megatron) -> None:
    draft = settings.draft
    _attention(settings, megatron)
    used = "bias_swiglu_fusion" if draft.get("model.mlp") == "swiglu" else "bias_gelu_fusion"
    for option, field in _FUSIONS:
        off = settings.flag(f"no_{option}") or not settings.flag(option, default=True)
        if off and (field != "fused_activation" or option == used):
            draft.put_software(field, False, settings.origin(f"no_{option}", option))
    for name, rope in (("disable_te_fused_rope", "fused_rope"), ("fused_single_qkv_rope", "fused_qkv_rope")):
        if settings.flag(name):
            settings.put(f"software.kernels.{rope}", name.startswith("fused"), name)
    _loss(settings, megatron)


def _loss(settings: Settings, megatron: Megatron) -> None:
    """The loss: Megatron core's operators, those that torch.compile fuses (native), or kernels of
    TransformerEngine, which read and write 16-bit logits."""
    fused = settings.flag("cross_entropy_loss_fusion")
    native = settings.text("cross_entropy_fusion_impl", default="native") == "native"
    if megatron.version < (4, 4):
        return
    origin = settings.origin("cross_entropy_loss_fusion", default=f"{DEFAULT}: not fused")
    loss = ("compiled" if native else "fused") if fused else "vocab-parallel"
    settings.draft.put("software.kernels.cross_entropy", loss, origin)
    if settings.number("output_z_loss_coeff"):  # a fork's: TransformerEngine's loss has no sums to give
        way = "apart" if loss == "fused" else "within"
        settings.put("software.kernels.z_loss", way, "output_z_loss_coeff")
    if loss == "fused":
        where = settings.origin("cross_entropy_fusion_impl")
        settings.draft.put("software.kernels.logits_fp32", False, where)


def _attention(settings: Settings, megatron: Megatron) -> None:
    impl = settings.choice(
        "transformer_impl",
        among={"local": "local", "transformer_engine": "te", "inference_optimized": None},
        default="te" if megatron.is_core else "local",
    )
    flash = (
        settings.flag("use_flash_attn")
        or settings.flag("use_flash_attn_v2")
        or settings.flag("use_flash_attn_v1")
    )
    backend = settings.choice(
        "attention_backend",
        among={"flash": "fa2", "fused": "cudnn", "unfused": "unfused", "local": "unfused", "auto": None},
    )
    if backend:
        settings.put("software.kernels.attention", backend, "attention_backend")
    elif impl == "local":
        settings.put(
            "software.kernels.attention",
            "fa2" if flash else "unfused",
            "use_flash_attn",
            "use_flash_attn_v2",
            "transformer_impl",
            default=f"{DEFAULT}: local",
        )
    if settings.flag("export_force_local_attention"):
        settings.put("software.kernels.attention", "unfused", "export_force_local_attention")
    if impl == "local" and megatron.is_core:
        _without_modules_of_transformer_engine(settings)


def _without_modules_of_transformer_engine(settings: Settings) -> None:
    """What presets of Megatron core have a GEMM, a norm and attention cost a host is its modules' Python;
    Megatron's own (core/tensor_parallel/layers.py, core/transformer/dot_product_attention.py) call torch at
    once. The functions between them are Megatron's either way."""
    for field in ("launches_per_product", "launches_per_attention"):
        settings.put(f"software.host.{field}", 1, "transformer_impl")


_PARTS_OF_OVERLAP = (
    "disable_tp_comm_overlap_ag",
    "disable_tp_comm_overlap_rs",
    "disable_tp_comm_bulk_dgrad",
    "disable_tp_comm_bulk_wgrad",
    "tp_comm_overlap_rs_dgrad",
    "disable_tp_comm_split_ag",
    "disable_tp_comm_split_rs",
)
_CP_COMM = {"p2p": "p2p", "a2a": "a2a", "allgather": "all_gather", "all_gather": "all_gather"}


def _messages(settings: Settings, megatron: Megatron) -> None:
    """Tensor, pipeline and context parallelism's messages."""
    _tensor_messages(settings, megatron)
    _pipeline_messages(settings)
    _context_messages(settings)


def _pipeline_messages(settings: Settings) -> None:
    """Put who waits for messages between stages; the preset's rule holds where no option says otherwise.

    Source: Megatron-LM megatron/training/arguments.py, megatron/core/model_parallel_config.py.
    """
    field = "software.pipeline.point_to_point"
    off = ("no_overlap_p2p_communication", "overlap_p2p_comm")
    full = ("overlap_p2p_communication_warmup_flush", "overlap_p2p_comm_warmup_flush")
    blocking = settings.flag(off[0]) or not settings.flag(off[1], default=True)
    if blocking:
        settings.put(field, "blocking", *off)
    if settings.flag(*full) and blocking:
        name = next(one for one in full if settings.has(one))
        settings.refuse(name, "Megatron ends on it where messages do not overlap (overlap_p2p_comm is off)")
    elif settings.flag(*full):
        settings.put(field, "prefetch-full", *full)


def _tensor_messages(settings: Settings, megatron: Megatron) -> None:
    draft = settings.draft
    if megatron.version >= (4, 4):
        wanted = settings.flag("tp_comm_overlap")
        if wanted and not draft.get("parallelism.sequence_parallel"):
            settings.refuse("tp_comm_overlap", "it needs --sequence-parallel and tensor parallelism")
        settings.put(
            "software.exchange.tp_comm_overlap", wanted, "tp_comm_overlap", default=f"{DEFAULT}: off"
        )
    for name in ("tp_comm_overlap_cfg", "tp_comm_bootstrap_backend"):
        if settings.text(name):
            draft.note(f"{name}: the size of user buffers makes no difference here")
    for name in _PARTS_OF_OVERLAP:
        settings.refuse_if(name, "the parts of tensor-parallel overlap are on or off together here")
    if settings.flag("no_async_tensor_model_parallel_allreduce"):
        settings.put("software.exchange.tp_async_backward", False, "no_async_tensor_model_parallel_allreduce")


def _context_messages(settings: Settings) -> None:
    draft = settings.draft
    kinds = settings.setting("cp_comm_type")
    if kinds is None or draft.get("parallelism.cp", 1) == 1:
        settings.setting("hierarchical_context_parallel_sizes")
        return
    kind = kinds.value[0] if isinstance(kinds.value, list) and len(set(kinds.value)) == 1 else kinds.value
    if kind == "a2a+p2p":
        sizes = settings.setting("hierarchical_context_parallel_sizes")
        first = sizes.value[0] if sizes and isinstance(sizes.value, list) and sizes.value else None
        if not str(first or "").isdigit():
            settings.refuse(
                "cp_comm_type", "a2a+p2p takes --hierarchical-context-parallel-sizes, of a2a and of p2p"
            )
            return
        draft.put("parallelism.cp_a2a", int(str(first)[:9]), sizes.origin if sizes else "")
    elif kind not in _CP_COMM:
        settings.refuse(
            "cp_comm_type", f"{kind!s:.60}: one of {', '.join(_CP_COMM)}, a2a+p2p for all layers is modelled"
        )
    else:
        draft.put("software.exchange.cp_comm", _CP_COMM[kind], kinds.origin)


_DISPATCHERS = {
    "allgather": "allgather",
    "alltoall": "all_to_all",
    "alltoall_seq": "all_to_all",
    "flex": "flex",
}
_ABOUT_EXPERTS = (
    "moe_enable_deepep",
    "moe_grouped_gemm",
    "moe_router_fusion",
    "moe_use_legacy_grouped_gemm",
    "moe_shared_expert_overlap",
    "overlap_moe_expert_parallel_comm",
    "delay_wgrad_compute",
    "moe_permute_fusion",
    "enable_experimental",
    "moe_router_padding_for_fp8",
    "moe_router_padding_for_quantization",
    "moe_router_force_load_balancing",
)
"""Flags that change nothing where no layer has experts."""


def _exchanges(settings: Settings) -> None:
    """How tokens reach experts, and what is fused on the way."""
    moe = settings.draft.get("model.moe") is not None
    dispatcher = settings.choice("moe_token_dispatcher_type", among=_DISPATCHERS, default="allgather")
    backend = settings.choice(
        "moe_flex_dispatcher_backend",
        among={"deepep": "deepep", "hybridep": "hybridep", "ncclep": None},
        default="deepep",
    )
    on = {name: settings.flag(name) for name in _ABOUT_EXPERTS}
    for name in ("moe_permute_fusion_into_hybridep", "moe_deepep_num_sms", "moe_hybridep_num_sms"):
        if settings.has(name) and moe:
            settings.draft.note(f"{name}: a dispatcher's SMs and fusions make no difference here")
    if moe:
        if on[forced := "moe_router_force_load_balancing"]:
            settings.draft.put("training.routing", "forced", settings.origin(forced))
        _dispatcher(settings, str(dispatcher), backend, on)
        _expert_overlap(settings, on)
        _expert_kernels(settings, on)
        put_router_loss(settings, default=f"{DEFAULT}: --moe-aux-loss-coeff 0")


def _dispatcher(settings: Settings, dispatcher: str, backend: str | None, on: Mapping[str, bool]) -> None:
    draft = settings.draft
    ranks = draft.get("parallelism.ep", 1) * draft.get("parallelism.etp", 1)
    if dispatcher == "allgather" and ranks > 1:
        settings.refuse(
            "moe_token_dispatcher_type",
            "allgather, which is the default, is not modelled where experts are on several ranks; alltoall "
            "and flex are",
        )
    if dispatcher == "flex" and backend is None:
        settings.refuse("moe_flex_dispatcher_backend", "ncclep is not modelled; deepep and hybridep are")
    flexible = dispatcher == "flex" or on["moe_enable_deepep"]
    way = (backend if dispatcher == "flex" and backend else "deepep") if flexible else "alltoall"
    names = "moe_token_dispatcher_type", "moe_enable_deepep"
    said = settings.origin(*names, default=f"{DEFAULT}: allgather")
    draft.put("software.exchange.moe_dispatcher", way, said)
    fused = on["enable_experimental"] and on["moe_permute_fusion"]
    said = settings.origin("enable_experimental", "moe_permute_fusion", default=f"{DEFAULT}: off")
    draft.put("software.exchange.arrivals_indexed_by_torch", not fused if way == "deepep" else None, said)


def _expert_overlap(settings: Settings, on: Mapping[str, bool]) -> None:
    draft = settings.draft
    settings.put(
        "software.exchange.moe_shared_expert_overlap",
        on["moe_shared_expert_overlap"] and draft.get("model.moe.shared_expert_ffn_hidden_size") is not None,
        "moe_shared_expert_overlap",
        default=f"{DEFAULT}: off",
    )
    together = on["overlap_moe_expert_parallel_comm"]
    settings.put(
        "software.exchange.moe_a2a_overlap",
        together,
        "overlap_moe_expert_parallel_comm",
        default=f"{DEFAULT}: off",
    )
    if on["delay_wgrad_compute"] and not together:
        settings.refuse(
            "delay_wgrad_compute",
            "delayed weight gradients are modelled with --overlap-moe-expert-parallel-comm only",
        )


def _expert_kernels(settings: Settings, on: Mapping[str, bool]) -> None:
    draft = settings.draft
    local = draft.get("model.moe.num_experts", 1) // draft.get("parallelism.ep", 1)
    if not on["moe_grouped_gemm"] and local > 1:
        draft.refuse(
            "--moe-grouped-gemm", "without it experts run one after the other, which is not modelled"
        )
    settings.put(
        "software.kernels.grouped_gemm",
        "one-kernel" if on["moe_use_legacy_grouped_gemm"] else None,
        "moe_use_legacy_grouped_gemm",
    )
    settings.put(
        "software.kernels.moe_router_fusion",
        on["moe_router_fusion"],
        "moe_router_fusion",
        default=f"{DEFAULT}: off",
    )
    padding = ("moe_router_padding_for_fp8", "moe_router_padding_for_quantization")
    settings.put(
        "software.kernels.expert_rows_padded", False if any(on[name] for name in padding) else None, *padding
    )


def _graphs(settings: Settings, megatron: Megatron) -> None:
    kind = settings.choice(
        "cuda_graph_impl",
        among={one: one for one in ("none", "local", "transformer_engine", "full_iteration")},
        default="none",
    )
    if kind == "none" and settings.flag("external_cuda_graph"):
        kind = "transformer_engine"
    elif kind == "none" and settings.flag("enable_cuda_graph"):
        kind = "local"
    names = ("cuda_graph_impl", "enable_cuda_graph", "external_cuda_graph")
    if settings.draft.get("software.preset") in ("megatron-core-2024", "megatron-core-2025"):
        settings.put("software.host.cuda_graphs", kind != "none", *names, default=f"{DEFAULT}: off")
    if kind in ("local", "transformer_engine"):
        put_scopes(settings, layerwise=kind == "local" and megatron.version < PARTS_SINCE)
    settings.setting(*SCOPE_NAMES), settings.integer("cuda_graph_warmup_steps")


def _offload(settings: Settings) -> None:
    draft = settings.draft
    if settings.flag("optimizer_cpu_offload"):
        share = settings.number("optimizer_offload_fraction", default=1.0)
        if share == 1.0:
            settings.put("training.cpu_offload", True, "optimizer_cpu_offload")
        elif share:
            settings.refuse(
                "optimizer_offload_fraction",
                f"{share}: a part of the optimizer's state on the host is not modelled",
            )
    else:
        settings.number("optimizer_offload_fraction")
    settings.flag("overlap_cpu_optimizer_d2h_h2d"), settings.flag("use_torch_optimizer_for_cpu_offload")
    layers = settings.integer("cpu_offloading_num_layers", default=0) or 0
    settings.flag("cpu_offloading")
    if layers:
        held = draft.get("model.num_layers", 0)
        if layers >= held - 1:
            settings.put("training.activation_offload", True, "cpu_offloading_num_layers")
        else:
            settings.refuse(
                "cpu_offloading_num_layers",
                "activations of some layers on the host are not modelled; of all layers they are",
            )
    settings.refuse_if(
        "fine_grained_activation_offloading", "activations of some modules on the host are not modelled"
    )
    settings.refuse_if(
        "offload_optimizer_states",
        "optimizer state that goes to the host between steps is not modelled; --optimizer-cpu-offload is",
    )
    settings.setting("offload_modules")
    settings.refuse_if("fsdp_double_buffer", "double buffers of FSDP are not modelled")


_CHUNK = "NCCL_P2P_NET_CHUNKSIZE"
_QUIET = ("CUDA_DEVICE_MAX_CONNECTIONS", "NCCL_NVLS_ENABLE")


def put_environment(settings: Settings, environment: Mapping[str, Setting]) -> None:
    """Variables of the environment that decide step time."""
    draft = settings.draft
    texts = {name: one.value for name, one in environment.items()}
    if texts.get("CUDA_LAUNCH_BLOCKING") == "1":
        draft.put("software.host.launch_blocking", True, "CUDA_LAUNCH_BLOCKING=1")
    for name, field in (("NCCL_ALGO", "nccl_algo"), ("NCCL_PROTO", "nccl_proto")):
        if texts.get(name):
            _put_nccl(draft, field, environment[name])
    if texts.get(_CHUNK):
        own = Settings(found={plain_name(_CHUNK): environment[_CHUNK]}, given=settings.given, draft=draft)
        if chunk := own.integer(_CHUNK, least=1):
            draft.put("cluster.message_chunk", f"{chunk} B", f"{_CHUNK}={chunk}")
    for name in _QUIET:
        if name in texts:
            draft.note(f"{name}={texts[name]} makes no difference here; the preset's value stands for it")


def _put_nccl(draft: Draft, field: str, variable: Setting) -> None:
    """What NCCL may choose from; names that it does not know are refused at the line that sets them."""
    name, value = field.upper(), str(variable.value)
    try:
        check_variable(field, value)
    except ValueError as wrong:
        draft.refuse(name, str(wrong).removeprefix(f"{name}: "), line=variable.line, value=value)
        return
    draft.put_software(field, value, f"{name}={value}")
