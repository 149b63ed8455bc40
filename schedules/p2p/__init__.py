"""How the frameworks move results between the ranks of a pipeline: orders with their sends and receives.

Read instructions.py (what a rank's program is made of) and ends.py (both ends of a message) first.

- one rule for any order: point_to_point.py; whether ranks come to wait for each other: deadlock.py;
- the calls of one framework in their order: interleaved.py (Megatron), dualpipe.py (DeepSeek),
  torch_runtime.py;
- what else frameworks do within an order: megatron_hooks.py, torch_lowering.py.
"""
