"""Fits of measurements to the constants of a profile: kernels, collectives, and what carries over.

Read kernels.py first, which fits every shipped GPU, and curve_fit.py, the robust fit that all others use.
Constants that only step times show are fitted in steps/, profiles of a user's own in own/.

- kernels: gemm.py and gemm_table.py, library.py (GEMMs of four bit), sweep_times.py, table_times.py,
  attention.py, attention_table.py;
- collectives: collectives.py (a curve each), collective_constants.py (the constants of all);
- GPUs without measurements: carried.py;
- how wide intervals must be: growth.py, layout_spread.py, memory_spread.py;
- shared, and what is written: curve_fit.py, constants_read.py (which predictions a changed constant
  touches), profile_file.py, residual_table.py.
"""
