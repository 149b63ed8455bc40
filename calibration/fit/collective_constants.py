"""The constants of collectives.yaml fitted jointly on measured sweeps, and written back into that file.

Knows which constants sweeps can show, where each starts, and between which bounds physics keeps it.
The model that turns constants into seconds is handed in, so that what is fitted is what predicts.

A constant that no sweep shows stays where it starts. Starts come from NCCL's own table (2.28.9
src/graph/tuning.cc: base and hop latencies, LL's half and LL128's 120/128 of the rate, NVLS's .85
and .74), never from a fit, so that a fit without a log knows nothing of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ...hardware.collectives import CollectiveConstants, constants_from_document
from .collectives import FittedConstant
from .constants_read import remembered

if TYPE_CHECKING:
    from numpy.typing import NDArray

_TOLERANCE = 0.1  # relative error at which the loss turns from squares to absolute values
_LOOSENESS = 3.0  # standard deviation of a start, in natural logarithms: a factor of 20

Case = TypeVar("Case")


@dataclass(frozen=True, kw_only=True)
class CollectiveParameter:
    """A constant of the file by its path, where it starts, and its bounds."""

    path: str
    start: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Observed(Generic[Case]):
    """A case that the model knows, and its measured seconds in the order of the predicted ones."""

    name: str
    case: Case
    seconds: tuple[float, ...]


Predict = Callable[[Case, CollectiveConstants], Sequence[float]]


def _around(path: str, start: float, factor: float = 5.0) -> CollectiveParameter:
    return CollectiveParameter(path=path, start=start, low=start / factor, high=start * factor)


def _between(path: str, start: float, low: float, high: float) -> CollectiveParameter:
    return CollectiveParameter(path=path, start=start, low=low, high=high)


PARAMETERS = (
    _around("architectures.ampere.base_s", 1.0e-5),
    # Logs of A100 are all of 8 GPUs a node, which do not tell a start from steps: what other GPUs show.
    _between("architectures.ampere.step_s", 1.2e-6, 0.9e-6, 1.5e-6),
    # 235 of 240 GB/s measured on 8 GPUs (the project's table of hardware facts, 3.2).
    _between("architectures.ampere.ring_efficiency", 0.98, 0.95, 1.0),
    _between("architectures.ampere.ll_rate", 0.25, 0.15, 0.5),
    _around("architectures.hopper.base_s", 6.6e-6),
    _around("architectures.hopper.step_s", 0.6e-6),
    _between("architectures.hopper.ring_efficiency", 0.97, 0.9, 1.0),
    _between("architectures.hopper.ll_rate", 0.5, 0.25, 0.5),
    _between("architectures.hopper.nvls_efficiency", 0.85, 0.7, 1.0),
    _around("architectures.hopper.nvls_latency_s", 2.5e-5),
    _around("architectures.blackwell.base_s", 6.6e-6),
    _around("architectures.blackwell.step_s", 0.6e-6),
    _between("architectures.blackwell.ring_efficiency", 0.97, 0.9, 1.0),
    _between("architectures.blackwell.ll_rate", 0.5, 0.25, 0.5),
    _between("architectures.blackwell.nvls_efficiency", 0.74, 0.6, 1.0),
    _around("architectures.blackwell.nvls_latency_s", 2.5e-5),
    _between("protocols.LL.node_pipelining", 0.2, 0.02, 1.6),
    _between("protocols.LL.network_pipelining", 0.5, 0.02, 1.6),
    _between("protocols.LL128.latency", 1.5, 1.0, 4.0),
    _between("protocols.LL128.rate", 0.92, 0.6, 0.9375),  # 120 of every 128 bytes are data
    _between("protocols.LL128.node_pipelining", 0.5, 0.02, 1.6),
    _between("protocols.LL128.network_pipelining", 0.5, 0.02, 1.6),
    _between("protocols.Simple.latency", 2.5, 1.0, 6.0),
    _between("protocols.Simple.node_pipelining", 0.5, 0.02, 1.6),
    _between("protocols.Simple.network_pipelining", 0.5, 0.02, 1.6),
    _between("nvls.pipelining", 0.5, 0.02, 1.6),
    _around("nvls.rank_loss", 0.002),
    _between("nvls.tree_efficiency", 0.92, 0.7, 1.0),
    _between("nvls.tree_pipelining", 0.5, 0.02, 1.6),
    _around("fabrics.infiniband.hop_s", 5.0e-6, 50),
    _around("fabrics.tcpxo.hop_s", 5.0e-6, 50),
    _around("fabrics.efa.hop_s", 5.0e-6, 50),
    _between("fabrics.infiniband.pairwise_bytes_per_s", 2.0e10, 1.0e10, 1.0e11),
    _around("pairwise.latency_s", 9.0e-6),
    _around("pairwise.peer_s", 3.0e-7),
    _around("pairwise.remote_peer_s", 1.0e-6),
    _between("pairwise.efficiency", 0.95, 0.8, 1.0),
    _between("pairwise.pipelining", 0.5, 0.02, 1.6),
)


_ENDS = tuple(
    _between(f"architectures.{name}.ring_ends", 0.4, 0.02, 1.0) for name in ("hopper", "blackwell")
)  # a rank of a ring copies its own part besides: the slower, the fewer they are
_PAIRS = (
    *(_around(f"architectures.{name}.pair_s", 9.0e-6) for name in ("hopper", "blackwell")),
    # 1.21 and 1.25 times what NCCL counts as usable is the line's rate.
    *(_between(f"architectures.{name}.pair_efficiency", 1.0, 0.7, 1.2) for name in ("hopper", "blackwell")),
    _between("pairwise.node_pipelining", 0.6, 0.02, 1.6),
)
_ON_A_HOST = ("architectures.hopper.", "architectures.blackwell.", "nvls.pipelining")
ONE_HOST = (
    *(one for one in PARAMETERS if one.path.startswith(_ON_A_HOST) or "node_pipelining" in one.path),
    *_ENDS,
    *_PAIRS,
)
"""What collectives inside one host show, of GPUs whose logs and tables are of the same versions of NCCL:
A100's are of 2.18 and 2.27, between which the share of the LL protocol has doubled."""


