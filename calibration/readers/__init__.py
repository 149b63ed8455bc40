"""Measurements of elsewhere, whatever wrote them: tables, logs of nccl-tests, traces of profilers.

read.py finds the reader of a file; measured.py and measurements.py are what it returns. By format:

- tables: tables.py (ours), kernel_tables.py and nccl_tables.py (inference planners), table_harness.py; points
  of kernels: point_fields.py;
- logs of nccl-tests: nccl_log.py, nccl_lines.py, nccl_system.py, nccl_bus.py;
- profilers: kineto.py, nsys.py, events.py, traced.py, kernel_kinds.py, groups.py, nccl_payloads.py;
- logs of operations: operation_log.py;
- names of GPUs in all of them: named_gpus.py.
"""
