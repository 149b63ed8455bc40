"""Imported once by the server that workers are forked from, so that each begins with all of it at hand."""

from __future__ import annotations

import os

from . import tasks

for library in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(library, "1")  # one core a worker, and no thread that a fork would lose

tasks.warm()
