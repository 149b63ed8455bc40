"""Parameters that come back a bucket at a time, each bucket sent for when the one before it has come.

Megatron core gathers in a hook before each module's forward: the hook waits for the buckets of the module's
parameters, and sends for the next one after each. NCCL's stream then begins behind what the compute stream
has been given, so a gather runs beside the modules between two hooks and beside no others; where buckets are
small, the next module waits for most of its own. Knows which block of a forward wants which parameters first,
and in which bucket they are. Chunks of an interleaved pipeline are gathered as a whole by the schedule
(schedules/p2p/megatron_hooks.py).

References:
    Megatron-LM core/distributed: distributed_data_parallel.py (_make_forward_pre_hook),
    param_and_grad_buffer.py (finish_param_sync; buckets form from the last parameter back and close with the
    one that fills them; partition_buckets: what is not in 8 bits joins the bucket of the first layers).
    TransformerEngine's ops.Sequential and LayerNormMLP: an MLP that is one module asks for both its matrices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..program.program import Block
from ..program.program_builder import ProgramBuilder
from .layers import layer, loss
from .layers.amax import amax_reduction, attention_amax_reduction
from .layers.kinds import LayerRun
from .stage_parameters import NO_ELEMENTS, Elements
from .updates import ends

if TYPE_CHECKING:
    from .plan import StepPlan

Want = tuple[Elements, float]
"""Parameters, and the bytes of each on the wire."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """A block of a forward, with the parameters that no earlier block uses, in the order of the modules'
    hooks."""

    block: Block
    wants: tuple[Want, ...] = ()


@dataclass(kw_only=True)
class GatherChain:
    """Gathers buckets of ``sizes`` bytes in their order, one ahead of the bucket that is awaited.

    ``gather(size)`` appends a gather and returns its ops. ``sent`` has the ops of the gathers so far; the
    compute stream has waited for the first ``arrived`` of them.
    """

    writer: ProgramBuilder
    gather: Callable[[Elements], tuple[int, ...]]
    sizes: Sequence[Elements]
    sent: list[tuple[int, ...]] = field(default_factory=list)
    arrived: int = 0

    def awaits(self, bucket: int) -> bool:
        """Whether the compute stream has yet to wait for that bucket."""
        return self.arrived <= bucket

    def wait(self, bucket: int) -> None:
        """Make the compute stream wait for that bucket and all before it; behind each wait, issue the next
        gather."""
        while self.awaits(bucket):
            if len(self.sent) == self.arrived:
                self._send()
            self.writer.wait(*self.sent[self.arrived])
            self.arrived += 1
            self._send()

    def _send(self) -> None:
        if len(self.sent) < len(self.sizes):
            self.sent.append(self.gather(self.sizes[len(self.sent)]))


def buckets_of(elements: Sequence[float], bucket_elements: float) -> tuple[int, ...]:
    """For parameters in the order of a forward, the bucket of each, in the order in which they are gathered.

    Buckets form from the last parameter back, and close with the one that fills them; what is left is the
    bucket of the first ones.

    >>> buckets_of([5, 1, 1, 1, 3], 2)
    (0, 0, 1, 1, 2)
    >>> buckets_of([1, 1, 1], 2)
    (0, 1, 1)
    """
    found: list[int] = []
    bucket, size = 0, 0.0
    for each in reversed(elements):
        found.append(bucket)
        size += each
        if size >= bucket_elements:
            bucket, size = bucket + 1, 0.0
    return tuple(found[-1] - one for one in reversed(found)) if found else ()


def uses_in_buckets(
    uses: Sequence[Use], bucket_elements: float, wide_bytes: float, narrow_bytes: float
) -> tuple[list[tuple[Block, tuple[int, ...]]], list[Elements]]:
    """Each block of ``uses`` with the buckets of its parameters, and the bytes of every bucket.

    Where weights are gathered in fewer bytes than other parameters, the others form the first bucket.
    """
    joined = narrow_bytes < wide_bytes
    apart = [want for use in uses for want in use.wants if not (joined and want[1] == wide_bytes)]
    numbers = iter(buckets_of([elements.total for elements, _ in apart], bucket_elements))
    sizes: dict[int, Elements] = {0: NO_ELEMENTS}
    row: list[tuple[Block, tuple[int, ...]]] = []
    for use in uses:
        wanted = []
        for elements, each_bytes in use.wants:
            number = 0 if joined and each_bytes == wide_bytes else next(numbers)
            sizes[number] = sizes.get(number, NO_ELEMENTS) + elements.times(each_bytes)
            wanted.append(number)
        row.append((use.block, tuple(wanted)))
    return row, [sizes[number] for number in sorted(sizes)]


def forward_uses(plan: StepPlan, s: int, *, by_matrix: bool) -> Iterator[Use]:
    """The forward of virtual stage ``s``, block by block, with the parameters that each block is the first to
    use.

    ``by_matrix`` cuts dense layers into one block for each module that has parameters.
    """
    stage, parameters, blocks = plan.stages[s], plan.parameters[s], plan.blocks
    e = float(plan.local.element_bytes)
    if stage.embedding:
        yield Use(
            block=blocks.end(ends.embedding_forward), wants=((Elements(shared=parameters.embedding), e),)
        )
    for run in stage.runs:
        dense = not (run.kind.experts or run.kind.prediction or plan.local.latent)
        uses = tuple(_pieces(plan, s, run) if by_matrix and dense else (_whole(plan, s, run),))
        for _ in range(run.count):
            yield from uses
            if stage.attention_scales:
                yield Use(block=blocks.end(attention_amax_reduction))
    if stage.scales:
        yield Use(block=blocks.end(amax_reduction))
    if stage.heads:
        table = 0.0 if stage.embedding else parameters.embedding
        head = blocks.end(ends.head_forward)
        yield Use(block=head, wants=((Elements(shared=parameters.head + table), e),))
        yield from (Use(block=head) for _ in range(stage.heads - 1))
    yield from (Use(block=blocks.end(loss.loss_forward)) for _ in range(stage.losses))


def _whole(plan: StepPlan, s: int, run: LayerRun) -> Use:
    elements, narrow = plan.parameters[s].layer(run.kind), plan.local.weights.gathered
    return Use(block=plan.blocks.layer(layer.forward_block, run), wants=((elements, narrow),))


def _pieces(plan: StepPlan, s: int, run: LayerRun) -> Iterator[Use]:
    """A dense layer, cut where a module has parameters; norms and biases go with the first matrix."""
    _, listed = plan.parameters[s].of_layers[run.kind]
    own = {one.name: float(one.elements) for one in listed}
    projection, into, out = own["projection"], own["mlp in"], own["mlp out"]
    first = sum(own.values()) - projection - into - out
    narrow = plan.local.weights.gathered

    def wants(*elements: float) -> tuple[Want, ...]:
        return tuple((Elements(shared=each), narrow) for each in elements)

    one_module = plan.scenario.software.kernels.fused_quantise
    yield Use(block=plan.blocks.layer(layer.attention_block, run), wants=wants(first))
    yield Use(block=plan.blocks.layer(layer.projection_block, run), wants=wants(projection))
    both = (into, out) if one_module else (into,)
    yield Use(block=plan.blocks.layer(layer.mlp_in_block, run), wants=wants(*both))
    yield Use(block=plan.blocks.layer(layer.mlp_out_block, run), wants=() if one_module else wants(out))
