"""Views of a result: tables, JSON, timeline picture, trace, span files, comparison. Knows no clock.

- a step: tables.py, memory_table.py, bounds_table.py, captions.py; compare.py and compare_table.py;
- what makes a step differ: step_faults_table.py, step_hang_table.py, variation_table.py, gpu_kinds_table.py,
  neighbours_table.py;
- files: trace.py, trace_messages.py, spans_file.py, rows_file.py;
- catalogues and parts: gpus.py, hardware.py, software.py, collective.py;
- pictures are in drawing/, timeline/, topology/, memory/; schedules, plans and weeks have folders of their
  own.
"""
