"""Scripts that start scripts: options of all of them hold, as when bash runs them, and the last one wins."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from importing import at, imported, refused, scenario

from stepsim.sim.scenario.importers.settings import UNKNOWN
from stepsim.sim.scenario.importers.shell import read_script

SIZES = """\
declare -A SIZES=(
    [small]="8 1024"
    [large]="16 2048"   # layers and width
)
pick() {
    local -n table=$1
    if [[ -v table[$2] ]]; then local found=(${table[$2]}); fi
    export LAYERS=${LAYERS:-${found[0]}} WIDTH=${found[1]}
}
pick SIZES $MODEL
"""
LAUNCH = """\
#!/bin/bash
source "./sizes.conf"
OPTIONS="${OPTIONS:-} --num-layers ${LAYERS} --hidden-size $WIDTH"
if [[ $# -gt 0 ]]; then OPTIONS="$OPTIONS $@"; fi
if [[ ! "$OPTIONS" =~ "--seq-length" ]]; then OPTIONS="$OPTIONS --seq-length 512"; fi
if [[ $PR == fp8 ]]; then OPTIONS="$OPTIONS --fp8-format e4m3"; fi
export COMMAND="./prog.py $OPTIONS"
bash <<EOF
bash -c \\\\\\${COMMAND}
EOF
"""
RUN = "export MODEL=large PR=bf16\nPR=fp8 LAYERS=4 bash ./launch.sh --hidden-size 4096 --scope attn moe\n"


def words_of_bash(folder: Path) -> list[str]:
    """What bash starts, from ``prog.py``, which prints its words."""
    program = folder / "prog.py"
    program.write_text("#!/bin/bash\nprintf '%s\\0' \"$@\"\n")
    program.chmod(0o755)
    made = subprocess.run(
        ["bash", "--norc", "run.sh"],
        cwd=folder,
        capture_output=True,
        check=True,
        env={"PATH": os.environ["PATH"]},
    )
    return made.stdout.decode().split("\0")[:-1]


@pytest.mark.parametrize("run", [RUN, RUN.replace("large", "small"), RUN.replace("LAYERS=4 ", "")])
def test_a_script_that_starts_a_script_is_followed_as_bash_would(run: str, tmp_path: Path) -> None:
    files = {"run.sh": run, "launch.sh": LAUNCH, "sizes.conf": SIZES}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    command = read_script(run, {}, {name: text for name, text in files.items() if name != "run.sh"}).launch
    assert command is not None
    assert list(command.words[1:]) == words_of_bash(tmp_path)


def test_what_a_started_script_sets_is_gone_after_it() -> None:
    text = "TP=2 bash launch.sh\ntrain.py --tp ${TP:-1} --pp ${PP:-1}\n"
    found = read_script(text, {}, {"launch.sh": "PP=4\nexport PP\necho $TP\n"}).launch
    assert found is not None
    assert found.words == ("train.py", "--tp", "1", "--pp", "1")


def test_a_script_that_starts_itself_ends() -> None:
    assert read_script("bash run.sh --a 1\n", {}, {"run.sh": "bash run.sh --a 1\n"}).started == ["run.sh"]


def test_an_open_value_is_one_word_whatever_it_is_called() -> None:
    command = read_script('train.py --save $(dirname "$(readlink -f "$0")")/x --tp 2', {}).launch
    assert command is not None
    assert len(command.words) == 5
    assert len(UNKNOWN.findall(command.words[2])) == 1


def test_what_is_open_in_a_command_that_a_shell_reads_again_stays_whole() -> None:
    """Its name is cut off after some letters, brackets and quotes of it with the rest."""
    text = (
        'DATA="--data $(python3 /a/rather/long/path/of/a/tool/make_data_config.py -p $SETS) --cache x"\n'
        'srun bash -c "numactl train.py --tp 2 $DATA"\n'
    )
    command = read_script(text, {}).launch
    assert command is not None
    assert command.words[-5:-3] == ("2", "--data")
    assert command.words[-1] == "x"


@pytest.mark.parametrize(
    ("header", "variable", "value"),
    [
        ("--nodes=32", "SLURM_NNODES", "32"),
        ("-N 32", "SLURM_JOB_NUM_NODES", "32"),
        ("--gpus-per-node=4", "SLURM_GPUS_PER_NODE", "4"),
        ("--gpus-per-node=h100:4", "SLURM_GPUS_ON_NODE", "4"),
        ("--nodes=2 --ntasks-per-node=8", "SLURM_NTASKS", "16"),
    ],
)
def test_a_job_has_what_its_header_asks_for_in_its_environment(
    header: str, variable: str, value: str
) -> None:
    command = read_script(f"#SBATCH {header}\ntrain.py --tp ${variable}\n", {}).launch
    assert command is not None
    assert command.words[-1] == value
    given = read_script(f"#SBATCH {header}\ntrain.py --tp ${variable}\n", {variable: "3"}).launch
    assert given is not None
    assert given.words[-1] == "3"


def test_hosts_that_no_job_has_are_no_number() -> None:
    """Python makes no integer of more than 4,300 digits."""
    header = f"#SBATCH --nodes={'9' * 5000} --ntasks-per-node=8"
    command = read_script(f"{header}\ntrain.py --tp ${{SLURM_NTASKS}}\n", {}).launch
    assert command is not None
    assert "SLURM_NTASKS" in command.words[-1]


def test_a_variable_of_arithmetic_may_be_given() -> None:
    """It has no dollar sign there, and stands in the script all the same."""
    trains = TRAIN.partition("--nproc_per_node 8 ")[2]
    text = f"HOSTS=$(wc -l < hosts)\nmpiexec -n $((HOSTS * 8)) python {trains}"
    made = imported({"run.sh": text}, {"HOSTS": "4"})
    assert at(made.document, "cluster.gpus") == 32


@pytest.mark.parametrize(
    ("option", "hosts"),
    [
        ("-ppn 4", 4),
        ("-npernode 4", 4),
        ("", None),
        ("-ppn 3", None),
        ("-ppn 0", None),
        ("-ppn ²", None),
        (f"-ppn {'4' * 5000}", None),
    ],
)
def test_ranks_of_a_host_are_those_of_mpi(option: str, hosts: int | None) -> None:
    text = f"mpiexec -n 16 {option} python {TRAIN.partition('--nproc_per_node 8 ')[2]}"
    made = imported({"run.sh": text}, {"gpus_per_node": "8"} if hosts is None else {}).document
    assert at(made, "cluster.gpus") == 16
    assert at(made, "cluster.gpus_per_node") == (hosts or 8)


ARGUMENTS = """\
ENV_VARS: {CUDA_DEVICE_MAX_CONNECTIONS: 1}
MODEL_ARGS:
  --tensor-model-parallel-size: ${TP}
  --pipeline-model-parallel-size: 1
  --num-layers-per-virtual-pipeline-stage: ${LAYERS_PER_VP}
  --expert-model-parallel-size: ${EP}
  --use-distributed-optimizer: true
  --micro-batch-size: ${MBS}
  --global-batch-size: 256
  --num-layers: 16
  --hidden-size: 2048
  --num-attention-heads: 16
  --seq-length: 4096
  --max-position-embeddings: 4096
  --vocab-size: 32000
  --num-experts: 64
  --moe-ffn-hidden-size: 1024
  --moe-router-topk: 8
  --moe-grouped-gemm: true
  --moe-token-dispatcher-type: alltoall
  --moe-router-pre-softmax: false
  --bf16: true
"""
QUERY = """\
#!/bin/bash
LAYERS_PER_VP=false
OPTIONS=$(yq '.MODEL_ARGS | to_entries | .[] | select(.value != "false") |
    [.key + " " + .value] | join("")' ${FILE} | tr '\\n' ' ')
OPTIONS="$OPTIONS $@"
if [[ $(yq '.MODEL_ARGS."--seq-length"' $FILE) -gt 2048 ]]; then OPTIONS="$OPTIONS --use-flash-attn"; fi
if [[ $PR == mxfp8 ]]; then OPTIONS="$OPTIONS --fp8-recipe mxfp8 --fp8-format e4m3"; fi
sbatch <<EOF
#SBATCH --nodes=${NNODES}
#SBATCH --ntasks-per-node=8
srun bash -c "python pretrain_gpt.py $OPTIONS"
EOF
"""
GRAPHS = "--cuda-graph-impl transformer_engine --cuda-graph-scope attn moe_router moe_preprocess"
START = f"PR=mxfp8 TP=2 EP=8 MBS=2 NNODES=2 bash ./launch.sh {GRAPHS} --global-batch-size 512\n"


@pytest.mark.parametrize("first", ["run.sh", "model.yaml"])
def test_switches_of_a_command_line_hold_over_those_of_its_yaml(first: str) -> None:
    """Megatron-MoE-ModelZoo's way: a YAML of arguments, a launcher that reads it, a script that starts it."""
    files = {"run.sh": START, "launch.sh": QUERY, "model.yaml": ARGUMENTS}
    ordered = {first: files[first], **files}
    found: Any = imported(ordered).document
    assert at(found, "software.host.cuda_graphs") is True
    assert at(found, "software.host.graphs_leave_out_experts") is True
    assert at(found, "training.precision") == "mxfp8"
    assert at(found, "training.global_batch") == 512
    assert at(found, "training.micro_batch") == 2
    assert (at(found, "parallelism.tp"), at(found, "parallelism.ep")) == (2, 8)
    assert at(found, "cluster.gpus") == 16


def test_hosts_that_slurm_takes_out_of_one_rack_are_an_nvlink_domain() -> None:
    machine = {"gpu": "GB300-NVL72", "interconnect": "ib-xdr800-x4", "gpus_per_node": "4"}
    start = START.replace("NNODES=2", "NNODES=32").replace("EP=8", "EP=32")
    launch = QUERY.replace("sbatch <<", "sbatch --segment=8 <<").replace("node=8", "node=4")
    files = {"run.sh": start, "launch.sh": launch, "model.yaml": ARGUMENTS}
    assert at(imported(files, machine).document, "cluster.gpus_per_domain") == 32
    alone = {**files, "launch.sh": launch.replace(" --segment=8", "")}
    assert at(imported(alone, machine).document, "cluster.gpus_per_domain") is None


def test_without_yq_the_options_of_the_script_stand_behind_the_yaml() -> None:
    plain = (
        "TP=2 EP=8 MBS=2 LAYERS_PER_VP=false\ntorchrun --nnodes 2 --nproc_per_node 8 pretrain_gpt.py "
        + GRAPHS
    )
    found: Any = imported({"run.sh": plain, "model.yaml": ARGUMENTS}).document
    assert at(found, "software.host.cuda_graphs") is True
    assert at(found, "parallelism.tp") == 2
    assert at(found, "cluster.gpus") == 16


def test_a_launcher_that_is_missing_is_asked_for() -> None:
    with pytest.raises(ValueError, match=r"launch\.sh.*adds options"):
        imported({"run.sh": START, "model.yaml": ARGUMENTS})


def test_two_trainings_of_one_script_are_told() -> None:
    files = {"run.sh": START + START.replace("512", "256"), "launch.sh": QUERY, "model.yaml": ARGUMENTS}
    with pytest.raises(ValueError, match="several trainings"):
        imported(files)


TRAIN = "torchrun --nnodes 2 --nproc_per_node 8 pretrain_gpt.py " + " ".join(
    f"--{name} {value}"
    for name, value in {
        "tensor-model-parallel-size": "${TP:-1}", "pipeline-model-parallel-size": 1, "micro-batch-size": 1,
        "global-batch-size": 64, "num-layers": 8, "hidden-size": 1024, "num-attention-heads": 16,
        "seq-length": 2048, "max-position-embeddings": 2048, "vocab-size": 32000,
    }.items()
) + ' --bf16 "$@"\n'  # fmt: skip


@pytest.mark.parametrize("order", [("run.sh", "train.sh"), ("train.sh", "run.sh")])
def test_the_options_of_the_first_of_two_scripts_hold(order: tuple[str, ...]) -> None:
    """The one that starts the other, in whichever order they are given."""
    texts = {"run.sh": "TP=4 bash train.sh --global-batch-size 128\n", "train.sh": TRAIN}
    found: Any = imported({name: texts[name] for name in order}).document
    assert at(found, "parallelism.tp") == 4
    assert at(found, "training.global_batch") == 128


def test_scripts_of_two_runs_are_refused() -> None:
    with pytest.raises(ValueError, match=r"a\.sh and b\.sh"):
        imported({"a.sh": TRAIN, "b.sh": TRAIN.replace("1024", "2048")})


def test_other_frameworks_follow_scripts_too() -> None:
    recipe = (
        "torchrun --nnodes 2 --nproc_per_node 8 run_recipe.py --recipe llama3_8b_pretrain_config "
        "model.tensor_model_parallel_size=$TP model.pipeline_model_parallel_size=1 "
        "model.context_parallel_size=1 model.seq_length=4096 train.micro_batch_size=1 "
        "train.global_batch_size=64 $@\n"
    )
    files = {"run.sh": "TP=4 ./start.sh train.global_batch_size=128\n", "start.sh": recipe}
    found: Any = imported(files).document
    assert (at(found, "parallelism.tp"), at(found, "training.global_batch")) == (4, 128)


def test_a_variable_that_is_called_world_size_is_no_number_of_gpus() -> None:
    script = (
        "#!/bin/bash\ntorchrun --nnodes $WORLD_SIZE --nproc_per_node 8 pretrain_gpt.py --num-layers 8"
        " --hidden-size 1024 --num-attention-heads 16 --seq-length 2048 --micro-batch-size 1"
        " --global-batch-size 64 --bf16 --vocab-size 32000\n"
    )
    assert scenario({"run.sh": script}, {"WORLD_SIZE": "2"}).world_size == 16
    assert scenario({"run.sh": script}, {"world_size": "32"}).world_size == 32


def test_an_open_word_behind_an_open_value_is_asked_for_too() -> None:
    """``--pipeline-model-parallel-size ${PP} $more``: the second word is more options, or none."""
    script = "#!/bin/bash\ntorchrun --nnodes 1 --nproc_per_node 8 pretrain_gpt.py --num-layers 8"
    script += " --hidden-size 1024 --num-attention-heads 16 --seq-length 2048 --micro-batch-size 1"
    script += " --global-batch-size 64 --bf16 --vocab-size 32000 --pipeline-model-parallel-size ${PP} $more\n"
    assert refused({"run.sh": script}) == {"PP", "more"}
    assert scenario({"run.sh": script}, {"PP": "2", "more": "--swiglu"}).model.mlp == "swiglu"


def test_python_is_told_as_what_it_is() -> None:
    with pytest.raises(ValueError, match="is Python"):
        imported({"recipe.py": "import nemo_run as run\n"})
