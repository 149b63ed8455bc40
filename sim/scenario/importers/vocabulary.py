"""How many entries a tokenizer has, where its name is known; in launch scripts nothing else says it."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

from ....hardware.files import load_yaml


@cache
def _table() -> tuple[tuple[re.Pattern[str], int, str], ...]:
    name = "vocabularies.yaml"
    rows = load_yaml((files(__package__) / name).read_text(encoding="utf-8"), name)
    return tuple((re.compile(row["match"], re.IGNORECASE), row["size"], row["source"]) for row in rows)


def vocabulary_of(tokenizer: str) -> tuple[int, str] | None:
    """Entries of the tokenizer of that name or file, and the source; None where it is not known.

    >>> vocabulary_of("meta-llama/Llama-3.1-8B")[0]
    128256
    """
    for pattern, size, source in _table():
        if pattern.search(tokenizer[:500]):
            return size, source
    return None
