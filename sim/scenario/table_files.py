"""Tables of actions in files: schedules/orders knows their text, and files are opened here.

Knows no cell. ``schedules`` imports nothing of ours, so it cannot open files in the way that all of us do.
"""

from __future__ import annotations

from pathlib import Path

from ...hardware.files import read_text, write_text
from ...schedules.orders.action import Orders
from ...schedules.orders.table import ActionTable
from ...schedules.orders.table_file import format_table, parse_table


def read_table(path: str | Path) -> ActionTable:
    """The table in ``path``.

    Raises:
        ValueError: no such file, or naming file, row (from 1), rank, column (from 1) and text of a cell, and
            what is expected.
    """
    return parse_table(read_text(path), str(path))


def write_table(orders: Orders, path: str | Path) -> None:
    """Write orders, the same bytes as torch would."""
    write_text(path, format_table(orders))
