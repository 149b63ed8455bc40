"""Importers and exporters found by name: what each module of this folder has as IMPORTER or EXPORTER."""

from __future__ import annotations

from ....hardware.catalogue import unknown_name
from ....schedules.registry import Registry
from . import __path__ as _folders
from .importer import Exporter, Importer
from .sources import SourceFile
from .trainer_run import starts_trainer

IMPORTERS = Registry("framework", __package__, list(_folders), "IMPORTER", Importer)
EXPORTERS = Registry("framework to export to", __package__, list(_folders), "EXPORTER", Exporter)


def exporter_of(framework: str, version: str | None) -> Exporter:
    """The exporter of that name.

    Raises:
        ValueError: no such framework, or a ``version`` of one whose file is the same for all versions.
    """
    exporter = EXPORTERS.get(framework)
    if version is not None and not exporter.versioned:
        apart = [name for name in EXPORTERS.names() if EXPORTERS.get(name).versioned]
        raise ValueError(
            f"{framework} {version}: what is written is the same for all versions of {framework}; leave its"
            f" version (--to-version) out. It counts for {' and '.join(apart)}"
        )
    return exporter


def recognised(file: SourceFile) -> Importer | None:
    """The importer whose framework wrote this kind of file; None where nothing in it says so."""
    found = sorted((IMPORTERS.get(name) for name in IMPORTERS.names()), key=lambda one: (one.order, one.name))
    return next((one for one in found if one.recognises(file)), None)


def importer_of(files: tuple[SourceFile, ...], framework: str | None) -> Importer:
    """The importer of that name, or the one that recognises the first of the files that anyone knows. A JSON
    of DeepSpeed beside a trainer's YAML or script belongs to it.

    Raises:
        ValueError: no such framework, or nothing in the files says whose they are.
    """
    if framework is not None:
        if framework not in IMPORTERS.names():
            raise unknown_name("framework", framework, IMPORTERS.names())
        return IMPORTERS.get(framework)
    known = [(file, one) for file in files if (one := recognised(file)) is not None]
    of_trainer = any(file.kind == "yaml" or starts_trainer(file) for file, _ in known)
    found = [one for file, one in known if not (of_trainer and file.kind == "json")]
    if not found:
        names = ", ".join(one.name for one in files)
        if all(one.kind == "json" and "model_type" in one.keys for one in files):
            raise ValueError(
                f"{names}: is a model of Hugging Face's, and says nothing of a job; name it in a scenario, as"
                f" in model: {files[0].path}, or let stepsim init --model {files[0].path} write one"
            )
        if all(one.path.suffix == ".py" for one in files):
            raise ValueError(
                f"{names}: is Python, which would have to be run to say what it starts; give that: the"
                " command with its options, as a script, or the configuration that it writes"
            )
        raise ValueError(
            f"{names}: nothing in it says which framework it is of; say so, as in --framework megatron-lm"
            f" (one of {', '.join(IMPORTERS.names())})"
        )
    return min(found, key=lambda one: (one.order, one.name))
