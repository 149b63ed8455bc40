"""What a software preset implies, as text, as a document, and as the page docs/software.md.

A view of sim/scenario/software: it knows how a rule reads, and none of the rules.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..scenario.software import Software, get_software, software_names
from ..scenario.software.rules import PresetRule, framework_of, rules_of
from ..scenario.software.software import GROUPS

ALWAYS_SHOWN = (
    "attention", "implementation", "main_grad_bytes", "overlap_grad_reduce", "overlap_param_gather",
    "tp_comm_overlap", "cp_comm", "cross_entropy", "point_to_point", "p2p_host_sync", "torch_compile",
    "cuda_graphs", "host_s_per_kernel",
)  # fmt: skip
"""Fields that a reader wants to know of every stack, also where they are the default."""


@dataclass(frozen=True, kw_only=True)
class Implied:
    """One rule in words: what it is about, what the framework does, which fields that fixes."""

    topic: str
    says: str
    fixes: str
    contradicted: str
    source: str


def implied(preset: str) -> tuple[Implied, ...]:
    """What the preset implies, rule by rule. Raises ValueError for an unknown preset."""
    get_software(preset)
    return tuple(
        Implied(
            topic=rule.topic,
            says=rule.says,
            fixes=_fixes(rule),
            contradicted=rule.severity,
            source=rule.source,
        )
        for rule in rules_of(preset)
    )


def software_document(preset: str) -> dict[str, Any]:
    """The preset's fields and its rules, for machines."""
    framework = framework_of(preset)
    return {
        "name": preset,
        "framework": framework.name if framework else None,
        "software": get_software(preset).model_dump(mode="json"),
        "implies": [vars(one) for one in implied(preset)],
    }


def software_text(preset: str) -> str:
    """What ``stepsim list software NAME`` prints."""
    from textwrap import fill

    software = get_software(preset)
    lines = [f"{preset}: {software.title}", software.source, ""]
    for one in implied(preset):
        heading = one.topic + (f" ({one.contradicted} where contradicted)" if one.contradicted else "")
        lines += [heading, fill(f"it {one.says}", 110, initial_indent="  ", subsequent_indent="  ")]
        if one.fixes:
            lines.append(f"  {one.fixes.replace('`', '')}")
        lines.append(fill(one.source, 110, initial_indent="  [", subsequent_indent="   ") + "]")
    lines += ["", "software:"]
    for group, fields in _fields(software):
        block = f"{group}: {{{', '.join(fields)}}}"
        lines.append(fill(block, 110, initial_indent="  ", subsequent_indent="    "))
    return "\n".join(lines)


def software_page() -> str:
    """All presets in Markdown: what each one stands for, then a section each."""
    rows = [
        f"| [{name}](#{name.replace('.', '')}) | {_cell(get_software(name).title)} |"
        for name in software_names()
    ]
    contents = "\n".join(["| preset | stands for |", "| --- | --- |", *rows])
    return "\n\n".join([contents, *(_section(name) for name in software_names())])


def _section(preset: str) -> str:
    software = get_software(preset)
    rows = [
        f"| {one.topic} | it {_cell(one.says)} | {one.fixes} | {one.contradicted} | {_cell(one.source)} |"
        for one in implied(preset)
    ]
    groups = [
        f"{group} " + ", ".join(f"`{field}`" for field in fields) for group, fields in _fields(software)
    ]
    return "\n".join(
        [
            f"## {preset}",
            "",
            f"{software.title}. Read off {software.source}.",
            "",
            "| about | what the framework does | what that fixes | contradicted | source |",
            "| --- | --- | --- | --- | --- |",
            *rows,
            "",
            f"Software: {'; '.join(groups)}.",
        ]
    )


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("_*", "_\\*")


def _fixes(rule: PresetRule) -> str:
    """The field and what it may be, and where."""
    if not rule.path:
        return ""
    parts = []
    if rule.always is not None:
        parts.append(_value(rule.always))
    elif rule.default is not None:
        parts.append(f"{_value(rule.default)} where nothing is said")
    if rule.among:
        parts.append("one of " + ", ".join(_value(one) for one in rule.among))
    if rule.multiple_of:
        parts.append("a multiple of " + " × ".join(_name(one) for one in rule.multiple_of))
    if rule.options:
        parts.append("options " + ", ".join(_value(one) for one in rule.options))
    text = f"`{rule.path}`: {'; '.join(parts)}"
    where = [f"{_name(path)} {_condition(wanted)}" for path, wanted in rule.when.items()]
    return text + (f", where {' and '.join(where)}" if where else "")


def _condition(wanted: Any) -> str:
    return f"> {wanted[1:]}" if isinstance(wanted, str) and wanted.startswith(">") else f"is {wanted}"


def _name(part: Any) -> str:
    """A field, or a product of fields, by the last words of their paths."""
    return " × ".join(name.rpartition(".")[2] for name in str(part).split("*"))


def _value(value: Any) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return _name(text) if text.startswith("parallelism.") else f"`{text}`"


def _fields(software: Software) -> list[tuple[str, list[str]]]:
    """The fields by which a stack differs from others, as YAML has them, by group; no group is empty."""
    shown = []
    for group, kind in GROUPS.items():
        block = getattr(software, group)
        values = {name: (getattr(block, name), info.default) for name, info in kind.model_fields.items()}
        differ = {name: v for name, (v, usual) in values.items() if name in ALWAYS_SHOWN or v != usual}
        shown.append((group, [f"{name}: {_yaml(value)}" for name, value in differ.items()]))
    return [(group, fields) for group, fields in shown if fields]


def _yaml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)
