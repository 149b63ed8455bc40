"""A scenario as torchtitan's TOML of v0.2. Source: as of the importer (torchtitan.py)."""

from __future__ import annotations

from ..chunk_layers import chunk_layers
from ..errors import Mark, Problem, ScenarioError
from ..model.catalogue import catalogue_fields, model_names
from ..model.model import Model
from ..models import Scenario
from .importer import Exporter
from .torchtitan import flavors
from .torchtitan_layout import SCHEDULES, stage_layers
from .torchtitan_software import KEPT_BY_QWEN3

_UNSEEN = {"name", "padded_vocab_size", "make_vocab_size_divisible_by"}


def write_toml(scenario: Scenario, version: str | None) -> str:
    """The TOML; ``version`` other than v0.1 and v0.2 is refused, since others have other tables."""
    if version is not None and not version.lstrip("v").startswith(("0.1", "0.2")):
        raise ValueError(f"torchtitan {version}: TOML of v0.1 and v0.2 is written; say --to-version v0.2")
    name, flavor = _flavor(scenario)
    par, training, software = scenario.parallelism, scenario.training, scenario.software
    shard = par.shard_ranks // par.cp
    looped = par.pp > 1
    compiled = software.kernels.cross_entropy == "compiled-torch"
    parts = [part for part, on in (("model", software.kernels.torch_compile), ("loss", compiled)) if on]
    tables: dict[str, dict[str, object]] = {
        "model": {"name": name, "flavor": flavor},
        "training": {"local_batch_size": training.micro_batch * (scenario.num_microbatches if looped else 1),
                     "global_batch_size": training.global_batch, "seq_len": training.seq_length},
        "parallelism": {"data_parallel_replicate_degree": par.dp // shard if shard else 1,
        "data_parallel_shard_degree": shard,
                        "tensor_parallel_degree": par.tp, "pipeline_parallel_degree": par.pp,
                        "context_parallel_degree": par.cp},
        "activation_checkpoint": _recompute(scenario),
        "compile": {"enable": bool(parts), "components": parts},
    }  # fmt: skip
    if scenario.model.moe is not None:
        tables["parallelism"] |= {"expert_parallel_degree": par.ep, "expert_tensor_parallel_degree": par.etp}
    if looped:
        tables["parallelism"] |= _pipeline(scenario)
    if par.tp > 1:
        tables["parallelism"]["enable_async_tensor_parallel"] = (
            software.exchange.tp_comm_overlap and software.kernels.torch_compile
        )
    tables["parallelism"]["fsdp_reshard_after_forward"] = software.sharding.reshard_after_forward
    if par.cp > 1:
        tables["parallelism"]["context_parallel_rotate_method"] = (
            "alltoall" if software.exchange.cp_comm == "p2p" else "allgather"
        )
    if software.name.startswith("torchtitan"):
        tables["optimizer"] = {"implementation": software.kernels.optimizer_implementation}
    if training.precision == "fp8":
        tables["model"]["converters"] = ["float8"]
        tables["quantize.linear.float8"] = {"enable_fsdp_float8_all_gather": software.kernels.fp8_parameters}
    elif training.precision == "mxfp8":
        tables["model"]["converters"] = ["mx"]
    elif training.precision == "fp32":
        tables["training"]["mixed_precision_param"] = "float32"
    return _toml(scenario, tables)


def _toml(scenario: Scenario, tables: dict[str, dict[str, object]]) -> str:
    machine = f"{scenario.cluster.gpus} {scenario.cluster.gpu_name}"
    lines = [f"# torchtitan v0.2, for {machine}. Written by stepsim export."]
    for table, entries in tables.items():
        lines += ["", f"[{table}]", *(f"{key} = {_value(value)}" for key, value in entries.items())]
    return "\n".join(lines) + "\n"


def _value(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    return f'"{value}"' if isinstance(value, str) else str(value)


def _flavor(scenario: Scenario) -> tuple[str, str]:
    """The name and flavor whose shape the model is."""
    mine = scenario.model.model_dump(exclude=_UNSEEN)
    for name, kinds in flavors().items():
        for flavor, fields in kinds.items():
            preset = fields.get("preset")
            base = catalogue_fields(preset) if preset in model_names() else {}
            model = Model.model_validate(
                {**base, **{key: value for key, value in fields.items() if key != "preset"}}
            )
            if model.model_dump(exclude=_UNSEEN) == mine:
                return name, flavor
    message = "torchtitan cannot say this: models are flavors in its Python, and none has this shape"
    raise ScenarioError([Problem(mark=Mark(file="scenario"), path="model", message=message)])


def _recompute(scenario: Scenario) -> dict[str, object]:
    recompute = scenario.training.recompute
    if recompute in ("none", "full"):
        return {"mode": recompute}
    if recompute == "op_selective" or (not isinstance(recompute, str) and recompute.keep == KEPT_BY_QWEN3):
        return {"mode": "selective", "selective_ac_option": "op"}
    every = None if isinstance(recompute, str) else recompute.every
    return {"mode": "selective", "selective_ac_option": str(every or 2)}


def _pipeline(scenario: Scenario) -> dict[str, object]:
    titles = {"1f1b": "1F1B", "gpipe": "GPipe", "interleaved": "Interleaved1F1B",
    "looped-bfs": "LoopedBFS", "interleaved-zb": "InterleavedZeroBubble",
              "zb-v": "ZBVZeroBubble", "dualpipev": "DualPipeV"}  # fmt: skip
    par = scenario.parallelism
    entries: dict[str, object] = {
        "pipeline_parallel_schedule": titles.get(scenario.schedule, "1F1B"),
        "pipeline_parallel_microbatch_size": scenario.training.micro_batch,
    }
    default = SCHEDULES.get(str(entries["pipeline_parallel_schedule"]).lower(), ("", 1))[1]
    if par.vpp != default:
        entries["pipeline_parallel_layers_per_stage"] = -(
            -(scenario.model.num_layers + 2) // par.virtual_stages
        )
    wanted, layers = chunk_layers(scenario), scenario.model.num_layers
    for ends in ((1, 1), (0, 0), (1, 0), (0, 1)):
        if stage_layers(layers, par.virtual_stages, ends) == wanted:
            entries |= {
                "pipeline_parallel_first_stage_less_layers": ends[0],
                "pipeline_parallel_last_stage_less_layers": ends[1],
            }
            break
    return entries


EXPORTER = Exporter(name="torchtitan", title="torchtitan", suffix=".toml", write=write_toml, versioned=True)
