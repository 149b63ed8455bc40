"""Measurements of elsewhere, whatever wrote them: tables, logs of nccl-tests, traces of profilers."""
