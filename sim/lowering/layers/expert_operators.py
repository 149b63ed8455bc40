"""Experts whose rows torch's own operators choose, weight, gate and sum, as models of Transformers have them.

Two ways: once for the rows of all experts, around one grouped GEMM (``torch``, Transformers from 5.0 on),
or in a loop of Python over those experts that have rows (``loop``, before). Knows what each operator and its
gradient moves, and in how many launches. Does not know the GEMMs (expert_work.py). Bytes count reads (r)
and writes (w) at HBM.

Choosing rows by a tensor of indices is a gather; its gradient sorts the indices, and puts rows into zeros:
reads a row and what is there, and writes it. A row that many chose is added up by one warp, a row after the
other, each of which is another read that the next one waits for.

References:
    Transformers integrations/moe.py, grouped_mm_experts_forward (pull request 42697) and models/gpt_oss/
    modeling_gpt_oss.py, _apply_gate; before 5.0 models/qwen3_moe/modeling_qwen3_moe.py,
    Qwen3MoeSparseMoeBlock, which is Mixtral's. Of the masks that expert parallelism needs, which all runs had
    from April to August 2026 (pull requests 45621 and 48201), nothing is counted.
    PyTorch ATen/native/cuda/Indexing.cu, index_put_with_sort_kernel and indexing_backward_kernel;
    torch/csrc/autograd/FunctionsManual.cpp, clamp_backward, slice_backward; tools/autograd/derivatives.yaml.
"""

from __future__ import annotations

from ...scenario.software.software import Software
from .experts import Experts
from .issued import NOTHING
from .layer_builder import LayerBuilder
from .strided import STRIDED

_INDEX_BYTES = 8
"""Bytes of an index, of a key of a sort, and of an element of one_hot: torch's are of 64 bits."""

_SORT_LAUNCHES, _PUT_SORT_LAUNCHES = 11, 8
"""Kernels of a sort of 64-bit keys (indices made, counts, sums, eight passes of 8 bits each: cub, onesweep),
and around the one kernel of index_put_: linear indices and their order made, counts, sums, and the few passes
that the number of rows needs."""

_SORT_PASSES, _PUT_SORT_PASSES = 9, 3
"""Times that these read and write keys with values."""

_SECTOR_BYTES = 32
"""Least that a read of memory brings: one_hot's elements of an expert lie apart."""


def uses_torch_operators(software: Software) -> bool:
    """Whether torch's own operators permute, weight and gate the experts' rows, instead of a library's
    kernels."""
    return software.kernels.expert_operators != "library"


def in_a_loop(software: Software) -> bool:
    """Whether experts run one after the other in a Python loop, each with its own launches."""
    return software.kernels.expert_operators == "loop"


READS_A_ROW = 6.8
"""Reads, each of which waits for the one before, of a row that a warp of index_put_ adds up: its place in the
sorted indices, that of its gradient, this, and the sum that was just written. 0.98 us on an H200 with torch
2.11, alike for 16,384, 65,536 and 262,144 rows of 2,880 and 5,760 of one index, in reads of 144 ns
(kernels/memory_bound.py, PART_S)."""

# Rows on their way to experts -----------------------------------------------------------------------


def take_rows(builder: LayerBuilder, experts: Experts) -> None:
    """Append the permutation of tokens into the order of their experts."""
    tokens, rows, row = _sizes(builder, experts)
    if in_a_loop(builder.software):
        _masks(builder, experts)
        builder.host_waits()  # nonzero says which experts have rows, and where: torch.where for each
        builder.memory("take rows", 2 * rows * row, launches=experts.turns)  # r w
        return
    # experts sorted; their counts, sums and the places of rows; the weights of rows
    sort = 4.0 * _INDEX_BYTES * rows * _SORT_PASSES
    builder.memory("sort by expert", sort, launches=_SORT_LAUNCHES, counted=1)
    builder.memory("places of rows", 10 * _INDEX_BYTES * rows, launches=7)
    builder.memory("take rows", (tokens + rows) * row)  # r tokens, w rows


def take_rows_backward(builder: LayerBuilder, experts: Experts) -> None:
    """Append its backward: gradients of rows, summed for each token."""
    tokens, rows, row = _sizes(builder, experts)
    turns = _turns(builder, experts)
    # In a loop each turn has zeros of all tokens (w), and but the first adds them to what is there (r 2 w 1).
    passes = 4 * turns - 3
    sort_to_put(builder, rows, turns)
    builder.memory(
        "take rows backward", (passes * tokens + 3 * rows) * row, launches=3 * turns - 1
    )  # r gradient r w