def fit_constants(
    observed: Sequence[Observed[Case]],
    predict: Predict[Case],
    document: Mapping[str, Any],
    *,
    start: Mapping[str, float] | None = None,
    parameters: Sequence[CollectiveParameter] = PARAMETERS,
) -> dict[str, float]:
    """Every constant of ``parameters`` by its path; all others as in ``document``.

    ``start`` is where the search begins; the pull towards the parameters' own starts remains.
    """
    import numpy as np
    from scipy.optimize import least_squares

    low, centre, high = (np.log([getattr(p, name) for p in parameters]) for name in ("low", "start", "high"))
    paths = tuple(parameter.path for parameter in parameters)
    begun = centre if start is None else np.log([start[path] for path in paths])
    measured = np.log([s for one in observed for s in one.seconds])

    begun = np.clip(begun, low + 1e-6, high - 1e-6)
    log_predicted = remembered(
        [partial(predict, one.case) for one in observed],
        paths,
        lambda values: constants_of(dict(zip(paths, values, strict=True)), document),
        np.exp(begun).tolist(),
    )

    def residuals(x: NDArray[np.float64]) -> NDArray[np.float64]:
        log_seconds = log_predicted(np.exp(x).tolist())
        return np.concatenate([(log_seconds - measured) / _TOLERANCE, (x - centre) / _LOOSENESS])

    result = least_squares(
        residuals,
        begun,
        bounds=(low, high),
        loss="soft_l1",
        diff_step=1e-4,
        ftol=1e-4,
        max_nfev=40,
    )
    return dict(zip(paths, np.exp(result.x).tolist(), strict=True))


def values_at(paths: Iterable[str], document: Mapping[str, Any]) -> dict[str, float]:
    """The constants of a document by their paths."""
    found = {}
    for path in paths:
        place: Any = document
        for key in path.split("."):
            place = place[key]
        found[path] = float(place)
    return found


