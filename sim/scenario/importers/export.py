"""A scenario as another framework's file: written, read back, and refused where it reads back as another run.

So the round trip is the identity for all that is written. Compared are the model, the layout, the work of a
step and the schedule; the software's facts where the file reads back as the same preset. Which GPU and
network, a title, faults and weeks are in no framework's file.
"""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import Any

from ..chunk_layers import chunk_layers
from ..errors import Mark, Problem, ScenarioError
from ..load import scenario_from_document
from ..machine import gpu_as_sold
from ..models import Scenario
from ..software.software import GROUP_OF
from .importer import Exporter, ImportJob
from .registry import EXPORTERS, IMPORTERS, exporter_of
from .settings import Given
from .sources import source_of

_BLOCKS = ("model", "parallelism", "training", "schedule", "schedule_options")
_UNSAID = (
    "model.name",
    "training.tokens",
    "training.routing",
    "training.loss_scale",
    "model.make_vocab_size_divisible_by",
    "model.padded_vocab_size",
)
_SPLIT = "parallelism.stage_split"


def export(scenario: Scenario, framework: str, version: str | None = None) -> str:
    """The text of the framework's file that means this scenario.

    Args:
        scenario: what to write.
        framework: one of ``EXPORTERS.names()``.
        version: of the framework, as its releases are called; None: the newest that is known.

    Raises:
        ValueError: no such framework, or a version where its file is the same for all.
        ScenarioError: by field, what a file of that framework cannot say.
    """
    exporter = exporter_of(framework, version)
    version = version or exporter.version_for(scenario)
    text = exporter.write(scenario, version)
    try:
        read = _read_back(text, scenario, exporter, version)
    except ScenarioError as error:
        raise ScenarioError([_refusal(one.path, one.message, framework) for one in error.problems]) from None
    problems = [
        _refusal(path, f"the scenario has {_shown(said)}, and its file means {_shown(back)}", framework)
        for path, said, back in differences(scenario, read)
    ]
    if problems:
        raise ScenarioError(problems)
    return text


def left_out(text: str, scenario: Scenario, framework: str, version: str | None = None) -> list[str]:
    """What ``text``, the exported file, reads back as otherwise since no file of the framework says it: a
    sentence for each, of the software's preset, of a router that is forced to balance, and of how the job
    lies on its machine."""
    exporter = EXPORTERS.get(framework)
    read = _read_back(text, scenario, exporter, version or exporter.version_for(scenario))
    mine, theirs = _plain(scenario, "cluster"), _plain(read, "cluster")
    pairs = [
        ("software.preset", scenario.software.name, read.software.name),
        ("training.routing", scenario.training.routing, read.training.routing),
    ] + [
        (path, mine.get(path), theirs.get(path))
        for path in sorted(mine.keys() | theirs.keys())
        if path.split(".")[1] not in _ASKED_AGAIN
    ]
    return [
        f"a file of {framework} does not say {path}: {_shown(said)} reads back as {_shown(back)}, and "
        "is predicted so"
        for path, said, back in pairs
        if said != back
    ]


_ASKED_AGAIN = ("gpu", "interconnect", "price_per_gpu_hour", "currency", "price_list")
"""Fields of the cluster that ``import`` asks for, and money."""

_ANY_NETWORK = "ib-ndr400-x8"
"""What stands for a network of the user's own while a file is read back; nothing compared reads it."""


def _shown(value: Any) -> str:
    """A value in a few words, of a list how often each entry stands in a row.

    >>> _shown([0, 0, 0] + 58 * [1]), _shown([1, 0, 1]), _shown(None)
    ('[3 x 0, 58 x 1]', '[1, 0, 1]', 'unset')
    """
    if value is None:
        return "unset"
    if isinstance(value, list | tuple):
        rows = ((entry, len([*row])) for entry, row in groupby(value))
        value = (
            f"[{', '.join(f'{number} x {entry}' if number > 1 else str(entry) for entry, number in rows)}]"
        )
    return f"{value!s:.80}"


