"""``stepsim init``: five questions, and a scenario file that runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from ..hardware.limits import LARGEST, MOST_GPUS
from .output import output_file, save_text, wrote
from .progress import progress

if TYPE_CHECKING:
    from ..sim.scenario.models import Scenario

T = TypeVar("T")

BATCH_TOKENS = 4_194_304
"""Tokens of a step where nobody says: about what models of 7 B to 70 B parameters are trained with (Llama 2:
4 million, arXiv:2307.09288 section 2.2)."""

MOST_PER_GPU = 64
"""Sequences of a step for each GPU where nobody says: on a few GPUs those tokens would take an hour."""

NETWORKS = {
    "ampere": "ib-hdr200-x8",
    "hopper": "ib-ndr400-x8",
    "blackwell": "ib-ndr400-x8",
    "cdna3": "roce-400-x8",
    "cdna4": "roce-400-x8",
}
"""By a GPU's architecture, the network that most published clusters of it have."""
ANY_NETWORK = "roce-100-x1"
"""The least of the catalogue, for GPUs that are mostly sold without a fast one."""


def init(
    model: Annotated[
        str | None, typer.Option("--model", metavar="NAME", help="Of stepsim list models, or a config.json.")
    ] = None,
    gpu: Annotated[str | None, typer.Option("--gpu", metavar="NAME", help="Of stepsim list gpus.")] = None,
    gpus: Annotated[int | None, typer.Option("--gpus", min=1, max=MOST_GPUS, help="GPUs of the job.")] = None,
    seq_length: Annotated[
        int | None, typer.Option("--seq-length", min=1, max=LARGEST, help="Tokens of a sequence.")
    ] = None,
    software: Annotated[
        str | None, typer.Option("--software", metavar="NAME", help="Of stepsim list software.")
    ] = None,
    interconnect: Annotated[
        str | None,
        typer.Option(
            "--interconnect",
            metavar="NAME",
            help="Of stepsim list interconnects; default: the GPU's usual one.",
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FILE.yaml", help="The scenario to write.")
    ] = Path("scenario.yaml"),
) -> None:
    """Ask for model, GPU, number of GPUs, sequence length and software, and write a scenario that fits.

    What is given as an option is not asked for. The layout is the first that fits; plan finds the best.
    """
    from ..hardware.gpus import gpu_called, gpu_names
    from ..sim.scenario.model.catalogue import model_names
    from ..sim.scenario.software.presets import software_names

    output_file("--out", out, (".yaml", ".yml"), [])
    if out.exists():
        raise ValueError(
            f"--out {out}: there is a file of this name, which may hold your changes; choose another"
        )
    models, presets = model_names(), software_names()
    model = model or _asked(f"Model ({_some(models)}, or a config.json)", "llama3-8b", _known_model)
    gpu = gpu_called(gpu) if gpu else _asked(f"GPU ({_some(gpu_names())})", "H100-SXM5-80GB", gpu_called)
    gpus = gpus or _asked("How many GPUs", "8", _count)
    seq_length = seq_length or _asked("Tokens of a sequence", "8192", _count)
    software = software or _asked(f"Software ({_some(presets)})", "megatron-core-2025", _known_software)
    document = _document(model, gpu, gpus, seq_length, software, interconnect)
    with progress() as status:
        status("looking for a layout that fits")
        scenario = _fitting(document)
    save_text(out, _written(document, scenario))
    wrote("scenario", out)
    typer.echo(f"next: stepsim run {out}; stepsim plan {out}")


def _asked(question: str, default: str, known: Callable[[str], T]) -> T:
    """The answer as ``known`` returns it; asked again, with the reason, where that raises a ValueError.

    An empty answer is the default, which is text since ``known`` reads it as it reads what was typed.
    """

    def checked(answer: str) -> T:
        try:
            return known(answer)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None

    answer: T = typer.prompt(question, default=default, value_proc=checked)
    return answer


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"{text!r} is not a number from 1 up")
    return int(text)


def _known_model(name: str) -> str:
    from ..sim.scenario.model.catalogue import get_model

    if not name.endswith(".json"):
        get_model(name)
    return name


def _known_software(name: str) -> str:
    from ..sim.scenario.software.presets import get_software

    get_software(name)
    return name


def _some(names: tuple[str, ...]) -> str:
    return ", ".join(names[:4]) + ", ..."


def _document(
    model: str, gpu: str, gpus: int, seq_length: int, software: str, interconnect: str | None
) -> dict[str, Any]:
    """The scenario without a layout."""
    from ..hardware.gpus import get_gpu
    from ..hardware.interconnect import interconnect_called
    from ..hardware.node import node_for

    sold = get_gpu(gpu)
    per_node = min(gpus, node_for(sold).max_gpus)
    inside = gpus <= max(per_node, sold.nvlink_domain)
    usual = None if inside else NETWORKS.get(sold.architecture, ANY_NETWORK)
    network = interconnect_called(interconnect) if interconnect else usual
    return {
        "model": model,
        "cluster": {
            "gpu": gpu,
            "gpus": gpus,
            "gpus_per_node": per_node,
            **({"interconnect": network} if network else {}),
        },
        "training": {
            "global_batch": min(max(1, BATCH_TOKENS // (seq_length * gpus)), MOST_PER_GPU) * gpus,
            "micro_batch": 1,
            "seq_length": seq_length,
            "precision": "bf16" if "bf16" in sold.peak_flops else "fp16",
        },
        "software": software,
    }


def _fitting(document: dict[str, Any]) -> Scenario:
    """The scenario under the first layout that fits. ValueError where none does."""
    from ..sim.plan.questions.first_layout import first_layout

    found = first_layout(document)
    if found is None:
        what = f"{document['model']} on {document['cluster']['gpus']} {document['cluster']['gpu']}"
        raise ValueError(f"{what}: no layout fits in memory; take more GPUs, or larger ones")
    return found


def _written(document: dict[str, Any], scenario: Scenario) -> str:
    """The file, with the layout that was found and a line for editors."""
    import yaml

    parallel, training = scenario.parallelism, scenario.training
    layout: dict[str, Any] = {"tp": parallel.tp, "pp": parallel.pp, "zero": parallel.zero}
    layout |= {"ep": parallel.ep} if parallel.ep > 1 else {}
    layout |= {"sequence_parallel": True} if parallel.tp > 1 else {}
    if scenario.model.num_layers % parallel.pp:
        layout["stage_split"] = parallel.stage_split
    whole = {
        "model": document["model"],
        "cluster": document["cluster"],
        "parallelism": layout,
        "training": {**document["training"], "recompute": str(training.recompute)},
        **({"schedule": "1f1b"} if parallel.pp > 1 else {}),
        "software": document["software"],
    }
    text = yaml.safe_dump(whole, sort_keys=False, default_flow_style=False)
    return (
        "# The layout is the first that fits; the best: stepsim plan. "
        "Batch and network are usual ones: put yours.\n"
        f"{text}"
    )
