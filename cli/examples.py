"""Examples of every command, which stand at the end of its help; the tests read each as the command would."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import typer

_JOB = "--given gpus=64 --given gpu=h100 --given interconnect=ib-ndr400-x8"
"""What a launch script does not say."""

EXAMPLES: dict[str, tuple[str, ...]] = {
    "run": (
        "run llama3.1-405b-16k --timeline step.svg",
        "run train.yaml --set parallelism.tp=4 --json",
        f"run train.sh {_JOB}",
        "run llama3.1-405b-16k --fault 'gpu_throttle gpu/37 slow_factor=1.3'",
        "run shared-fabric.yaml --placements 20",
    ),
    "replay": ("replay program.json.gz --timeline step.svg", "replay traces/ --cluster train.yaml"),
    "plan": (
        "plan llama3-70b-h100 --top 5",
        "plan train.yaml --fix parallelism.tp=8 --vary cluster.gpus=64,128",
        "plan train.yaml --find gpus",
        f"plan train.sh {_JOB} --emit megatron-lm -o better.sh",
    ),
    "sweep": ("sweep train.yaml --set cluster.gpus=64,128,256 --picture scaling.svg",),
    "sensitivity": ("sensitivity train.yaml --picture tornado.svg",),
    "compare": (
        "compare old.yaml new.yaml",
        "compare llama3.1-405b-16k llama3.1-405b-16k --set-b training.recompute=full",
    ),
    "explain": ("explain trace.json.gz", "explain traces/ train.yaml --waterfall why.svg"),
    "stragglers": ("stragglers operations.parquet --heat-map workers.svg",),
    "import": (
        "import train.sh --given gpus=64 --given gpu=h100 --given interconnect=ib-ndr400-x8 -o train.yaml",
    ),
    "export": ("export train.yaml --to megatron-lm",),
    "memory": ("memory llama3-70b-h100 --stage 0", "memory train.yaml --picture memory.svg"),
    "cluster": ("cluster llama3.1-405b-16k --picture topology.svg",),
    "faults": (
        "faults llama3.1-405b-16k",
        "faults train.yaml -n 20 --html weeks.html",
        "faults --cases cases.md --straggler-logs logs",
    ),
    "validate": ("validate cases.yaml --picture errors.svg", "validate --nccl all_reduce.log"),
    "collective": (
        "collective all_reduce --size 1GB --gpus 64",
        "collective all_to_all --cluster deepseek-v3-2048-h800 --gpus 64",
    ),
    "schema": ("schema", "schema --markdown"),
    "list": ("list gpus", "list gpus h100-sxm5", "list software megatron-core-2025"),
    "serve": ("serve", "serve --port 8321 --no-browser"),
    "doctor": ("doctor", "doctor --json"),
    "init": ("init", "init --model llama3-8b --gpu h100 --gpus 64 -o train.yaml"),
    "calibrate steps": (
        "calibrate steps own.yaml --gpu H100-SXM5-80GB",
        "calibrate steps --own run.yaml --out steps.profile.yaml",
    ),
    "calibrate collectives": ("calibrate collectives --spawn 8",),
    "calibrate fit": ("calibrate fit kernels.csv all_reduce.log --out mine.profile.yaml",),
    "calibrate report": ("calibrate report mine.profile.yaml train.yaml",),
    "calibrate residuals": ("calibrate residuals cases.yaml",),
    "calibrate kernels": ("calibrate kernels --budget 10min --out kernels.csv",),
    "calibrate layer": ("calibrate layer train.yaml",),
    "schedule compare": ("schedule compare -p 8 -m 32 --picture schedules.svg",),
    "schedule gallery": ("schedule gallery schedules.md",),
    "hardware check": ("hardware check machine.yaml",),
}
"""Examples of each command, without the leading word ``stepsim``."""


def with_examples(app: typer.Typer, group: str = "") -> None:
    """Give every command of ``app``, and of its groups, its examples as the end of its help."""
    for one in app.registered_commands:
        lines = EXAMPLES.get(f"{group}{one.name}", ())
        if lines:
            one.epilog = "\b\nExamples:\n" + "\n".join(f"  stepsim {line}" for line in lines)
    for inner in app.registered_groups:
        if inner.typer_instance is not None:
            with_examples(inner.typer_instance, f"{inner.name} ")
