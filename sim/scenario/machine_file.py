"""A file that describes a machine, or a scenario whose cluster does, for ``stepsim hardware check``."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from ...hardware.explain import dotted, errors_of, field_path
from ...hardware.fields import FROM_DOCUMENT
from ...hardware.files import FileError
from ...hardware.gpu import Gpu
from ...hardware.own_gpu import OwnGpu, gpu_from
from ...hardware.own_interconnect import OwnInterconnect
from ...hardware.own_node import OwnNode, gpu_in
from .blocks import ScenarioBlock
from .documents import whole_document
from .errors import Mark, Problem, ScenarioError
from .explain import explained
from .own_hardware import PARTS, hardware_tree, with_hardware_files
from .tree import nearest


class HardwareFile(ScenarioBlock):
    """What a file beside a scenario may hold."""

    gpu: OwnGpu | None = None
    interconnect: OwnInterconnect | None = None
    node: OwnNode | None = None


def gpu_of_file(path: Path) -> Gpu:
    """The GPU that such a file describes, joined as its host joins it.

    Raises:
        ScenarioError: with every problem found.
        ValueError: the file describes no GPU.
    """
    machine = read_machine(path)
    if machine.gpu is None:
        raise ValueError(f"{path}: describes no GPU; one of the catalogue is given by its name")
    gpu = gpu_from(machine.gpu)
    return gpu_in(machine.node, gpu) if machine.node else gpu


def read_machine(path: Path) -> HardwareFile:
    """The machine of a hardware file, or what the cluster of a scenario, and of those it extends, describes.

    Raises:
        ScenarioError: with every problem found, each at its file, line and column.
    """
    try:
        tree = hardware_tree(path)
    except FileError as error:
        raise ScenarioError([Problem(mark=Mark(file=str(path)), path="", message=error.reason)]) from None
    if "extends" in tree.entries:
        tree, _ = whole_document(path)
    prefix: tuple[str, ...] = ()
    if "cluster" in tree.entries:
        whole = with_hardware_files(tree).entries["cluster"]
        kept = {part: node for part in PARTS if (node := whole.entries.get(part)) and node.entries}
        tree, prefix = whole.with_entries(kept), ("cluster",)
    elif not set(tree.entries) & set(PARTS):
        message = f"no machine is described here: write {', '.join(PARTS)}, or a scenario with a cluster"
        raise ScenarioError([Problem(mark=tree.mark, path="", message=message)])
    try:
        return HardwareFile.model_validate(tree.plain(), context=FROM_DOCUMENT)
    except ValidationError as failure:
        found = []
        for wrong in errors_of(failure):
            at = field_path(wrong)
            message = explained(wrong, HardwareFile, {})
            found.append(Problem(mark=nearest(tree, at).mark, path=dotted((*prefix, *at)), message=message))
        raise ScenarioError(found) from None