def _read_back(text: str, scenario: Scenario, exporter: Exporter, version: str | None) -> Scenario:
    """The scenario that the exported file is imported as, on the same machine."""
    file = source_of(text, Path(f"exported{exporter.suffix}"))
    cluster = scenario.cluster
    given = {
        "gpu": cluster.gpu if isinstance(cluster.gpu, str) else gpu_as_sold(cluster).profile_of,
        "interconnect": cluster.interconnect if isinstance(cluster.interconnect, str) else _ANY_NETWORK,
        "gpus_per_node": str(cluster.gpus_per_node),
    }
    job = ImportJob(files=(file,), given=Given(values=given), version=version)
    document = IMPORTERS.get(exporter.name).read(job).document
    return scenario_from_document(_on_own_machine(document, scenario), "exported")


def _on_own_machine(document: dict[str, Any], scenario: Scenario) -> dict[str, Any]:
    """``document`` with the GPU, the host and the network that a user describes in place of the ones of the
    catalogue that stood for them: no file of a framework says which they are."""
    said = scenario.to_document()["cluster"]
    own = {name: said[name] for name in ("gpu", "interconnect") if isinstance(said.get(name), dict)}
    if isinstance(said.get("gpu"), dict) and "node" in said:
        own["node"] = said["node"]
    return document | {"cluster": document["cluster"] | own}


def differences(scenario: Scenario, read: Scenario) -> list[tuple[str, Any, Any]]:
    """Fields in which two scenarios are different runs, with both values."""
    found: list[tuple[str, Any, Any]] = []
    for block in _BLOCKS:
        first, second = _plain(scenario, block), _plain(read, block)
        if block == "model":
            first, second = _with_layers(first, scenario), _with_layers(second, read)
        if block == "parallelism":
            first[_SPLIT], second[_SPLIT] = _layers_of(scenario), _layers_of(read)
        found += [
            (path, first.get(path), second.get(path))
            for path in sorted(first.keys() | second.keys())
            if path not in _UNSAID and first.get(path) != second.get(path)
        ]
    if scenario.model.embedding_rows != read.model.embedding_rows:
        found.append(("model.padded_vocab_size", scenario.model.embedding_rows, read.model.embedding_rows))
    if scenario.cluster.gpus != read.cluster.gpus:
        found.append(("cluster.gpus", scenario.cluster.gpus, read.cluster.gpus))
    if scenario.software.name == read.software.name:
        mine, theirs = _software(scenario), _software(read)
        unused = _unused(scenario) & _unused(read)
        found += [
            (f"software.{GROUP_OF[name]}.{name}", mine[name], theirs[name])
            for name in mine
            if name not in unused and mine[name] != theirs[name]
        ]
    return found


def _layers_of(scenario: Scenario) -> list[int] | str:
    """The layers of each chunk, so that a rule and the list that it means are one; the rule where costs
    decide."""
    return chunk_layers(scenario) or str(scenario.parallelism.stage_split)


def _with_layers(said: dict[str, Any], scenario: Scenario) -> dict[str, Any]:
    """The fields of a model with the layers that have experts one by one, so that first layers without them
    and a list that says the same are one."""
    model = scenario.model
    if model.moe is None:
        return said
    layers = [int(model.has_experts(layer)) for layer in range(model.num_layers)]
    return {k: v for k, v in said.items() if k != _DENSE} | {_FREQUENCY: layers}


_DENSE, _FREQUENCY = "model.moe.num_dense_layers", "model.moe.layer_freq"

_EXPERTS = (
    "moe_dispatcher",
    "moe_shared_expert_overlap",
    "moe_a2a_overlap",
    "moe_router_fusion",
    "grouped_gemm",
    "fused_grouped_mlp",
    "expert_rows_padded",
    "expert_biases",
    "expert_operators",
    "weighted_rows",
    "split_expert_gate",
    "arrivals_indexed_by_torch",
    "arrivals_padded",
    "experts_gather_tokens",
    "router_loss",
    "replays_exchanges",
    "experts_whole",
    "deepep_elastic",
)
_REPLICAS = ("overlap_grad_reduce", "reduction", "bucket_elements")
_EIGHT_BITS = (
    "fp8_scaling",
    "fp8_parameters",
    "fp8_activations",
    "fp8_dispatch",
    "fp8_attention",
    "fused_amax",
    "fused_quantise",
    "caches_mlp_weights",
    "scales_laid_out",
    "hadamard_apart",
    "stochastic_casts",
    "untuned_casts",
    "fused_grouped_mlp",
    "expert_rows_padded",
)


