"""Which kernels a stack runs: what is fused into one, and in how many bits GEMMs are computed."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ....hardware.fields import PositiveShare, whole
from ....kernels.kernel import CudnnRelease
from .group import SoftwareGroup

AttentionKernel = Literal["unfused", "fa1", "fa2", "fa3", "cudnn", "aiter", "aiter_fp32"]
CrossEntropy = Literal["vocab-parallel", "fused", "compiled", "compiled-torch", "gathered", "eager"]
Fp8Scaling = Literal["delayed", "current", "blockwise"]
GroupedGemm = Literal["streams", "one-kernel", "stacked"]
ExpertBiases = Literal["in-products", "second-apart", "apart"]
ExpertOperators = Literal["library", "torch", "loop"]
HopperProducts = Literal["two-passes", "share"]
ScalesLaidOut = Literal["in-products", "each", "weights"]
OptimizerImplementation = Literal["fused", "foreach", "for-loop"]
Few = Annotated[int, *whole(0, 100)]
ZLoss = Literal["none", "within", "apart"]
LossChunks = Annotated[int, *whole(1, 1_000_000)]


class KernelSoftware(SoftwareGroup):
    """Kernels of layers and of the update. Presets name the file of the framework that each is read off."""

    attention: AttentionKernel = Field(
        default="fa2",
        description="scores in memory as GEMMs and a softmax, FlashAttention 1 to 3 (2 on AMD: Composable"
        " Kernel's), cuDNN's, or AITER's assembly, which adds gradients of queries up in 16 bits or, by"
        " default, in FP32 (arXiv:2205.14135, arXiv:2307.08691, arXiv:2407.08608)",
    )
    attention_assumed: bool = Field(
        default=False,
        description="which attention runs is taken, not known; the interval reaches to steps with the other"
        " fused kernels that its GPU has",
    )
    cudnn: CudnnRelease = Field(
        default="9.13", description="release of cuDNN, or the nearest before it, whose attention runs"
    )
    fused_norm: bool = Field(
        default=True,
        description="an RMSNorm is one kernel each way, as a LayerNorm always is, not a chain of torch's",
    )
    norm_grad_apart: bool = Field(
        default=False,
        description="a fused norm's weight gradient is a kernel of its own, which reads again what that of"
        " the input has read (Apex's FusedLayerNorm, and torch's LayerNorm, which has it so in any case where"
        " fused_norm is false); false: one pass makes both",
    )
    norm_grad_by_columns: bool = Field(
        default=False,
        description="where it is apart, the weight gradient of a LayerNorm has one block of threads for all"
        " rows of 32 columns, however many these are (torch's LayerNorm until 2.7)",
    )
    grouped_heads_copied: bool = Field(
        default=False,
        description="queries that share keys are copied out of the output of the GEMM of Q, K and V, and"
        " gradients of grouped or turned heads into its gradient (Megatron core with TransformerEngine)",
    )
    fused_qkv_rope: bool = Field(
        default=False,
        description="one kernel reads the output of the GEMM of Q, K and V and writes all three, queries and"
        " keys turned; refused where heads are normed or have no rotary positions (Megatron core's"
        " fused_single_qkv_rope)",
    )
    norm_parts_in_turn: bool = Field(
        default=False,
        description="the weight's gradient of a norm of single heads is added up by one block a column"
        " (TransformerEngine)",
    )
    bias_grad_apart: bool = Field(
        default=False,
        description="bias gradients of an attention's and an MLP's first matrix are sums of their own"
        " (autograd, Megatron-LM); false: GEMMs that read the same gradient make them (TransformerEngine)",
    )
    qkv_grad_joined: bool = Field(
        default=False,
        description="gradients of Q, K and V are copied into that of the output of their common GEMM"
        " (autograd, of what torch.split or chunk made); false: attention writes them there",
    )
    flash_copies_qkv: bool = Field(
        default=False,
        description="Q, K and V that lie beside one another head by head, as one GEMM leaves them, are"
        " copied apart for FlashAttention, and their gradients back (TransformerEngine, fa_prepare_fwd and"
        " fa_prepare_bwd); cuDNN's attention takes them as they are",
    )
    fused_activation: bool = Field(default=True, description="bias+GELU or SwiGLU in one kernel each way")
    fused_gate: bool = Field(
        default=True,
        description="where activations are fused, gated ones (SwiGLU) are too; false: these are torch's SiLU"
        " and GEMM, and bias+GELU one kernel (Megatron-LM before core's bias_swiglu_fusion)",
    )
    gelu_by_operators: bool = Field(
        default=False,
        description="an activation that nothing fuses is GELU by its tanh formula, operator by operator"
        " of torch (Transformers' gelu_new, GPT-2's); false: torch's GELU",
    )
    activation_grad_joined: bool = Field(
        default=False,
        description="gradients of both inputs of a gated activation are joined by torch.cat in a function"
        " that torch compiles, whose kernel works out both for every element (Megatron core's"
        " bias_swiglu_fusion under torch 2.2 on)",
    )
    weighted_activation: bool = Field(
        default=False,
        description="the fused activation of experts multiplies each row by its router's weight, whose"
        " gradient is a kernel of its own (Megatron core 0.13 on)",
    )
    weighted_rows: bool = Field(
        default=False,
        description="torch's operators move and weight rows of experts, and their gradient reads these: cast"
        " to FP32 when NCCL has brought them home, in 16 bits before DeepEP does (torchtitan,"
        " score_before_experts false)",
    )
    fused_softmax: bool = Field(
        default=True, description="scale+mask+softmax of unfused attention in one kernel"
    )
    softmax_fp32: bool = Field(
        default=True,
        description="where nothing fuses it, the softmax of unfused attention is of scores cast to FP32, and"
        " its probabilities are cast back (Megatron-LM's forward_torch_softmax); false: torch's softmax of"
        " scores as wide as GEMMs write them",
    )
    fused_rope: bool = Field(default=True, description="rotary positions in one kernel each way")
    rope_takes_sines: bool = Field(
        default=False,
        description="fused, its kernels take the sine and cosine of each angle, and an element a thread"
        " (TransformerEngine's and Apex's for Megatron core); not fused, torch runs Megatron core's own"
        " operations, element by element",
    )
    complex_rope: bool = Field(
        default=False,
        description="not fused, it is a product of complex numbers (torchtitan, Llama's own code); false, or"
        " latent: rotate_half",
    )
    qkv_copies: Few = Field(
        default=0, description="reads and writes of Q, K, V per direction that only change layout"
    )
    keeps_qkv_copy: bool = Field(
        default=False,
        description="Q that attention keeps is a part of a copy of Q, K and V, all of which it keeps alive;"
        " K and V are kept once more (MHA; nanotron)",
    )
    repeats_kv: bool = Field(
        default=False,
        description="keys and values that query heads share are copied for each of these before attention,"
        " and the copies kept (torch's scaled_dot_product_attention without enable_gqa)",
    )
    split_expert_gate: bool = Field(
        default=False,
        description="the two input branches of experts' SwiGLU are grouped GEMMs of their own, whose input"
        " gradients are added (torchtitan's w1 and w3)",
    )
    split_gate: bool = Field(
        default=False, description="the two input branches of SwiGLU are separate column-parallel layers"
    )
    fused_residual: bool = Field(default=True, description="bias+dropout+add in one kernel")
    one_hot_embedding: bool = Field(
        default=False,
        description="the embedding is a GEMM of its table with rows that hold a one each, both ways, not a"
        " look-up (MaxText use_iota_embed, Praxis lookup_style matmul)",
    )
    head_fp32: bool = Field(
        default=False,
        description="GEMMs of the head are of FP32, in TF32 (MaxText logits_dot_in_fp32)",
    )
    cross_entropy: CrossEntropy = Field(
        default="vocab-parallel",
        description="how the loss is computed where TP splits the vocabulary; compiled: Megatron core's own"
        " fused loss (cross_entropy_fusion_impl native); compiled-torch: torch's own under torch.compile,"
        " DTensor's where TP splits the vocabulary; fused: kernels written for it, such as"
        " TransformerEngine's",
    )
    logits_fp32: bool = Field(default=True, description="logits are cast to FP32 before the loss")
    z_loss: ZLoss = Field(
        default="none",
        description="the square of each token's log-sum-exp as a loss beside the loss: within, by the loss"
        " itself (fused kernels, Megatron core's operators); apart, by operators of its own",
    )
    logged_losses: Few = Field(
        default=0,
        description="times that torch's cross entropy is computed again from the logits of a microbatch, for"
        " metrics alone, which all ranks gather after each step",
    )
    metric_passes: Few = Field(
        default=0,
        description="times that metrics of a trainer, such as accuracy, read or write the logits of a"
        " microbatch, as wide as the loss takes them",
    )
    loss_chunks: LossChunks = Field(
        default=1,
        description="chunks of a microbatch that the head and the loss take one after another, forward and"
        " backward, so that logits of one are there at a time (losses of Liger, TRL and torchtitan); with"
        " tensor parallelism memory alone is told so",
    )
    loss_in_place: bool = Field(
        default=True,
        description="vocab-parallel: the maximum is subtracted in the logits that the loss was given, not in"
        " a copy of them",
    )
    holds_logits: bool = Field(
        default=False,
        description="cross_entropy eager: the trainer still refers to the logits that it gave the loss while"
        " the loss runs backward (torchtitan before pull request 391; prime-rl)",
    )
    metrics_copy_logits: bool = Field(
        default=False,
        description="cross_entropy fused: metrics of a trainer copy the 16-bit logits of each sequence, but"
        " for its last token, behind the loss, which of a single sequence are a view (huggingface/trl"
        " trainer/sft_trainer.py, compute_loss)",
    )
    optimizer_implementation: OptimizerImplementation = Field(
        default="fused",
        description="fused: an update is one pass over the state; foreach: each of its operations is a pass,"
        " over all tensors at once, beside copies (torch's default: torch/optim/adam.py, _multi_tensor_adam:"
        " roots of second moments; sgd.py: gradients with decay); for-loop: each is a pass, over one tensor"
        " after the other",
    )
    fused_wgrad_accumulation: bool = Field(
        default=True,
        description="weight-gradient GEMMs add into the main gradient (Megatron-LM"
        " --gradient-accumulation-fusion, on since v3.0)",
    )
    grouped_gemm: GroupedGemm = Field(
        default="streams",
        description="experts: a GEMM per expert on four streams; one kernel; stacked: one kernel on the"
        " weights of all experts as one parameter (torch._grouped_mm)",
    )
    fused_grouped_mlp: bool = Field(
        default=False,
        description="experts under a recipe of fewer bits: the kernels of the GEMMs on either side of the"
        " activation apply it and quantise (TransformerEngine pull request 2622, cuDNN's CuTe DSL kernels)",
    )
    expert_operators: ExpertOperators = Field(
        default="library",
        description="who puts experts' rows in order, weights, gates and adds them up: kernels of a library;"
        " torch's own operators, for all rows at once around one grouped GEMM (Transformers from 5.0 on);"
        " or these in a loop over experts, each with GEMMs of its own (Transformers before)",
    )
    expert_biases: ExpertBiases = Field(
        default="in-products",
        description="biases of experts: the GEMMs' kernels add them, or torch does, expert by expert in"
        " operations of its own, those behind the second GEMM, weighted by the router (Megatron core,"
        " TEGroupedMLP._apply_bias), or all (NeMo AutoModel); fused_grouped_mlp adds them in its kernels",
    )
    clamps_gate_apart: bool = Field(
        default=False,
        description="inputs of a gated activation that are clamped are so by torch, which joins them again"
        " for the fused activation (Megatron core, weighted_bias_quick_geglu_impl)",
    )
    hopper_products: HopperProducts = Field(
        default="share",
        description="what cuBLAS's 16-bit GEMMs on Hopper lose beside collectives that hold SMs: they take"
        " two passes, where tiles are dealt out to all SMs before they begin (until 2025), or lose the share"
        " of the SMs, where blocks fetch tiles (docs/decisions/0106-products-that-take-two-passes.md)",
    )
    moe_router_fusion: bool = Field(default=False, description="router and permutation maps in a few kernels")
    expert_rows_padded: bool = Field(
        default=False,
        description="experts without a capacity under a recipe of fewer bits: rows are copied to padded"
        " places before the GEMMs and back (TransformerEngine Fp8Padding; HybridEP permutes them there)",
    )
    torch_compile: bool = Field(default=False, description="chains of small kernels are compiled into one")
    autocast: bool = Field(
        default=False,
        description="parameters are FP32, and torch.autocast casts what GEMMs read, weights anew in each"
        " forward; norms and the residual stream are FP32",
    )
    recompute_stops_early: bool = Field(
        default=False,
        description="a dense layer recomputed as a whole runs again up to the input of its last GEMM, not"
        " that GEMM (torch/utils/checkpoint.py from 2.1 on, not reentrant; compiled blocks)",
    )
    fp8_scaling: Fp8Scaling = Field(
        default="delayed", description="of precision fp8 (sim/lowering/layers/precision.py)"
    )
    fp8_parameters: bool = Field(
        default=False, description="weights are kept and gathered in the GEMMs' type, not in 16 bit"
    )
    fused_amax: bool = Field(
        default=False,
        description="norms and activations take the maximum that a scale needs as they write"
        " (TransformerEngine 2.7, pull requests 2004 and 2013); false: a pass of its own",
    )
    norm_casts_blocks: bool = Field(
        default=False,
        description="under MXFP8 norms write both copies of a GEMM's input themselves (cuDNN's norms, with"
        " NVTE_NORM_FWD_USE_CUDNN of TransformerEngine); false: a cast reads what they wrote in 16 bit",
    )
    fused_quantise: bool = Field(
        default=False,
        description="activations of a dense MLP write in the GEMMs' type, both ways (TransformerEngine"
        " LayerNormMLP, and its op fuser)",
    )
    caches_mlp_weights: bool = Field(
        default=True,
        description="copies of a dense MLP's weights in the GEMMs' type are made once a step; false: in"
        " every forward (TransformerEngine's op fuser, which takes no is_first_microbatch)",
    )
    scales_laid_out: ScalesLaidOut = Field(
        default="in-products",
        description="scales of blocks (MXFP8, NVFP4) are read by GEMMs as they were written; each: a"
        " kernel lays out those of either operand in front of each GEMM of a dense matrix"
        " (TransformerEngine); weights: in MXFP8 those of weights alone (TransformerEngine 2.12 on)",
    )
    hadamard_apart: bool = Field(
        default=False,
        description="under NVFP4 a kernel of its own reads activations and gradients again to transform and"
        " cast the copy for weight gradients (TransformerEngine until 2.12, with the Hadamard transform)",
    )
    stochastic_casts: bool = Field(
        default=False,
        description="under NVFP4 the kernel that casts both copies of a gradient rounds stochastically"
        " (without the Hadamard transform)",
    )
    untuned_casts: bool = Field(
        default=False,
        description="under NVFP4 the kernel that casts both copies, without the Hadamard transform, is"
        " TransformerEngine's of before November 2025",
    )
    fp8_attention: bool = Field(
        default=False,
        description="beside GEMMs of blocks of 8 or 4 bits, attention's run in 8 bits, but for context"
        " parallelism (fp8_dpa of TransformerEngine's recipes)",
    )
    fp8_activations: bool = Field(
        default=False,
        description="under FP8, inputs of activations wait in 8 bits, attention's output in 12"
        " (arXiv:2412.19437 section 3.3.3)",
    )
    fp8_wgrad_rate: PositiveShare = Field(
        default=1.0,
        description="of quantised weight-gradient GEMMs, over that of other GEMMs of their shape",
    )

    def norm_is_one_kernel(self, *, rms_norm: bool) -> bool:
        """Whether a norm is one kernel each way.

        Without fused kernels RMSNorm is a chain of torch's operations, as models write it themselves;
        LayerNorm is one operator of torch's, with kernels of its own
        (pytorch aten/src/ATen/native/cuda/layer_norm_kernel.cu).
        """
        return self.fused_norm or self.torch_compile or not rms_norm

    def has_norm_grad_apart(self, *, rms_norm: bool) -> bool:
        """Whether the weight gradient of a norm that is one kernel is another: as the library has it, and
        where none has the norm, as torch's LayerNorm does (ATen native/cuda/layer_norm_kernel.cu,
        LayerNormBackwardKernelImplInternal: GammaBetaBackward behind the input's)."""
        of_torch = not (self.fused_norm or rms_norm or self.torch_compile)
        return self.norm_grad_apart or of_torch

    def sums_norm_by_columns(self, *, rms_norm: bool) -> bool:
        """Whether a block of threads sums up all rows of a few columns for a norm's weight gradient: torch's
        LayerNorm does, which has no RMSNorm beside it; a compiler writes kernels of its own."""
        apart = self.has_norm_grad_apart(rms_norm=rms_norm) and self.norm_grad_by_columns
        return apart and not rms_norm and not self.torch_compile

    @property
    def copies_in_update(self) -> bool:
        """Whether an update makes copies of all tensors at once, if its optimizer makes any."""
        return self.optimizer_implementation == "foreach"

    def fuses_activation(self, *, gated: bool) -> bool:
        """Whether an MLP's activation is one kernel, of a library or of torch.compile."""
        return self.has_activation(gated=gated) or self.torch_compile

    def softmax_is_one_kernel(self, *, windowed: bool) -> bool:
        """Whether one kernel scales, masks and normalises the scores of unfused attention. A library's has
        the causal mask alone, and gives way to torch's where a layer is ``windowed``; a compiler fuses scale,
        any mask and the reduction (torch _inductor/scheduler.py: pointwise chains into reductions)."""
        return self.torch_compile or (self.fused_softmax and not windowed)

    def has_activation(self, *, gated: bool) -> bool:
        """Whether a library has an MLP's activation as one kernel."""
        return self.fused_activation and (self.fused_gate or not gated)
