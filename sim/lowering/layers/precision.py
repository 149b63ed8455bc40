"""Eight- and four-bit recipes of GEMMs: what is quantised when, and what that moves at HBM.

A GEMM's inputs are quantised from 16 bit; attention, norms, embedding, head and what is accumulated stay
as they are. Forward needs X, the input gradient dY, the weight gradient both again the other way around:
where the GEMM takes only one layout (Hopper) or scales go with blocks of one direction, a second copy is
made. Weights are quantised once a step (updates/optimizer.py). Scales of blocks are laid out anew for each
GEMM (quantise.py, ``lay_out_scales``). Not counted: the reductions of maxima over ranks (a few bytes for
each microbatch), and layers that a recipe leaves in 16 bit.

Sources:
    TransformerEngine common/recipe/__init__.py (DelayedScaling, Float8CurrentScaling,
    Float8BlockScaling, MXFP8BlockScaling, NVFP4BlockScaling), common/cast (cast_transpose writes both
    layouts in one pass and takes the maximum with it), pytorch/tensor/float8_tensor.py
    (is_non_tn_fp8_gemm_supported: no transposes from Blackwell on), pytorch/distributed.py
    (gather_along_first_dim: quantised inputs are gathered as they are).
    DeepSeek-AI 2024, arXiv:2412.19437, section 3.3 (1 x 128 tiles, 128 x 128 blocks of weights).
    OCP Microscaling Formats 1.0 (one 8-bit scale for 32 elements); NVFP4: one for 16.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from ...scenario.models import Scenario

Scaling = Literal["delayed", "current", "blockwise"]
"""How fp8 scales tensors: by maxima of earlier steps, by their own, or in blocks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How GEMMs run in 8 or 4 bits: bytes per element at HBM, and the kernels that quantise.

    - ``gemm_dtype`` is the GEMMs' input type; ``stored`` the bytes of one quantised copy.
    - ``cast``: bytes read and written to quantise the 16-bit tensor once; ``second``: to write the other
      layout's copy (0 where GEMMs need none). ``early``: both copies are written at once, before a gather,
      since the second needs the 16-bit original (scales of blocks in one direction); otherwise the second is
      a transpose of the first, after the gather. ``launches`` of a cast.
    - ``maximum``: the part of ``cast`` that finds the tensor's own maximum, which the kernel that writes the
      tensor may do instead. ``fused_norm``, ``fused_activation``: norms, and activations where the software
      has such kernels, write quantised output. ``fused_multi``: one kernel quantises many tensors.
    - ``scales``: bytes of one copy's block scales, where GEMMs read them in another layout; ``joins_scales``:
      a kernel joins the two operands' tensor scales into one number.
    - ``transformed``: bytes that are read again, of activations and gradients, by a kernel that transforms
      and casts the second copy (Hadamard). Expressed as bytes that would take as long: ``untuned``, how much
      slower an earlier kernel for both copies is; ``stochastic``, the random numbers for rounding gradients.
    - ``numbers``: kernels of a cast besides, of one number each: a maximum cleared, copied for the other
      layout, made a scale (pytorch/csrc/quantizer.cpp, ``quantize_impl``; common/recipe/current_scaling.cu);
      ``random_state``: whether gradients have one more, which unpacks it.
    - ``squares``: factor by which the cast of a weight takes longer where its scales are of square blocks.
    """

    gemm_dtype: str
    stored: float
    cast: float
    second: float
    early: bool
    launches: int
    fused_norm: bool
    fused_activation: bool = False
    maximum: float = 0.0
    fused_multi: bool = False
    scales: float = 0.0
    joins_scales: bool = False
    transformed: float = 0.0
    untuned: float = 0.0
    stochastic: float = 0.0
    squares: float = 1.0
    numbers: int = 0
    random_state: bool = False

    @property
    def blocks(self) -> bool:
        """Whether scales are of blocks in one direction, which the tensor cores apply themselves (MXFP8,
        NVFP4)."""
        return self.gemm_dtype in ("mxfp8", "nvfp4")

    @property
    def gathered(self) -> float:
        """Bytes per element on the wire where a gather must bring both copies, or one."""
        return self.stored * (2 if self.early else 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightBytes:
    """Bytes per weight: ``held`` in memory by each rank, ``gathered`` on the wire, ``written`` by the
    optimizer, and ``made`` at HBM once a step to have both layouts of the GEMMs' type.
    """

    held: float
    gathered: float
    written: float
    made: float


def weight_bytes(element_bytes: int, recipe: Recipe | None, *, quantised: bool) -> WeightBytes:
    """Bytes per weight of a layer; ``quantised`` ones exist only in the recipe's type (and FP32 masters)."""
    e = float(element_bytes)
    if recipe is None:
        return WeightBytes(held=e, gathered=e, written=e, made=0.0)
    copies = recipe.stored * (2 if recipe.second else 1)
    if not quantised:
        made = recipe.squares * (recipe.cast + recipe.second)
        return WeightBytes(held=e + copies, gathered=e, written=e, made=made)
    if recipe.early:  # both copies are made from the master's shard and gathered
        return WeightBytes(held=copies, gathered=copies, written=copies, made=0.0)
    return WeightBytes(held=copies, gathered=recipe.stored, written=recipe.stored, made=recipe.second)