def _masks(builder: LayerBuilder, experts: Experts) -> None:
    """Append one_hot of the chosen experts, its sums, and torch.where for each expert's mask.

    torch.where copies the mask, whose elements are strided, counts its nonzeros, and selects.
    """
    chosen = builder.local.norm_tokens * experts.topk
    mask = float(_INDEX_BYTES * chosen * experts.held)
    builder.memory("one_hot of experts", 3 * mask, launches=5)  # zeros w, ones w; sum r
    each = float(chosen * (_SECTOR_BYTES + 3 * _INDEX_BYTES))  # r, w; r to count, r to select
    builder.memory("where of each expert", experts.turns * each, launches=7 * experts.turns)


# Rows on their way back -----------------------------------------------------------------------------


def return_rows(builder: LayerBuilder, experts: Experts) -> None:
    """Append the rows times their routing weights, summed for each token."""
    tokens, rows, row = _sizes(builder, experts)
    weight_rows(builder, rows, experts)
    if in_a_loop(builder.software):
        # zeros w; index_add_ reads a row and what is there, and writes
        builder.memory("add rows", (tokens + 3 * rows) * row, launches=1 + experts.turns)
        builder.host_waits()  # the where of the last turns; until then the host follows the GPU turn by turn
        return
    builder.memory("rows by token", 2 * rows * row, launches=3)  # places; r w
    builder.memory("sum of rows", (rows + tokens) * row)  # r rows, w tokens


def return_rows_backward(builder: LayerBuilder, experts: Experts) -> None:
    """Append the gradients of these sums, of the routing weights, and of the rows."""
    tokens, rows, row = _sizes(builder, experts)
    turns = _turns(builder, experts)
    if in_a_loop(builder.software):
        builder.memory("add rows backward", 2 * rows * row, launches=turns)  # r w
    else:
        builder.memory("sum of rows backward", (tokens + rows) * row)  # the view of an expansion is a copy
        sort_to_put(builder, rows, 1)
        builder.memory("rows by token backward", 4 * rows * row, launches=2)  # zeros w; r gradient r w
    weight_rows(builder, rows, experts)  # gradients of rows: the gradient times the weights
    builder.memory("weights' gradient", 4 * rows * row, launches=2 * turns)  # product r 2 w 1, sum r
    sort_to_put(builder, rows, turns)  # weights were chosen by index, too
    builder.memory("weights' gradient in place", 3.0 * rows * _INDEX_BYTES, launches=2 * turns)


def weight_rows(builder: LayerBuilder, rows: float, experts: Experts) -> None:
    """Append the product of each row with its weight (r w)."""
    turns = _turns(builder, experts)
    elements = rows * builder.local.hidden
    builder.memory(
        "rows by weight",
        2.0 * elements * builder.local.element_bytes,
        launches=turns + (turns if turns > 1 else 0),  # in a loop their weights are chosen turn by turn
        instructions=STRIDED["product by row"] * elements,
    )


# Weights --------------------------------------------------------------------------------------------


def weights_as_one(builder: LayerBuilder) -> bool:
    """Whether the weights of all experts are one parameter, which a loop slices for each expert: from
    Transformers 5.0 on, and for GPT-OSS before that (models/gpt_oss/modeling_gpt_oss.py at 00d4b3d2,
    GptOssExperts)."""
    return builder.software.kernels.grouped_gemm == "stacked" or builder.local.clamped_gate


def put_weight_gradients(builder: LayerBuilder, experts: Experts, elements: int) -> None:
    """Append the gradients of such slices, of ``elements`` each: zeros as large as all experts (w), the
    copy of the slice's gradient into them (r w), and their sum with the gradients of earlier iterations (r
    2 w 1)."""
    turns, each = experts.turns, float(elements * builder.local.element_bytes)
    moved = (4 * turns - 3) * experts.held * each + 2 * turns * each
    builder.memory("gradients of all experts", moved, launches=3 * turns - 1)


# Biases ---------------------------------------------------------------------------------------------


def add_rows_biases(builder: LayerBuilder, experts: Experts, width: int) -> None:
    """Append the experts' biases: gathered for all rows and added; in a loop, added expert by expert."""
    local, rows = builder.local, experts.rows(builder.local.norm_tokens)
    size = float(rows * width * local.element_bytes)
    if in_a_loop(builder.software):
        builder.memory("expert biases", 2 * size, launches=experts.turns)  # r w
    else:
        builder.memory(
            "expert biases", 4 * size, launches=2
        )  # gather w, of a table that caches hold; r 2 w 1


def add_rows_biases_backward(builder: LayerBuilder, experts: Experts, width: int) -> None:
    """Append the gradients of biases. One warp for each expert sums its rows one after the other; in a
    loop, each is a sum over rows."""
    local, rows = builder.local, experts.rows(builder.local.norm_tokens)
    size = float(rows * width * local.element_bytes)
    if in_a_loop(builder.software):
        builder.memory("expert biases backward", size, launches=experts.turns)
        return
    sort_to_put(builder, rows, 1)
    most = experts.busiest * experts.rows_each(local.norm_tokens)
    builder.memory("expert biases backward", size, launches=2, in_turn=READS_A_ROW * most)


