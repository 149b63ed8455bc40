"""How commands end, as numbers to rely on; 0 is done. Loads nothing, so that a process knows them at once."""

from __future__ import annotations

BAD_INPUT = 2
DEFECT = 3
INTERRUPTED = 130  # what a shell reports for a process that SIGINT ended
READER_GONE = 141  # the same of SIGPIPE