_MXFP8 = 1 + 1 / 32
_NVFP4 = 0.5 + 1 / 16

_STOCHASTIC = (2 + 2 * _NVFP4) * (6.4 / 4.5 - 1)
"""The kernel that casts both copies to NVFP4 moves 6.4 TB/s where it rounds to nearest, and 4.5 where
stochastically; that of one copy 7.2 and 7.0 (B300, NVIDIA/TransformerEngine pull request 2412). Behind a
Hadamard transform other kernels make the copies."""

_UNTUNED = (2 + 2 * _NVFP4) * (6.4 / 4.22 - 1)
"""TransformerEngine's kernel for both copies until pull request 2412 (November 2025) is nowhere timed but in
pictures. That of squares, which was left as it was, shares its file, tiles, threads and buffers
(common/cast/nvfp4/quantize_transpose_nvfp4.cuh, quantize_transpose_nvfp4_2D_kernel), and moves 4.22 TB/s on
a GB200 (18,432 x 7,168: 97.9 us, its maximum apart; kernel self-time with TransformerEngine 2.19, a benchmark
of torchao's NVFP4 kernels at DeepSeek-V3's shapes). Stochastic rounding is taken to add what it adds to the
tuned."""

_SQUARES = (59.959 / 52.347 + 109.979 / 92.405) / 2
"""TransformerEngine casts weights to NVFP4 in blocks of 16 x 16, as both layouts then hold the same numbers:
8,192 x 5,120 and 8,192 x 10,240 take 59.959 and 109.979 us, in rows of 16 52.347 and 92.405 (comment of
2026-05-13 to NVIDIA/TransformerEngine pull request 2972)."""


def recipe_of(scenario: Scenario, architecture: str) -> Recipe | None:
    """The recipe of ``training.precision``; None where GEMMs run in the activations' type."""
    kernels = scenario.software.kernels
    precision, scaling = scenario.training.precision, kernels.fp8_scaling
    transposes = architecture == "hopper"
    match precision:
        case "fp8" if scaling == "delayed":
            return _tensorwise(
                cast=2 + 1, launches=1, transposes=transposes, fused_norm=True, fused_multi=True
            )
        case "fp8" if scaling == "current":  # the maximum first: one more pass over the original
            return _tensorwise(
                cast=2 + 2 + 1, launches=2, transposes=transposes, fused_norm=False, maximum=2, numbers=2
            )
        case "fp8":
            return Recipe(
                gemm_dtype="fp8_block", stored=1 + 4 / 128, cast=2 + 1, second=1, early=True, launches=1,
                fused_norm=False,
            )  # fmt: skip
        case "mxfp8":
            return Recipe(
                gemm_dtype="mxfp8", stored=_MXFP8, cast=2 + _MXFP8, second=_MXFP8, early=True, launches=2,
                fused_norm=kernels.norm_casts_blocks, fused_activation=True,
                scales=1 / 32 if architecture == "blackwell" else 0.0,
            )  # fmt: skip
        case "nvfp4":  # a pass for the maximum, then both copies, that for dW after a Hadamard transform
            return Recipe(
                gemm_dtype="nvfp4", stored=_NVFP4, cast=2 + 2 + _NVFP4, second=_NVFP4, early=True, launches=2,
                fused_norm=False, maximum=2, scales=1 / 16, joins_scales=True,
                numbers=1 + kernels.fused_amax,  # a transform's own kernel leaves no maximum to copy
                random_state=kernels.stochastic_casts,
                transformed=2 if kernels.hadamard_apart else 0,
                untuned=_UNTUNED if kernels.untuned_casts else 0.0,
                stochastic=_STOCHASTIC if kernels.stochastic_casts else 0.0, squares=_SQUARES,
            )  # fmt: skip
    return None


def _tensorwise(
    *,
    cast: float,
    launches: int,
    transposes: bool,
    fused_norm: bool,
    maximum: float = 0.0,
    numbers: int = 0,
    fused_multi: bool = False,
) -> Recipe:
    return Recipe(
        gemm_dtype="fp8", stored=1, cast=cast, second=2 if transposes else 0, early=False, launches=launches,
        fused_norm=fused_norm, fused_activation=fused_norm, maximum=maximum, fused_multi=fused_multi,
        numbers=numbers,
    )  # fmt: skip
