"""Small files of published cases, for tests of what is said of them rather than of how long they take."""

from __future__ import annotations

from pathlib import Path

import yaml


def first_cases(shared: Path, number: int, path: Path) -> Path:
    """A file at ``path`` with the first cases of Korthikanti et al., the smallest first."""
    document = yaml.safe_load((shared / "data" / "cases" / "korthikanti_2022.yaml").read_text())
    document["cases"] = document["cases"][:number]
    path.write_text(yaml.safe_dump(document))
    return path
