"""Megatron-LM: launch scripts, lists of arguments, YAML of arguments (ENV_VARS and MODEL_ARGS), of all eras.

Source: NVIDIA/Megatron-LM v2.0 to d98e8a64 (megatron_version.py); its tests/functional_tests/test_cases.
"""

from __future__ import annotations

from dataclasses import replace

from ....hardware.shown import clipped
from .arguments import Launch, doubtful, environment_of
from .cluster_facts import put_machine, put_segment, world_size
from .draft import Draft, Imported
from .importer import Importer, ImportJob
from .launchers import launch_among
from .leftovers import settle
from .megatron_layout import put_layout
from .megatron_model import put_model
from .megatron_software import put_software
from .megatron_version import refuse_strangers, version_of
from .plain_names import plain_name
from .settings import Setting, Settings
from .sources import SourceFile

SIGNS = (
    "tensor-model-parallel-size",
    "pipeline-model-parallel-size",
    "num-attention-heads",
    "micro-batch-size",
    "model-parallel-size",
)
"""Options that only Megatron-LM and frameworks built on it have, in the form that their scripts write."""

SEVERAL = (
    "it stands several times, with other values: a list of arguments has one (or is of several "
    "branches of a script)"
)

_FORKS = {
    "enable_zero_bubble": "the fork's schedules are those of preset megatron-zero-bubble-2023: write them "
    "in a scenario, as in schedule: zb-v",
    "zero_bubble_v_schedule": "the fork's schedules are those of preset megatron-zero-bubble-2023: write "
    "them in a scenario",
    "enable_zbh1_pipeline": "this schedule of a fork is not read; write schedule: zb-h1 in a scenario",
    "patch_primus_pipeline": "this schedule of a fork is not read; write it in a scenario",
    "overlapped_distributed_optimizer": "the distributed optimizer of this fork is not modelled; "
    "Megatron's own is",
    "cpu_optimizer": "it belongs to Megatron-DeepSpeed",
    "moe_use_upcycling": "upcycling is a conversion, and no training step",
    "ddp_num_buckets": "a number of buckets is not modelled; their size is (--ddp-bucket-size)",
}


def _recognises(file: SourceFile) -> bool:
    if file.is_command:
        text = file.command
        return any(f"--{one}" in text for one in SIGNS)
    return "MODEL_ARGS" in file.keys


def arguments_of(job: ImportJob, draft: Draft) -> tuple[Settings, Launch | None, dict[str, Setting]]:
    """The options of a run, its launch where there is one, and its environment."""
    first = job.first(_recognises)
    if first.is_command:
        launch = launch_among(first, job.files, job.given, draft)
        settings = Settings(found=launch.options, given=job.given, draft=draft)
        for one in doubtful(launch):
            if first.kind == "arguments":
                one.refuse(draft, SEVERAL)
            else:
                draft.note(f"{one.name} stands several times; the last one holds")
        return settings, launch, launch.environment
    return _of_document(first, job, draft)


def _of_document(
    first: SourceFile, job: ImportJob, draft: Draft
) -> tuple[Settings, Launch | None, dict[str, Setting]]:
    """The same of a YAML of arguments, and of the scripts beside it that put options behind them."""
    arguments = first.at("MODEL_ARGS")
    if not isinstance(arguments, dict):
        raise ValueError(f"{first.name}: MODEL_ARGS has to be a block of arguments")
    launch = _launch_beside(first, job, draft)
    held = first.at("ENV_VARS")
    named = {key: str(value) for key, value in held.items()} if isinstance(held, dict) else {}
    environment = environment_of(first, named)
    if launch is None:
        found = _document_options(first, arguments, job, {})
        return Settings(found=found, given=job.given, draft=draft), None, environment
    environment |= launch.environment
    told = {name: str(one.value) for name, one in launch.environment.items()}
    found = {} if launch.reads_documents else _document_options(first, arguments, job, told)
    found |= {name: _placed(one, job) for name, one in launch.options.items()}
    return Settings(found=found, given=job.given, draft=draft), launch, environment


def _launch_beside(first: SourceFile, job: ImportJob, draft: Draft) -> Launch | None:
    """What the script beside a YAML starts; None without a script."""
    if not any(one.kind == "shell" for one in job.files):
        return None
    launch = launch_among(first, job.files, job.given, draft)
    if launch.started and not launch.reads_documents:
        file = clipped(launch.started[0], 100)
        raise ValueError(f"{job.name}: {file}, which a script starts, adds options; give it as another file")
    return launch


def _placed(one: Setting, job: ImportJob) -> Setting:
    """An option with the first of the files that names it."""
    file = next((file for file in job.files if file.line_of(one.name)), None)
    return one if file is None else replace(one, file=file.name, line=file.line_of(one.name))


def _document_options(
    first: SourceFile, arguments: dict[str, object], job: ImportJob, told: dict[str, str]
) -> dict[str, Setting]:
    """The arguments of a YAML, with variables put in that are given, or ``told`` by a script. What is then
    false is left out, as launchers do."""
    found = {
        plain_name(name): Setting(
            value=_put_in(value, job, told),
            file=first.name,
            name=name,
            line=first.lines.get(f"MODEL_ARGS.{name}", 0),
        )
        for name, value in arguments.items()
    }
    return {name: one for name, one in found.items() if one.value != "false"}


def _put_in(value: object, job: ImportJob, told: dict[str, str]) -> object:
    """A value with ``${X}`` put in; what stays open is marked."""
    from .shell_expand import Variables

    if not isinstance(value, str) or "$" not in value:
        return value
    variables = Variables(given=job.given.values, found=dict(told))
    text = variables.one('"' + value.replace('"', '\\"') + '"')
    job.given.used.update(variables.used)
    return text


def read_megatron(job: ImportJob) -> Imported:
    """The scenario of a Megatron-LM run.

    Raises:
        ScenarioError: what is asked or refused.
    """
    draft = Draft(framework="megatron-lm", file=job.name)
    settings, launch, environment = arguments_of(job, draft)
    megatron = version_of(settings, job.version)
    draft.version = megatron.shown
    refuse_strangers(settings, megatron)
    for name, why in _FORKS.items():
        settings.refuse_if(name, why)
    nodes, per_node, world = (launch.nodes, launch.per_node, launch.world) if launch else (None, None, None)
    gpus = world_size(settings, nodes, per_node, world)
    put_model(settings)
    put_layout(settings, megatron, gpus)
    put_software(settings, megatron, environment)
    put_machine(settings)
    put_segment(settings, launch.segment if launch else None)
    settle(settings, "megatron-lm")
    return draft.finished()


IMPORTER = Importer(
    name="megatron-lm",
    title="Megatron-LM",
    source="NVIDIA/Megatron-LM megatron/training/arguments.py, v2.0 to d98e8a64",
    recognises=_recognises,
    read=read_megatron,
    versioned=True,
    order=60,
)
