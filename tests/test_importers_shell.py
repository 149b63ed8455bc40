"""Launch scripts: read as bash would run them, and never run."""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepsim.sim.scenario.importers.settings import UNKNOWN
from stepsim.sim.scenario.importers.shell import read_script
from stepsim.sim.scenario.importers.shell_conditions import _joined
from stepsim.sim.scenario.importers.shell_words import ShellError

SCRIPTS = {
    "arrays with comments": 'A=(\n  --x 1   # one\n  # --y 2\n  --z "3 4"\n)\nprog.py "${A[@]}" ${A[@]}',
    "defaults": 'X=${X:-7}; : ${Y:=8}; Z=${Y-9}${N+no}; prog.py --x $X --y ${Y} --z $Z "${E:-}" --w ${E:-a '
    "b}",
    "arithmetic": "N=4; G=8; W=$(($N*G)); M=$(( (W - 1) / 2 % 5 )); prog.py --w $W --m $M --e $(expr 3 + 4)",
    "arithmetic of long ago": 'N=64; G=8; H=$[$N / $G]; prog.py --h $H --i "$[ H * 2 ]" --k',
    "case": "M=13b\ncase $M in\n 7b) L=32 ;;\n 13b|14b)\n  L=40; H=5120 ;;\n *) L=1 ;;\nesac\nprog.py --l "
    "$L --h $H",
    "if": 'T=2\nif [ $T -gt 1 ]; then S="--sp"; else S=""; fi\nif [[ $T == 3 || -z "$Q" ]]; then R="--r"; '
    "fi\nprog.py $S $R --k",
    "elif": 'V=b\nif [ "$V" = a ]; then X=1\nelif [ "$V" = b ]; then X=2\nelse X=3; fi\nprog.py --x $X',
    "append": 'A="--a 1"\nA+=" --b 2"\nL=(--c)\nL+=(3 --d)\nprog.py $A ${L[@]} --n ${#L[@]}',
    "functions": 'f() { local x=$1; O="--v $x"; }\nf 5\nprog.py $O --k',
    "nested": 'C="prog.py --a 1"\neval "$C --b 2"',
    "continued": 'prog.py --a \\\n  1 \\\n  --b \'2 $N\' --c "3\\""',
    "for one": "for N in 4; do prog.py --n $N; done",
    "trimmed": "F=model-7b.yaml; prog.py --f ${F%.yaml} --g ${F##*-} --h ${F/7b/8b} --u ${F^^}",
    "words": "O='--a   1\n --b 2'\nprog.py $O \"$O\"",
    "index": "A=(1 2 3); prog.py --x ${A[1]} --y ${A[$((1+1))]}",
    "and": "T=1; [ $T = 1 ] && prog.py --yes 1",
    "and binds before or": "A=1; B=0\nif [ $A = 1 -o $B = 2 -a $B = 3 ]; then X=--x; fi\nprog.py $X --k",
    "bounds": "N=2; A=; B=\nif [ $N -le 2 ]; then A=--le; fi\nif [ $N -lt 2 ]; then B=--lt; fi\n"
    "prog.py $A $B --k",
    "unlike a pattern": "M=llama-7b; A=\nif [[ $M != llama* ]]; then A=--other; fi\nprog.py $A --k",
}


def words_of_bash(script: str, folder: Path) -> list[str]:
    """What bash starts: the words of ``prog.py``, which is a function that prints them."""
    head = "prog.py() { printf '%s\\0' \"$@\"; }\n"
    made = subprocess.run(
        ["bash", "--norc", "-c", head + script],
        cwd=folder,
        capture_output=True,
        check=True,
        env={"PATH": "/usr/bin:/bin"},
    )
    return made.stdout.decode().split("\0")[:-1]


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_says_what_bash_would_start(name: str, tmp_path: Path) -> None:
    command = read_script(SCRIPTS[name], {}).launch
    assert command is not None
    assert list(command.words[1:]) == words_of_bash(SCRIPTS[name], tmp_path)


def test_nothing_is_executed(tmp_path: Path) -> None:
    """A script that would leave a file behind leaves none, whatever way it would be made."""
    mark = tmp_path / "made"
    script = (
        f"touch {mark}\nX=$(touch {mark})\nY=`touch {mark}`\neval 'touch {mark}'\nbash -c 'touch "
        f"{mark}'\ntrain.py --a $X"
    )
    read_script(script, {})
    assert not mark.exists()


def test_what_nobody_sets_stays_open_under_its_name() -> None:
    command = read_script("train.py --tp $TP --gbs $((TP * 8)) --n $(nproc) --seq ${SEQ}", {}).launch
    assert command is not None
    assert UNKNOWN.findall(" ".join(command.words)) == ["TP", "TP", "$(nproc)", "SEQ"]


