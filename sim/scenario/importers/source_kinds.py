"""What a file of a run is by the end of its name, and whether that may be no scenario."""

from __future__ import annotations

from pathlib import Path

_KINDS = {
    ".sh": "shell", ".bash": "shell", ".slurm": "shell", ".sbatch": "shell", ".sub": "shell",
    ".toml": "toml", ".json": "json", ".yaml": "yaml", ".yml": "yaml",
    ".args": "arguments", ".txt": "arguments",
}  # fmt: skip
"""Kind of a file by the end of its name."""


def kind_of(path: Path) -> str | None:
    """``shell``, ``toml``, ``json``, ``yaml`` or ``arguments``; None where the name does not say it."""
    return _KINDS.get(path.suffix.lower())


def is_foreign(path: Path) -> bool:
    """Whether the end of the name says that this may be another framework's file, and no scenario."""
    return kind_of(path) in ("shell", "toml", "arguments")
