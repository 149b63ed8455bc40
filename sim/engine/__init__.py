"""The event engine: the only part of stepsim with a clock. It replays programs in SimPy and records times.

Read replay.py first, which starts every stream, and then by subject:

- clock and events: clock.py, signal.py, collection.py (garbage collector), ticks.py (rounding of remembered
  states);
- ops in the order of a stream: scope.py, kernel_stream.py, kernels.py, chain.py (communications),
  rank_state.py (SMs and HBM that are held);
- communications: rendezvous.py, p2p_queue.py, gathering.py and groups.py (classes that meet inside blocks);
- bandwidth of links (weighted max-min): flows.py, flow.py, occupancy.py, connected_rates.py,
  repaired_rates.py, shares.py, slowed.py (what was slowed), other_ranks_links.py (links of other ranks);
- repeated blocks, replayed once while nothing interferes: repeated_blocks.py, runs.py, blocks.py,
  whole_run.py, blocks_in_progress.py and block_in_detail.py (after an interruption), block_alone.py,
  running_work.py, own_rates.py and single_block.py (one block, with or without flows of its rank);
- changes within a step (faults): changes.py;
- what is read afterwards: record.py, accounting.py (time by cause), critical_path.py, bounds.py (links that
  limit), host_lead.py, period.py (step time), observed_job.py (one of several jobs).
"""