def test_ways_that_nobody_can_choose_between_leave_a_variable_open() -> None:
    """Both ways set TP otherwise, and MBS alike."""
    script = "if nvidia-smi; then TP=8; MBS=1; else TP=4; MBS=1; fi\ntrain.py --tp $TP --mbs $MBS"
    command = read_script(script, {}).launch
    assert command is not None
    assert command.words[-1] == "1"
    assert UNKNOWN.findall(" ".join(command.words)) == ["TP"]


def test_what_is_given_wins_over_what_the_script_sets() -> None:
    command = read_script(
        "TP=8\nexport PP=${PP:-2}\ntrain.py --tp $TP --pp $PP --l $1", {"TP": "4", "PP": "16", "1": "32"}
    ).launch
    assert command is not None
    assert command.words == ("train.py", "--tp", "4", "--pp", "16", "--l", "32")


def test_slurm_headers_and_here_documents_are_read() -> None:
    script = (
        '#SBATCH --nodes=4 --gres=gpu:8\nG=64\ncat <<EOT > ds.json\n{"train_batch_size": '
        "$G}\nEOT\nsrun train.py --ds ds.json"
    )
    read = read_script(script, {})
    assert read.sbatch["nodes"] == "4"
    assert read.sbatch["gres"] == "gpu:8"
    assert read.documents["ds.json"] == '{"train_batch_size": 64}'


def test_files_that_are_sourced_are_read_where_they_are_given() -> None:
    assert read_script("source conf/model.sh\ntrain.py --l $L", {}, {"model.sh": "L=32"}).launch is not None
    command = read_script("source conf/model.sh\ntrain.py --l $L", {}, {"model.sh": "L=32"}).launch
    assert command is not None
    assert command.words[-1] == "32"
    assert read_script("source conf/model.sh", {}).sourced == ["conf/model.sh"]


@pytest.mark.parametrize(
    "text",
    [
        "read -r -d '' OPTS <<'EOF'\n--tp 2\n--pp 4\nEOF\ntrain.py $OPTS\n",
        "TP=2\nOPTS=$(cat <<EOF\n--tp $TP\n--pp 4\nEOF\n)\ntrain.py $OPTS\n",
        "OPTS=\"$(cat <<'EOF'\n--tp 2\n--pp 4\nEOF\n)\"\ntrain.py $OPTS\n",
    ],
)
def test_options_in_a_document_are_words(text: str) -> None:
    command = read_script(text, {}).launch
    assert command is not None
    assert command.words == ("train.py", "--tp", "2", "--pp", "4")


def test_what_a_command_prints_is_asked_for_by_the_variable_that_holds_it() -> None:
    text = "HOSTS=$(wc -l < $FILE)\nN=$((HOSTS * 4))\ntrain.py --n ${N} --save $(date)/x\n"
    command = read_script(text, {}).launch
    assert command is not None
    assert UNKNOWN.findall(command.words[2]) == ["HOSTS"]
    given = read_script(text, {"HOSTS": "16"}).launch
    assert given is not None
    assert given.words[2] == "64"


@settings(max_examples=300)
@given(st.text(alphabet="abX1 \n$(){}[]'\"\\`;&|<>=#-:/*%+,if thenfielsecasesacdoneforin", max_size=80))
def test_any_text_ends_in_a_script_or_a_message(text: str) -> None:
    with contextlib.suppress(ShellError):
        read_script(text, {})


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "A=$A$A$A$A$A$A$A$A\n" * 400,
        "f() { f; }\nf",
        "(" * 5000,
        "${" * 5000,
        "$(" * 5000,
        "if true; then " * 3000,
        "eval " * 3000,
        '"$(' * 2000,
        "A=(" * 2000,
    ],
)
def test_hostile_scripts_come_to_an_end(text: str) -> None:
    with contextlib.suppress(ShellError):
        read_script(text, {})


@pytest.mark.parametrize(
    ("joint", "left", "right", "both"),
    [
        ("&&", True, None, None),
        ("&&", None, False, False),
        ("||", None, True, True),
        ("||", False, None, None),
        ("||", False, False, False),
    ],
)
def test_what_nobody_knows_decides_only_where_the_rest_does_not(
    joint: str, left: bool | None, right: bool | None, both: bool | None
) -> None:
    assert _joined(joint, left, right) is _joined(joint, right, left) is both


@pytest.mark.parametrize(("option", "last"), [("-d ''", "--tp 2"), ("", "")])
def test_read_takes_one_line_unless_another_end_is_told(option: str, last: str) -> None:
    script = f"read -r {option} ARGS <<EOF\n--pp 4\n--tp 2\nEOF\ntrain.py $ARGS\n"
    command = read_script(script, {}).launch
    assert command is not None
    assert " ".join(command.words) == f"train.py --pp 4 {last}".strip()
