"""Makes NOTICE and docs/sources.md: whose figures the shipped files carry, and under which licences.

python docs/sources_page.py            writes them anew (make docs)
python docs/sources_page.py --check    changes nothing; exit code 1 where one is out of date

Every ``source`` of a shipped YAML file is listed. A repository named in one must be in docs/licences.yaml.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
DATA = ("calibration", "hardware", "scenarios", "sim")
KEYS = {"source", "sources"}
OWNERS = re.compile(r"(?<![\w./-])([A-Za-z][\w-]*/[A-Za-z][\w.-]*[\w])")
PROJECTS = {
    "aiconfigurator": "ai-dynamo/aiconfigurator",
    "simumax": "MooreThreads/SimuMax",
    "flash-attention": "Dao-AILab/flash-attention",
    "mamf": "stas00/ml-engineering",
    "Megatron-LM": "NVIDIA/Megatron-LM",
    "Megatron core": "NVIDIA/Megatron-LM",
    "DeepSpeed runtime": "deepspeedai/DeepSpeed",
    "pytorch#": "pytorch/pytorch",
    "torch/": "pytorch/pytorch",
    "bigscience": "bigscience-workshop/bigscience",
    "nccl-tests": "NVIDIA/nccl-tests",
    "NCCL": "NVIDIA/nccl",
    "aws-ofi-nccl": "aws/aws-ofi-nccl",
}
"""Names by which sources call a repository for short."""


def sources() -> dict[str, list[str]]:
    """Every source of every shipped YAML file, by file."""
    found: dict[str, list[str]] = {}
    for path in sorted(path for folder in DATA for path in (ROOT / folder).rglob("*.yaml")):
        stated = dict.fromkeys(_stated(yaml.safe_load(path.read_text(encoding="utf-8"))))
        if stated:
            found[path.relative_to(ROOT).as_posix()] = list(stated)
    return found


def _stated(node: Any, *, inside: bool = False) -> Iterator[str]:
    if isinstance(node, str):
        if inside:
            yield " ".join(node.split())
    elif isinstance(node, dict):
        for key, value in node.items():
            yield from _stated(value, inside=inside or key in KEYS)
    elif isinstance(node, list):
        for value in node:
            yield from _stated(value, inside=inside)


def unknown(stated: dict[str, list[str]], repositories: dict[str, Any]) -> list[str]:
    """Sources that name a repository by its address, or beside one of the same owner, without an entry."""
    owners = {one.partition("/")[0] for one in repositories}
    lost = []
    for file, lines in stated.items():
        text = "\n".join(line for line in lines if "config.json" not in line)  # those are models
        named = [name for name in OWNERS.findall(text) if name.partition("/")[0] in owners]
        named += re.findall(r"github\.com/([\w.-]+/[\w.-]+)", text)
        known = {name.casefold() for name in repositories}
        lost += [f"{file}: {name}" for name in named if name.casefold() not in known]
    return lost


def named(repository: str, stated: dict[str, list[str]]) -> list[str]:
    """Files whose sources name a repository, by its name or for short."""
    names = [repository, *(short for short, home in PROJECTS.items() if home == repository)]
    return [file for file, lines in stated.items() if any(name in line for line in lines for name in names)]


NOTICE = """stepsim
Copyright The stepsim authors, licensed under Apache-2.0 (LICENSE).

It carries figures and rules from the projects below, each cited where it stands. None of their files is
part of this distribution.

"""

PAGE = """# Sources and licences

Made by `make docs` from the shipped files and docs/licences.yaml.

stepsim is [Apache-2.0](https://www.apache.org/licenses/LICENSE-2.0). It carries figures and rules of others,
each cited where it stands; no file of theirs is in the package.

"""


def notice(record: dict[str, Any]) -> str:
    """The file NOTICE, which wheels and sdists carry."""
    lines = [f"- {name} ({licence}): {taken}" for name, (licence, taken) in record["repositories"].items()]
    papers = record["papers"].replace("this page", "docs/sources.md")
    return NOTICE + "\n".join([*lines, "", record["models"], papers, ""])


def page(record: dict[str, Any], stated: dict[str, list[str]]) -> str:
    """docs/sources.md."""
    lines = [record["models"], "", record["papers"], "", "## Projects", ""]
    lines += ["| project | its licence | what stepsim carries | files that name it |", "|---|---|---|---|"]
    for name, (licence, taken) in record["repositories"].items():
        files = [f"`{file}`" for file in named(name, stated)]
        more = [f"{len(files) - 3} more"] if files[3:] else []
        where = ", ".join([*files[:3], *more]) or "source code, in docstrings"
        lines.append(f"| {name} | {licence} | {taken} | {where} |")
    lines += ["", "## Every source, file by file", ""]
    for file, every in stated.items():
        lines += [f"### {file}", "", *(f"- {_escaped(line)}" for line in every), ""]
    return PAGE + "\n".join(lines)


def _escaped(line: str) -> str:
    return re.sub(r"([<>*_\[\]])", r"\\\1", line)


def main(arguments: list[str]) -> int:
    """Write what is out of date, or with --check only name it."""
    record = yaml.safe_load((ROOT / "docs" / "licences.yaml").read_text(encoding="utf-8"))
    stated = sources()
    if lost := unknown(stated, record["repositories"]):
        print("\n".join(["not in docs/licences.yaml:", *sorted(set(lost))]))
        return 1
    stale = 0
    for path, text in (
        (ROOT / "NOTICE", notice(record)),
        (ROOT / "docs" / "sources.md", page(record, stated)),
    ):
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale += 1
        print(f"{'out of date' if '--check' in arguments else 'written'}: {path.relative_to(ROOT)}")
        if "--check" not in arguments:
            path.write_text(text, encoding="utf-8")
    return 1 if stale and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