def _software(scenario: Scenario) -> dict[str, Any]:
    """The facts of the software by their names, with the size that a bucket has."""
    software = scenario.software
    facts = {name: getattr(getattr(software, group), name) for name, group in GROUP_OF.items()}
    return facts | {"bucket_elements": software.gradients.bucket(scenario.parallelism.dp)}


def _unused(scenario: Scenario) -> set[str]:
    """Facts of the software that nothing in this run reads, so that two values are one run."""
    par, unused = scenario.parallelism, set[str]()
    alone = par.dp * par.cp == 1
    for names, idle in (
        (_REPLICAS, alone),
        (("overlap_param_gather",), alone or par.zero == 0),
        (("zero1_broadcasts",), alone or par.zero != 1),
        (("norm_casts_blocks",), scenario.training.precision != "mxfp8"),
        (("fused_gate",), scenario.model.mlp != "swiglu" or not scenario.software.kernels.fused_activation),
        (
            ("gelu_by_operators",),
            scenario.model.mlp != "gelu" or scenario.software.kernels.fuses_activation(gated=False),
        ),
        (("update_threads",), not scenario.training.offloads_state),
        (("tp_comm_overlap",), not par.sequence_parallel),
        (_EXPERTS, scenario.model.moe is None),
        (("arrivals_indexed_by_torch",), scenario.software.exchange.moe_dispatcher != "deepep"),
        (("expert_biases",), not scenario.model.biases),
        (("clamps_gate_apart",), not scenario.model.clamped_gate),
        (("norm_parts_in_turn", "heads_distributed"), not scenario.model.qk_norm),
        (
            ("norm_grad_by_columns",),
            not scenario.software.kernels.sums_norm_by_columns(rms_norm=scenario.model.norm == "rmsnorm"),
        ),
        (("hadamard_apart", "stochastic_casts", "untuned_casts"), scenario.training.precision != "nvfp4"),
        (("moe_shared_expert_overlap",), not (scenario.model.moe and scenario.model.moe.num_shared_experts)),
        (("cp_comm",), par.cp == 1),
        (("point_to_point",), par.pp == 1),
        (_EIGHT_BITS, scenario.training.precision not in ("fp8", "mxfp8", "nvfp4")),
        (("amax_group",), not _scales_later(scenario)),
        (
            ("attention_amax",),
            not (scenario.software.kernels.fp8_attention and scenario.training.precision == "nvfp4"),
        ),
        (("bucket_elements",), not scenario.software.gradients.overlap_grad_reduce),
    ):
        unused |= set(names) if idle else set()
    return unused


def _scales_later(scenario: Scenario) -> bool:
    """Whether 8-bit tensors are scaled by maxima of earlier steps, which ranks may have to agree on."""
    delayed = scenario.software.kernels.fp8_scaling == "delayed"
    return delayed and scenario.training.precision == "fp8" and scenario.world_size > scenario.parallelism.pp


def _plain(scenario: Scenario, block: str) -> dict[str, Any]:
    """A block as dotted fields and values."""
    value = getattr(scenario, block)
    if not hasattr(value, "model_dump"):
        return {block: value}
    flat: dict[str, Any] = {}

    def walk(inner: Any, path: str) -> None:
        if isinstance(inner, dict):
            for key, entry in inner.items():
                walk(entry, f"{path}.{key}")
        elif inner is not None:
            flat[path] = inner

    walk(value.model_dump(mode="json"), block)
    return flat


def _refusal(path: str, message: str, framework: str) -> Problem:
    return Problem(mark=Mark(file="scenario"), path=path, message=f"{framework} cannot say this: {message}")
