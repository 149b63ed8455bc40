"""The report as one HTML page that needs nothing from outside: it answers what should be fixed first."""

from __future__ import annotations

import html
import math
from collections.abc import Iterator
from pathlib import Path

from ....hardware.files import write_text
from ....hardware.quantities import DAY_S, HOUR_S
from ....hardware.shown import printable_line
from ...figures import count, large, lasting
from ...reliability.answers import Answers, rests_on
from ...reliability.campaign.ledger import BADPUT, MEANING
from . import plots
from .tables import headline

MOST_ENTRIES = 60
STYLE = """
body { font-family: Helvetica, Arial, 'Liberation Sans', sans-serif; color: #222; max-width: 1100px;
  margin: 24px auto; padding: 0 20px; line-height: 1.45 }
h1 { font-size: 24px; margin: 0 0 4px }
h2 { font-size: 18px; margin: 34px 0 4px }
p.sub { color: #666; margin: 0 0 14px }
.fix { background: #eef5ee; border-left: 5px solid #2f7d4f; padding: 12px 18px; margin: 18px 0;
  font-size: 16px }
.cards { display: flex; flex-wrap: wrap; gap: 12px; margin: 16px 0 }
.card { border: 1px solid #d9d9d5; border-radius: 6px; padding: 10px 14px; min-width: 150px; flex: 1 }
.card b { display: block; font-size: 20px }
.card span { color: #666; font-size: 12.5px }
.card i { font-style: normal; font-size: 13px }
table { border-collapse: collapse; font-size: 13px; width: 100% }
td, th { padding: 4px 10px 4px 0; text-align: left; border-bottom: 1px solid #eee }
td.n, th.n { text-align: right }
.two { display: grid; grid-template-columns: 1fr 1fr; gap: 24px }
@media (max-width: 900px) { .two { grid-template-columns: 1fr } }
"""


def write_page(answers: Answers, path: Path) -> None:
    """Write the page."""
    title = escape(answers.blocks.title or answers.blocks.name)
    body = "\n".join(_sections(answers, title))
    write_text(
        path,
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>Faults: {title}</title>'
        f"<style>{STYLE}</style></head>\n<body>\n{body}\n</body></html>\n",
    )


def escape(words: str) -> str:
    """Text as HTML, control characters spelt out."""
    return html.escape(printable_line(words))


def _sections(answers: Answers, title: str) -> Iterator[str]:
    yield from _head(answers, title)
    if answers.worths:
        yield from _worths(answers)
    yield (
        "<h2>Where the time goes</h2><p class=sub>All that is not useful; with the useful time it is the "
        "whole of the wall clock.</p>"
    )
    yield plots.lost_plot(answers.study)
    yield _waterfall(answers)
    if answers.optimum:
        yield (
            "<h2>How often to checkpoint</h2><p class=sub>Simulated, beside the exact formula for "
            "exponential failures.</p>"
        )
        yield plots.optimum_plot(answers)
    yield from _runs(answers)
    yield (
        "<h2>Rests on</h2><ul>"
        + "".join(
            f"<li>{escape(text)} <small>({escape(source)})</small></li>" for text, source in rests_on(answers)
        )
        + "</ul>"
    )
    yield _log(answers)


def _head(answers: Answers, title: str) -> Iterator[str]:
    """The title, what was simulated, what to do, and the figures that people quote."""
    study, plan = answers.study, answers.study.plan
    yield f"<h1>{title}</h1>"
    ends = lasting(plan.horizon_s) if plan.goal_steps == math.inf else "until the work is done"
    yield (
        f'<p class="sub">{count(plan.machine.gpus)} GPUs on {count(plan.machine.nodes)} hosts, {ends}; '
        f"{len(study.outcomes)} replications; recovery by {escape(plan.recovering.policy)}</p>"
    )
    yield f'<div class="fix">{"<br>".join(verdict_sentences(answers))}</div>'
    yield (
        '<div class="cards">'
        + "".join(
            f"<div class=card><i>{escape(what)}</i><b>{escape(figure)}</b><span>{escape(remark)}</span></div>"
            for what, figure, remark in headline(answers)
        )
        + "</div>"
    )


