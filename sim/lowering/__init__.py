"""Lowering: from a scenario to the programs of its classes of ranks, and their memory.

Read lower.py first (``make_plan``, ``lower``), then plan.py and pipeline.py. By subject:

- who is in which group, and where it is placed: process_groups.py, placed_groups.py, placements.py,
  communicators.py, slowest_groups.py;
- what things cost: machines.py, pricing.py, communication.py, host_prices.py, profiled_costs.py (for
  schedules that search);
- a pipeline rank's program: pipeline.py, actions.py and layers/, messages.py and message_sizes.py,
  overlapped.py (forward with backward), action_pieces.py, common_to_ranks.py, without_messages.py,
  optional_parts.py (sharding and offloaded activations, loaded where a step has them);
- parameters and data parallelism: parameters.py, stage_parameters.py, tensors.py, reductions.py,
  gather_chain.py, parameter_gather.py, sharded_actions.py (ZeRO-2 and ZeRO-3, by sharding/);
- the end of a step: step_end.py and updates/, optimizers.py, orthogonalise.py (Muon), parameter_slices.py,
  weight_casts.py, host_rendezvous.py, host_checks.py, logged_losses.py;
- memory: memory.py and state/, allocator_blocks.py (allocator), activation_offload.py;
- counts: sizes.py (parameters, FLOPs), recomputed_flops.py, layer_kernels.py (for measuring), step_kind.py;
- what is refused: refuse.py, refuse_autocast.py, refuse_experts.py, refuse_hosts.py,
  refuse_power.py;
- what layouts of one search share: common_to_layouts.py.
"""