def constant_intervals(
    observed: Sequence[Observed[Case]],
    predict: Predict[Case],
    document: Mapping[str, Any],
    best: Mapping[str, float],
    *,
    replicas: int,
) -> dict[str, FittedConstant]:
    """Every constant of ``best`` with the interval that holds nine in ten of its bootstrapped fits.

    Each of ``replicas`` fits sees as many logs as there are, drawn with replacement. Whole logs are drawn,
    since the rows of one log err alike. Without replicas an interval is its value.
    """
    import numpy as np

    draw = np.random.default_rng(0)
    drawn = [[observed[i] for i in draw.integers(0, len(observed), len(observed))] for _ in range(replicas)]
    own = [one for one in (*PARAMETERS, *_ENDS) if one.path in best]
    fits = [fit_constants(sample, predict, document, start=best, parameters=own) for sample in drawn] or [
        dict(best)
    ]
    intervals = {}
    for path, value in best.items():
        low, high = np.quantile([one[path] for one in fits], [0.05, 0.95])
        intervals[path] = FittedConstant(
            value=value, low=min(value, float(low)), high=max(value, float(high))
        )
    return intervals


def fits_without(
    observed: Sequence[Observed[Case]],
    predict: Predict[Case],
    document: Mapping[str, Any],
    *,
    names: Iterable[str] | None = None,
    jobs: int = 1,
) -> dict[str, dict[str, float]]:
    """For each of ``names``, the constants fitted on all but the one so called; default: all observed.

    ``jobs`` processes share the names.
    """
    from joblib import Parallel, delayed

    names = [one.name for one in observed] if names is None else list(names)

    def fits_of(share: Sequence[str]) -> list[dict[str, float]]:
        rests = ([other for other in observed if other.name != name] for name in share)
        return [fit_constants(rest, predict, document) for rest in rests]

    # One task a process: cases sent anew with every fit would be others to what caches know them by.
    shares = [names[first::jobs] for first in range(min(jobs, len(names)))]
    done = Parallel(n_jobs=jobs)(delayed(fits_of)(share) for share in shares)
    fits = {
        name: fit
        for share, found in zip(shares, done, strict=True)
        for name, fit in zip(share, found, strict=True)
    }
    return {name: fits[name] for name in names}


def constants_of(values: Mapping[str, float], document: Mapping[str, Any]) -> CollectiveConstants:
    """The constants of ``document`` with ``values`` in place of its own."""
    changed = _copied(document)
    for path, value in values.items():
        *outer, name = path.split(".")
        place = changed
        for key in outer:
            place = place[key]
        place[name] = value
    return constants_from_document(changed)


def _copied(document: Mapping[str, Any]) -> dict[str, Any]:
    """A copy whose mappings may be changed; many times as fast as ``deepcopy``."""
    return {key: _copied(value) if isinstance(value, Mapping) else value for key, value in document.items()}


def edited_text(text: str, values: Mapping[str, float]) -> str:
    """The file's text with ``values`` in it, four digits each; comments and all other lines as they are.

    ValueError for a path that the text does not have.
    """
    lines, outer, missing = [], [""] * 3, set(values)
    for line in text.splitlines():
        entry = re.match(r"( *)([\w]+):( *)(\S*)(.*)$", line)
        if entry:
            depth = len(entry[1]) // 2
            outer[depth] = entry[2]
            path = ".".join(outer[: depth + 1])
            if path in values:
                line = f"{entry[1]}{entry[2]}:{entry[3]}{_figure(values[path])}{entry[5]}"
                missing.discard(path)
        lines.append(line)
    if missing:
        raise ValueError(f"collectives.yaml has no {', '.join(sorted(missing))}")
    return "\n".join(lines) + "\n"


def _figure(value: float) -> str:
    """Four digits, as YAML 1.2 and 1.1 both read a number."""
    return f"{value:.4g}" if 1e-3 <= value < 1e4 else f"{value:.3e}"