def _worths(answers: Answers) -> Iterator[str]:
    """What each mitigation gains, and what each kind of fault costs."""
    yield (
        "<h2>What to fix first</h2><p class=sub>The same failures again with one thing done better; "
        "bars are 95 % intervals of the difference. Grey: a bound, which no fix reaches.</p>"
    )
    yield plots.worth_plot(answers.worths, "mitigation")
    yield "<h2>What each kind of fault costs</h2><p class=sub>The same run with that kind switched off.</p>"
    yield plots.worth_plot(answers.worths, "fault")


def _runs(answers: Answers) -> Iterator[str]:
    """How one run goes, how runs differ, and the hosts in repair."""
    study = answers.study
    yield (
        "<h2>How one run goes</h2><p class=sub>The first replication. Marks below the curves are faults.</p>"
    )
    yield plots.history_plot(study)
    repairs = plots.repairs_plot(study)
    yield '<div class="two"><div><h2>How runs differ</h2>' + plots.spread_plot(study) + "</div>"
    yield (f"<div><h2>Spares</h2>{repairs}</div>" if repairs else "<div></div>") + "</div>"


def verdict_sentences(answers: Answers) -> Iterator[str]:
    """The answer as a sentence."""
    study = answers.study
    lost = {name: share for name, share in study.waterfall.items() if name != "useful"}
    name, share = max(lost.items(), key=lambda pair: pair[1])
    hours = study.wall.mean / HOUR_S
    yield (
        f"<b>{study.ettr.mean * 100:.1f} % of the time is useful.</b> Of the rest, most goes into "
        f"<b>{escape(name)}</b> ({escape(MEANING[name])}): {share * 100:.1f} %, {share * hours:,.0f} hours "
        f"of a run."
    )
    if answers.stuck:
        why = escape(answers.study.stuck[0].stuck_why)
        yield f"<b>The run got no further:</b> {why}."
    better = [one for one in answers.worths if one.about == "mitigation" and one.gain.low > 0]
    if better:
        first = better[0]
        others = ", then ".join(f"{escape(one.name)} ({one.gain.mean * 100:+.1f})" for one in better[1:3])
        also = f" Next: {others}." if others else ""
        yield (
            f"<b>Fix first: {escape(first.name)}</b>: {first.gain.mean * 100:+.1f} points of ETTR, "
            f"{abs(first.hours):,.0f} hours of a run.{also}"
        )
    worst = [one for one in answers.worths if one.about == "fault" and one.gain.low > 0]
    if worst:
        yield (
            f"The costliest kind of fault is <b>{escape(worst[0].name.removeprefix('no '))}</b>: "
            f"{worst[0].gain.mean * 100:.1f} points."
        )
    if not math.isnan(answers.tokens_per_s):
        yield f"Goodput: {large(answers.tokens_per_s)} tokens/s."


def _waterfall(answers: Answers) -> str:
    study = answers.study
    hours = study.wall.mean / HOUR_S
    rows = "".join(
        f"<tr><td>{name}<td class=n>{share * 100:.2f} %<td class=n>{share * hours:,.1f} "
        f"h<td>{escape(MEANING[name])}<td><small>{BADPUT[name]}</small>"
        for name, share in study.waterfall.items()
        if share or name == "useful"
    )
    return (
        f"<table><tr><th>category<th class=n>share<th class=n>of a run<th>meaning<th>ml-goodput's "
        f"name{rows}</table>"
    )


def _log(answers: Answers) -> str:
    log = answers.study.outcomes[0].log
    rows = "".join(
        f"<tr><td class=n>{entry.at_s / DAY_S:.3f}<td>{escape(entry.kind)}<td>{escape(entry.source)}"
        f"<td>{escape(entry.target)}<td class=n>{lasting(entry.detected_s - entry.at_s)}"
        f"<td class=n>{lasting(entry.lost_s)}<td class=n>{lasting(entry.resumed_s - entry.at_s)}"
        f"<td>{entry.tier}"
        for entry in log[:MOST_ENTRIES]
    )
    more = (
        f"<p class=sub>{len(log) - MOST_ENTRIES} more; --events writes them all.</p>"
        if len(log) > MOST_ENTRIES
        else ""
    )
    return (
        "<h2>What happened, first replication</h2><table><tr><th class=n>day<th>kind<th>source<th>target<th "
        "class=n>noticed after"
        f"<th class=n>work lost<th class=n>back after<th>restored from{rows}</table>{more}"
    )
