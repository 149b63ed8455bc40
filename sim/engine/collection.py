"""Pauses the garbage collector while many objects are made that stay.

A step has a hundred thousand ops, times and events, none of which form cycles; scanning them again and
again costs a third more.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collection_paused() -> Iterator[None]:
    """No automatic garbage collection inside; afterwards as it was before."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