# Gates ----------------------------------------------------------------------------------------------


def gate(builder: LayerBuilder, experts: Experts) -> None:
    """Append the gated activation of the rows. One GEMM wrote both branches, as halves of a row or as
    alternate columns."""
    local, turns = builder.local, _turns(builder, experts)
    elements = float(experts.rows(local.norm_tokens) * experts.ffn)
    e = local.element_bytes
    if local.clamped_gate:
        # of every second column: r 2 w 1, twice
        builder.memory(
            "clamps", 6 * e * elements, launches=2 * turns, instructions=2 * STRIDED["clamp"] * elements
        )
        # times alpha r w; sigmoid r w; product r 2 w 1; plus one r w; product r 2 w 1
        builder.memory("gate", 12 * e * elements, launches=5 * turns)
        return
    if local.gate == 1:
        builder.memory("activation", 2 * e * elements, launches=turns)
        return
    # SiLU r w; product r 2 w 1: of halves of rows, unless each branch is a product of its own
    issued = (STRIDED["copy"] + STRIDED["product by row"]) * elements if _halves(builder) else NOTHING
    builder.memory("gate", 5 * e * elements, launches=2 * turns, instructions=issued)


def gate_backward(builder: LayerBuilder, experts: Experts) -> None:
    """Append the gradients of both branches, joined where one GEMM wrote both."""
    local, turns = builder.local, _turns(builder, experts)
    elements = float(experts.rows(local.norm_tokens) * experts.ffn)
    if local.clamped_gate:
        _clamped_gate_backward(builder, elements, turns)
        return
    e = local.element_bytes
    if local.gate == 1:
        builder.memory("activation backward", 3 * e * elements, launches=turns)
        return
    # products r 2 w 1 each; SiLU's r 2 w 1
    issued = 2 * STRIDED["product by row"] * elements if _halves(builder) else NOTHING
    builder.memory("gate backward", 9 * e * elements, launches=3 * turns, instructions=issued)
    if _halves(builder):
        builder.memory("join gradients of branches", 4 * e * elements, launches=turns)  # r w
    else:  # both branches read the rows
        rows = float(experts.rows(local.norm_tokens) * local.hidden)
        builder.memory("input gradient add", 3 * e * rows, launches=turns)


def _clamped_gate_backward(builder: LayerBuilder, elements: float, turns: int) -> None:
    """The backward of GPT-OSS's clamped gate, operator by operator, last first."""
    e = builder.local.element_bytes
    # two products r 2 w 1 for each of two multiplications; sigmoid's r 2 w 1; times alpha r w; sum r 2 w 1
    builder.memory("gate backward", (12 + 3 + 2 + 3) * e * elements, launches=7 * turns)
    # comparisons read every second column: r 2 w 1 byte, one and two; both masks r w bytes; choices r w
    compared = 3 * STRIDED["compare"] * elements
    builder.memory("clamp masks", 3 * (2 * e + 1) * elements, launches=3 * turns, instructions=compared)
    builder.memory("clamps backward", (3 + 2 * (2 * e + 1)) * elements, launches=3 * turns)
    # Gradients of every second column: zeros of all (w 2), into which they are copied (r w 2); their sum.
    builder.memory(
        "columns backward",
        (4 + 6) * e * elements,
        launches=4 * turns,
        instructions=2 * STRIDED["copy"] * elements,
    )
    builder.memory("sum of columns", 6 * e * elements, launches=turns)  # r 4 w 2


def _halves(builder: LayerBuilder) -> bool:
    """Whether the branches are halves of one GEMM's rows; Transformers before 5.0 had a GEMM for each
    branch."""
    return not (in_a_loop(builder.software) and builder.local.split_gate)


# Sizes ----------------------------------------------------------------------------------------------


def _sizes(builder: LayerBuilder, experts: Experts) -> tuple[int, float, float]:
    """Tokens, rows, and bytes of one row."""
    local = builder.local
    return local.norm_tokens, experts.rows(local.norm_tokens), float(local.hidden * local.element_bytes)


def _turns(builder: LayerBuilder, experts: Experts) -> int:
    return experts.turns if in_a_loop(builder.software) else 1


def sort_to_put(builder: LayerBuilder, rows: float, turns: int) -> None:
    """Append the sort of indices with which index_put_ accumulates rows of equal index; the host pays one
    call for each."""
    moved = 4.0 * _INDEX_BYTES * rows * _PUT_SORT_PASSES
    builder.memory("sort to put", moved, launches=_PUT_SORT_LAUNCHES * turns, counted=turns)
