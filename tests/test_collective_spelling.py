"""The four collectives have one spelling in identifiers and strings: all_to_all, all_gather, and so on.

Docstrings and sentences are English and may say all-gather. What another program calls them by stays as that
program writes it; these names stand below, each with whose it is.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SPELLINGS = ("all_to_all", "all_gather", "reduce_scatter", "all_reduce")
ANY = re.compile(
    r"all[-_ ]?to[-_ ]?all|all[-_ ]?gather|reduce[-_ ]?scatter|all[-_ ]?reduce|a2a", re.IGNORECASE
)

THEIRS = re.compile(
    r"nccl\w*Kernel_\w+"  # NCCL's kernels, in traces
    r"|AllReduce_RSxLD_AGxSTMC_sum_bf16"
    r"|_allgather_base|ncclDevKernel_\{kernel\}"  # PyTorch's operators
    r"|alltoall_perf|alltoallv"  # nccl-tests' programs
    r"|\w*\d+n\d+g_\w+|\w+_20rack1440g_allreduce"  # logs by the names of their files
    r"|a2a|A2A|(parallelism\.)?cp_a2a|CP_A2A|_?a2a_ranks"  # Megatron: a2a
    r"|(software\.exchange\.)?moe_a2a_overlap"
)
"""Words of others."""

NDTIMELINE = {
    "params-all-gather",
    "grads-reduce-scatter",
    "separate-grads-all-reduce",
    "layernorm-grads-all-reduce",
    "embedding-grads-all-reduce",
}
"""Operations as the logs of ByteDance's NDTimeline name them."""

THEIR_STRINGS = {
    # Megatron's moe_token_dispatcher_type, and NCCL_ALGO:
    "sim/scenario/software/exchange.py": {"alltoall", "allreduce"},
    "sim/lowering/layers/moe.py": {"alltoall"},
    "sim/lowering/layers/expert_biases.py": {"alltoall"},
    "sim/lowering/layers/expert_work.py": {"alltoall"},
    "sim/lowering/layers/partial_graphs.py": {"alltoall"},
    "sim/lowering/layers/weighted_rows.py": {"alltoall"},
    "sim/lowering/pricing.py": {"alltoall"},
    "sim/lowering/state/activations.py": {"alltoall"},
    "sim/network/token_exchange.py": {"alltoall"},
    # NCCL's kernels:
    "calibration/readers/traced.py": {"allreduce", "allgather", "reducescatter", "alltoall"},
    "sim/network/selection.py": {"hierarchical-all-to-all"},  # as earlier versions called it
    "sim/report/trace_messages.py": {"AllReduce", "AllGather", "ReduceScatter"},  # NCCL's kernels
    # c10d's operators, in traces of PyTorch's hosts:
    "sim/chakra/host_trace.py": {
        "alltoall",
        "allgather",
        "reducescatter",
        "alltoallbase",
        "allgatherbase",
        "reducescatterbase",
    },
    "calibration/explain/from_operations.py": NDTIMELINE,
    "calibration/explain/waiting_order.py": NDTIMELINE,
    "calibration/readers/operation_log.py": NDTIMELINE,
}
"""By file, what a framework or NCCL calls them by."""


def sources() -> list[Path]:
    parts = ("benchmarks", "calibration", "cli", "docs", "hardware", "kernels", "schedules", "sim")
    return [ROOT / "__init__.py", *sorted(path for part in parts for path in (ROOT / part).rglob("*.py"))]


def prose(tree: ast.AST) -> set[int]:
    """Docstrings, of modules and constants too, by identity."""
    return {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}


def words(source: str) -> Iterator[tuple[int, str]]:
    """Identifiers, and each word of the strings that are not prose, with their lines."""
    tree = ast.parse(source)
    docstrings = prose(tree)
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 0)
        match node:
            case ast.Constant(value=str(text)) if id(node) not in docstrings:
                if " " in text.strip():  # a sentence is English, but a name in it is a name
                    yield from ((line, word) for word in re.findall(r"\w+", text))
                else:
                    yield line, text
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                yield line, name
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.alias(name=name):
                yield line, name
            case ast.keyword(arg=str(name)):
                yield line, name
            case _:
                pass


def names(path: Path) -> set[str]:
    """The identifiers of a file."""
    tree = ast.parse(path.read_text())
    nodes = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return nodes | {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}


def wrong(source: str, theirs: frozenset[str] = frozenset()) -> list[str]:
    """Words that spell a collective otherwise."""
    if not ANY.search(source):  # nor does any word of it
        return []
    found = []
    for line, word in words(source):
        if is_other(word) and word not in theirs:
            found.append(f"{line}: {word}")
    return found


@cache
def is_other(word: str) -> bool:
    """Whether a word spells a collective otherwise, and is not known as another program's."""
    said = ANY.findall(word)
    others = [one for one in said if one not in SPELLINGS and one not in map(str.upper, SPELLINGS)]
    return bool(others) and not THEIRS.fullmatch(word)


def wrong_in(path: Path) -> list[str]:
    """Words of a file of ours that spell a collective otherwise."""
    found = wrong(path.read_text(), frozenset(THEIR_STRINGS.get(str(path.relative_to(ROOT)), ())))
    if path.parent.name == "importers":  # their strings are the options of other frameworks
        found = [one for one in found if one.partition(": ")[2] in names(path)]
    return found


@pytest.mark.slow
def test_collectives_are_spelled_one_way() -> None:
    found = {str(path.relative_to(ROOT)): wrong_in(path) for path in sources()}
    assert len(found) > 300  # the walk sees them
    assert {path: words for path, words in found.items() if words} == {}


@pytest.mark.parametrize("path", THEIR_STRINGS)
def test_every_exception_is_used(path: str) -> None:
    said = {word for _, word in words((ROOT / path).read_text())}
    assert THEIR_STRINGS[path] <= said


@pytest.mark.parametrize(
    "source",
    [
        "alltoall = 1",
        "x = 'allgather'",
        "f(kind='reduce-scatter')",
        "def all2all_allreduce(): ...",
        "x.allreduce",
    ],
)
def test_another_spelling_is_told(source: str) -> None:
    assert wrong(source)
