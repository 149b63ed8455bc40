"""What a CUDA graph that ends at a layer's experts takes besides its kernels.

Megatron core's scopes ``moe_router`` and ``moe_preprocess`` make a graph of what comes before a layer's
dispatch. Its inputs and the gradients of its outputs are buffers of its own, into which each replay copies
what was made outside, and the host launches each copy and the graph. Bytes count reads and writes at HBM.

References:
    TransformerEngine pytorch/graph.py (2.16), Graphed: forward and backward copy whatever is not there
    already. Megatron-LM core/transformer/transformer_layer.py (0.18), _te_cuda_graph_replay: a graph's
    outputs are the tokens as they go to the dispatcher, their probabilities, and the residual; the layer's
    last residual addition (_forward_post_mlp) comes behind the experts, outside.
"""

from __future__ import annotations

from .layer_builder import LayerBuilder

_REPLAY_LAUNCHES = 1


def in_partial_graph(builder: LayerBuilder) -> bool:
    """Whether a graph has this layer up to its experts, and no further."""
    return builder.costs.ungraphed is not None and builder.local.experts is not None


def replay_forward(builder: LayerBuilder) -> None:
    """Append the copy of the layer's input, or of attention's output, to where the graph reads it."""
    if in_partial_graph(builder):
        outside = builder.outside_graphs()
        size = 2.0 * builder.local.norm_bytes  # r w
        outside.memory("graph's input", size, counted=1 + _REPLAY_LAUNCHES)


def replay_backward(builder: LayerBuilder) -> None:
    """Append the copies of the gradients of tokens, of their probabilities, and of the residual."""
    experts = builder.local.experts
    if experts is not None and in_partial_graph(builder):
        local = builder.local
        rows = float(local.norm_tokens)
        if builder.software.exchange.moe_dispatcher == "alltoall":  # permuted already, a row an expert
            rows = experts.sent(local.norm_tokens)
        size = 2.0 * (rows * local.hidden * local.element_bytes + local.norm_bytes)  # r w
        copies = 3
        outside = builder.outside_graphs()
        outside.memory("graph's gradients", size, launches=copies, counted=copies + _REPLAY_LAUNCHES)
