"""One noun, one meaning: no two public classes of the package share a name."""

from __future__ import annotations

import ast
from collections import defaultdict

from checkout import modules


def test_no_two_public_classes_share_a_name() -> None:
    homes: dict[str, list[str]] = defaultdict(list)
    for module, path in modules().items():
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(module)
    assert len(homes) > 300  # the walk sees them
    assert {name: where for name, where in homes.items() if len(where) > 1} == {}
