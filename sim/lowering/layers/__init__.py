"""One transformer layer as kernels and collectives, at one rank's local shape.

Read layer.py and layer_builder.py first, with local_shape.py. By subject:

- matrices: linear.py (column- and row-parallel), mlp.py, latent.py (latent attention), prediction.py
  (multi-token prediction);
- attention: attention_core.py, shared_heads.py; context parallelism: context.py, context_tiles.py,
  context_copies.py (TransformerEngine), context_torch.py;
- kernels that only move data: norms.py, pointwise.py, gelu.py, strided.py (one element at a time), issued.py;
- experts: moe.py, expert_work.py, expert_arrivals.py, expert_operators.py, expert_biases.py, experts.py,
  routing.py, weighted_rows.py, indexed_rows.py, pairs.py (overlap), partial_graphs.py (graphs that end
  at them);
- precision: precision.py, quantise.py, amax.py, autocast.py;
- recomputation: recompute.py, operators.py, checkpoints.py;
- the model's layers and ends: kinds.py, stages.py, loss.py, z_loss.py.
"""
