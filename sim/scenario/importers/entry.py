"""Files of a run as one scenario: read, recognised, imported; and as YAML with where each line is from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from ..documents import scenario_names
from ..errors import Mark, Problem, ScenarioError
from .source_kinds import is_foreign

if TYPE_CHECKING:
    from .draft import Imported
    from .settings import Given
    from .sources import SourceFile

SIGNS = ("cluster", "extends", "step_time")
"""Keys of scenarios that no framework's file has beside its own."""


def is_scenario(source: str | Path) -> bool:
    """Whether ``source`` is a shipped scenario's name, or a file that no importer is asked about."""
    path = Path(source)
    if str(source) in scenario_names() or not path.is_file():
        return not is_foreign(path)
    if is_foreign(path):
        return False
    if path.suffix.lower() not in (".yaml", ".yml", ".json"):
        return path.suffix not in ("", ".slurm")
    from .sources import read_source

    try:
        file = read_source(path)
    except ValueError:
        return True  # the scenario's own reader says what is wrong
    if file.keys & set(SIGNS):
        return True
    from .registry import recognised

    return recognised(file) is None


def given_of(lines: Iterable[str]) -> Given:
    """``NAME=VALUE`` lines as what a user gives.

    Raises:
        ScenarioError: a line that is not of this form.
    """
    from .settings import GIVEN, Given

    values: dict[str, str] = {}
    for line in lines:
        name, equals, value = line.partition("=")
        if not equals or not name.strip():
            mark = Mark(file=GIVEN, column=1, source_line=line)
            message = "write a fact as NAME=VALUE, as in gpus=64"
            raise ScenarioError([Problem(mark=mark, path="", message=message, value=line)])
        values[name.strip()] = value.strip()
    return Given(values=values)


def import_files(
    paths: Sequence[str | Path],
    given: Iterable[str] = (),
    *,
    framework: str | None = None,
    version: str | None = None,
) -> Imported:
    """The scenario document that the files of one run are, with notes.

    Args:
        paths: a launch script, a configuration, and what belongs to it (ds_config.json, config.json).
        given: facts that the files do not hold, as lines ``gpus=64``.
        framework: whose files they are, by name; None: what stands in them says it.
        version: of the framework, as its releases are called; None: what an export wrote, else what the
            importer tells from the options.

    Raises:
        ValueError: a file cannot be read, or nobody knows whose it is.
        ScenarioError: everything that is asked or refused.
    """
    from .importer import ImportJob
    from .registry import importer_of
    from .sources import read_source

    files = tuple(read_source(Path(path)) for path in paths)
    if empty := next((file.name for file in files if not file.text.strip()), None):
        raise ValueError(f"{empty}: is empty")
    bare = next(
        (file.name for file in files if file.kind in ("json", "yaml", "toml") and not file.keys), None
    )
    if bare is not None:
        raise ValueError(f"{bare}: holds no fields by name, which every framework's configuration does")
    own = next((file.name for file in files if file.keys & set(SIGNS)), None)
    if framework is None and own is not None:
        raise ValueError(
            f"{own}: is a scenario already: stepsim run takes it as it is, export turns it into flags"
        )
    importer = importer_of(files, framework)
    version = version or next((file.written_version for file in files if file.written_version), None)
    imported = importer.read(ImportJob(files=files, given=given_of(given), version=version))
    imported = replace(imported, notes=(*imported.notes, *_unused(files, imported)))
    if version is None or importer.versioned:
        return imported
    note = f"files of {importer.name} are read in one way, whatever the version; {version} changes nothing"
    return replace(imported, notes=(*imported.notes, note))


def _unused(files: Sequence[SourceFile], imported: Imported) -> list[str]:
    """Notes of documents that no field of the scenario is from; scripts read theirs in their own lines."""
    if len(files) < 2 or any(file.is_command for file in files):
        return []
    places = list(imported.origins.values())
    return [
        f"{file.name}: no field of the scenario is from this file, so {imported.framework} may not read it"
        for file in files
        if not any(
            place.startswith((f"{file.name}:", f"{file.name} ")) or place == file.name for place in places
        )
    ]


def commented_yaml(imported: Imported, name: str) -> str:
    """The scenario as YAML, with a comment on each line that says where it came from."""
    lines = [
        f"# Imported from {name} ({imported.framework}{f' {imported.version}' if imported.version else ''}).",
        *(f"# Note: {note}" for note in imported.notes),
    ]
    if imported.ignored:
        lines.append(f"# Without effect here: {', '.join(imported.ignored)}")
    lines += _block(imported.document, "", 0, imported.origins)
    return "\n".join(line.replace("\ue000", "").replace("\ue001", "") for line in lines) + "\n"


def _block(block: Mapping[str, Any], prefix: str, depth: int, origins: Mapping[str, str]) -> list[str]:
    lines = []
    for key, value in block.items():
        path = f"{prefix}{key}"
        if isinstance(value, dict) and path not in origins:
            lines.append(f"{'  ' * depth}{key}:")
            lines += _block(value, f"{path}.", depth + 1, origins)
            continue
        shown = yaml.safe_dump(value, default_flow_style=True, width=10**6, sort_keys=False).strip()
        shown = shown.removesuffix("\n...").strip()
        comment = " ".join(origins.get(path, "").split())
        lines.append(f"{'  ' * depth}{key}: {shown}" + (f"  # {comment}" if comment else ""))
    return lines
