"""The floors of docs/architecture.svg, from the table of docs/architecture.md. What is above them stays.

python docs/architecture_picture.py
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape
from pathlib import Path

DOCS = Path(__file__).resolve().parent
ROW = re.compile(r"^\| (`[^|]+`) *\| ([^|]+?) *\|$", re.MULTILINE)
TOP, HEIGHT, GAP = 210, 22, 4
LEFT, RIGHT = 32.0, 928.0
COLOURS = {
    "api": ("#f3ecfa", "#9b7cc4"),
    "cli": ("#f3ecfa", "#9b7cc4"),
    "page": ("#f3ecfa", "#9b7cc4"),
    "calibration": ("#fdf1e3", "#d69a4c"),
    "sim": ("#e8f0fb", "#6f97cf"),
    "kernels": ("#e7f5ec", "#63ab80"),
    "schedules": ("#e7f5ec", "#63ab80"),
    "hardware": ("#eef1f4", "#8796a5"),
    "scenarios": ("#eef1f4", "#8796a5"),
}
MARK = '<text class="head" x="32" y="194">THE FLOORS'


def floors(page: str) -> list[tuple[list[str], str]]:
    """The folders of each floor from the top down, and what they hold."""
    table = page[page.index("## Floors") : page.index("## Words of our own")]
    return [(re.findall(r"`([^`]+)`", folders), text) for folders, text in ROW.findall(table)]


def rows(page: str) -> Iterator[str]:
    """The lines of the picture."""
    for number, (folders, text) in enumerate(floors(page)):
        y = TOP + number * (HEIGHT + GAP)
        width = (RIGHT - LEFT - 8.0 * (len(folders) - 1)) / len(folders)
        for i, folder in enumerate(folders):
            fill, stroke = COLOURS[folder.split("/")[0]]
            x = LEFT + i * (width + 8.0)
            box = f'x="{x:.1f}" y="{y}" width="{width:.1f}" height="{HEIGHT}" rx="4"'
            yield f'<rect class="layer" {box} fill="{fill}" stroke="{stroke}"/>'
            yield f'<text class="folder" x="{x + 12:.1f}" y="{y + 15}">{escape(folder)}</text>'
        if len(folders) == 1:
            said = escape(text.replace("`", "").rstrip("."))
            yield f'<text class="small" x="232.0" y="{y + 15}">{said}</text>'


def picture(page: str, old: str) -> str:
    """The picture with the floors of ``page``."""
    head = old[: old.index("\n", old.index(MARK)) + 1]
    height = TOP + len(floors(page)) * (HEIGHT + GAP) + 22
    head = re.sub(
        r'viewBox="0 0 960 [\d.]+" width="960" height="[\d.]+"',
        f'viewBox="0 0 960 {height}" width="960" height="{height}"',
        head,
    )
    head = re.sub(r'<rect width="960" height="[\d.]+"', f'<rect width="960" height="{height}"', head)
    return head + "\n".join(rows(page)) + "\n</svg>\n"


if __name__ == "__main__":
    page, old = ((DOCS / f"architecture.{kind}").read_text(encoding="utf-8") for kind in ("md", "svg"))
    (DOCS / "architecture.svg").write_text(picture(page, old), encoding="utf-8")
