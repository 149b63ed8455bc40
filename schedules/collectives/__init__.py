"""The collective algorithms, found by name: every module of this folder that ends in ``ALGORITHM = ...``.

>>> get("ring").title
'Ring'
"""

from __future__ import annotations

from ..registry import Registry
from ..transfers.algorithm import Algorithm

ALGORITHMS = Registry("collective algorithm", __name__, __path__, "ALGORITHM", Algorithm)

get, names = ALGORITHMS.get, ALGORITHMS.names
