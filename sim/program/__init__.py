"""Programs as data: what each rank class will do, written, read and checked before any time passes.

- what a program is: program.py; how one is written: program_builder.py; solo.py (how long a block takes
  alone);
- the same in another form: expand.py (without repeated blocks), bind.py (bindings written in), repeated.py
  (several steps), uncontended.py (nobody shares anything);
- checks: check.py, matching.py, deadlock.py;
- files: file.py (the format), writer.py, reader.py, fields.py.
"""
