"""Rows of experts that torch's own indexing orders around an exchange, where torch weights them, too.

torchtitan chooses rows by a tensor of indices, puts them back by ``index_put_``, and adds up what is home by
``scatter_add``. The first passes 16 bytes at a time. The gradient of a choice sorts its indices and adds up
rows of equal index; the others pass element by element. What DeepEP brings is chosen by ``index_select``,
whose gradient is ``index_add``, by atomics. Bytes count reads (r) and writes (w) at HBM.

References:
    torchtitan models/moe/utils.py (until April 2026, then distributed/expert_parallel.py), _permute and
    _unpermute; models/moe/moe.py at 003edbe, MoE.forward (from November 2025 to April 2026 torch.bmm in
    place of scatter_add: pull requests 1974 and 2775). None of these is compiled: apply_compile of
    models/llama4/infra/parallelize.py leaves out "experts", and compiles a MoE's modules, not its
    forward. distributed/ deepep/deepep.py at 06c9b44c, _permute_tokens; in NousResearch's fork
    deepep/utils.py at 8b4b03d3, permute.
    PyTorch tools/autograd/derivatives.yaml, index_select and index.
"""

from __future__ import annotations

from .expert_operators import READS_A_ROW, sort_to_put
from .layer_builder import LayerBuilder
from .local_shape import local_experts
from .strided import STRIDED
from .weighted_rows import weights_rows_at_home, weights_rows_of_experts


def indexes_rows(builder: LayerBuilder) -> bool:
    """Whether torch's indexing moves the rows that tokens become and that come home."""
    return builder.local.experts is not None and weights_rows_at_home(builder.software)


def indexes_arrivals(builder: LayerBuilder) -> bool:
    """Whether it moves rows that have arrived from other ranks, too."""
    return indexes_rows(builder) and local_experts(builder.local).ep > 1


def add_rows(builder: LayerBuilder) -> None:
    """Append the sum of each token's rows, by atomics, into zeros that are copied before."""
    sent, tokens = _sent(builder)
    issued = STRIDED["scatter_add"] * sent * builder.local.hidden
    # zeros w, their copy r w; rows r, sums r w
    builder.memory("unpermute", (3 * tokens + 3 * sent) * _row(builder), launches=3, instructions=issued)


def permute_backward(builder: LayerBuilder) -> None:
    """Append the sum of the gradients of each token's rows."""
    sent, tokens = _sent(builder)
    _sum_by_index(builder, "permute backward", rows=sent, into=tokens)


def sort_by_expert_backward(builder: LayerBuilder) -> None:
    """Append the gradients of rows that were chosen by index, none of them twice."""
    rows = local_experts(builder.local).rows(builder.local.norm_tokens)
    _sum_by_index(builder, "sort by expert backward", rows=rows, into=rows)


def takes_arrivals(builder: LayerBuilder) -> bool:
    """Whether rows are chosen from what DeepEP has brought, of which each token may have several."""
    weighted = builder.local.experts is not None and weights_rows_of_experts(builder.software)
    return weighted and local_experts(builder.local).ep > 1


def take_arrivals_backward(builder: LayerBuilder) -> None:
    """Append the sum of the gradients of these rows."""
    experts, tokens = local_experts(builder.local), builder.local.norm_tokens
    rows = experts.rows(tokens)
    arrived = min(rows, experts.visited() * tokens)  # a rank is sent what it sends in the mean
    issued = STRIDED["index_add"] * rows * builder.local.hidden
    # zeros w; gradient r, sums r w
    size = (arrived + 3 * rows) * _row(builder)
    builder.memory("sort by expert backward", size, launches=2, instructions=issued)


_PADDED_TO = 8
"""Rows of which an expert has a multiple; so many indices for each expert are of the row of zeros."""


def pad_arrivals(builder: LayerBuilder) -> None:
    """Append the copy of what has arrived with a row of zeros behind it, which fills what experts lack
    (torchtitan until April 2026, pull request 2774: _permute, torch.vstack)."""
    if _pads(builder):
        rows = local_experts(builder.local).rows(builder.local.norm_tokens)
        builder.memory("rows of zeros", 2 * rows * _row(builder))


def pad_arrivals_backward(builder: LayerBuilder) -> None:
    """Append what padding adds to gradients: those of the slice that left the row of zeros out (zeros w; r
    w), and the sum of all that chose this row, one slot after the other. Its index is the last in their
    order, so that all other rows have been added up by then."""
    if not _pads(builder):
        return
    experts = local_experts(builder.local)
    size = 3 * experts.rows(builder.local.norm_tokens) * _row(builder)
    builder.memory("rows of zeros backward", size, launches=2)
    slots = _PADDED_TO * experts.held
    builder.memory("rows of zeros summed", 0.0, launches=0, counted=0, in_turn=READS_A_ROW * slots)


def _pads(builder: LayerBuilder) -> bool:
    return indexes_arrivals(builder) and builder.software.exchange.arrivals_padded


def sort_by_source(builder: LayerBuilder) -> None:
    """Append index_put_ of what experts gave (r w)."""
    rows = local_experts(builder.local).rows(builder.local.norm_tokens)
    issued = STRIDED["put"] * rows * builder.local.hidden
    builder.memory("sort by source", 2 * rows * _row(builder), instructions=issued)


def _sum_by_index(builder: LayerBuilder, name: str, *, rows: float, into: float) -> None:
    sort_to_put(builder, rows, 1)
    issued = STRIDED["sum of what is put"] * rows * builder.local.hidden
    # zeros w; gradient r, sums r w
    builder.memory(f"{name} zeros", into * _row(builder))
    builder.memory(name, 3 * rows * _row(builder), instructions=issued)


def _sent(builder: LayerBuilder) -> tuple[float, float]:
    """Rows that leave, and the tokens that they are of."""
    experts, tokens = local_experts(builder.local), builder.local.norm_tokens
    return experts.sent(tokens), float(experts.senders * tokens)


def _row(builder: LayerBuilder) -> float:
    return float(builder.local.hidden * builder.local.element_bytes)
