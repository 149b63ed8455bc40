"""The cases as a page in Markdown: docs/reliability.md."""

from __future__ import annotations

from collections.abc import Sequence

from .case import CaseVerdict

HEAD = """# Reliability: closed forms and published cases

Written by `stepsim faults --cases docs/reliability.md`; do not edit. Each row is a campaign simulated event
by event and held against a formula or a publication. SE: standard errors of the replications. What the words
of a campaign mean, and the formulas, stand in [faults.md](faults.md).

"""

ORDER = ("missed", "ok", "explained", "not run")
WORDS = {
    "ok": "within tolerance",
    "missed": "outside tolerance",
    "explained": "must not match; the note says why",
    "not run": "inputs or a part of the simulator are missing; the note says which",
}


def cases_page(rows: Sequence[CaseVerdict]) -> str:
    """The whole page."""
    counts = {name: sum(row.verdict == name for row in rows) for name in ORDER}
    summary = "\n".join(f"- {counts[name]} {name}: {WORDS[name]}" for name in ORDER if counts[name])
    lines = ["| Case | What | Expected | Found | Tolerance | | Source |", "|---|---|---|---|---|---|---|"]
    notes: list[str] = []
    for row in rows:
        mark = ""
        if row.note:
            if row.note not in notes:
                notes.append(row.note)
            mark = f" [{notes.index(row.note) + 1}]"
        cells = (
            row.number,
            row.title + mark,
            row.expected,
            row.found,
            row.tolerance,
            row.verdict,
            row.source,
        )
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    listed = "\n".join(f"{number}. {note}" for number, note in enumerate(notes, 1))
    return f"{HEAD}{summary}\n\n" + "\n".join(lines) + (f"\n\n## Notes\n\n{listed}\n" if notes else "\n")
