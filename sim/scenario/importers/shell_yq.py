"""What ``yq`` says of a YAML file that a launch script reads its options from.

Knows two questions: all entries of a block as words (``.BLOCK | to_entries``), and one entry
(``.BLOCK."KEY"``), as launchers of Megatron-MoE-ModelZoo ask them. Does not
know where the script got its variables.

Source: yanring/Megatron-MoE-ModelZoo sbatch_benchmarking.sh (38ce2ed2); mikefarah.gitbook.io/yq.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

_ENTRIES = re.compile(r"\.(\w+)\s*\|\s*to_entries\b")
_ENTRY = re.compile(r"""\.(\w+)\.(?:"([^"]+)"|([\w-]+))""")
_JOIN = re.compile(r"""\.key\s*\+\s*"([ =])"\s*\+\s*\.value""")


def asks_yq(command: str) -> bool:
    """Whether a command is a question to yq."""
    return re.match(r"\s*yq\s", command) is not None


def answered(
    command: str, documents: Mapping[str, Mapping[str, Any]], put_in: Callable[[str], str]
) -> str | None:
    """The answer, with variables put in as envsubst does (``put_in``); None where the question is another
    one, or where none or several of the ``documents``, by file name, hold its block."""
    entries, entry = _ENTRIES.search(command), _ENTRY.search(command)
    asked = entries or entry
    if asked is None:
        return None
    blocks = [one[asked[1]] for one in _meant(command, documents) if isinstance(one.get(asked[1]), Mapping)]
    if len(blocks) != 1:
        return None
    values = {str(key): put_in(_text(value)) for key, value in blocks[0].items()}
    if entries is None:
        assert entry is not None
        return values.get(entry[2] or entry[3], "null")
    between = _JOIN.search(command)
    if between is None:
        return None
    if '"false"' in command:  # select(.value != "false"), and true leaves the name alone
        values = {key: "" if value == "true" else value for key, value in values.items() if value != "false"}
    return " ".join(f"{key}{between[1]}{value}".rstrip(" ") for key, value in values.items())


def _meant(command: str, documents: Mapping[str, Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The file that the command names, or all where its name is open."""
    named = [one for name, one in documents.items() if name in command]
    return named or list(documents.values())


def _text(value: Any) -> str:
    """A scalar as YAML writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)
