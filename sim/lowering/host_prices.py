"""What launches cost the host: of a kernel, an operator, a collective, and of a loop in C++.

Knows the software's host and how much slower the machine's is. Does not know which kernels there are.
"""

from __future__ import annotations

from typing import NamedTuple

from ...hardware.node import Node
from ..scenario.models import Scenario
from .layers.layer_builder import LoopPrices

PRODUCT_IN_LOOP_S, KERNEL_IN_LOOP_S = 13.48e-6, 6e-6
"""The most that launches which a loop in C++ issues cost a host of x86.

For a GEMM torch's whole Linear forward, with Python and autograd around its one launch (TransformerEngine
issue 2053, a DGX H100). For any other kernel CUDA's own launch: on Grace that is what fewer kernels of a
router save each (docs/decisions/0118-what-twenty-nine-runs-of-experts-showed.md).
"""

WEIGHT_IN_MODULE_S = 8.4e-6
"""What each weight more of a grouped module costs a host of x86 in a backward, besides its GEMM.

Its saved tensors are taken and let go, a placeholder is made for its gradient, autograd passes that on, and
the hook of Megatron core's wrapper marks it as there (distributed_data_parallel.py, _make_backward_post_hook:
it adds nothing where grad_added_to_main_grad is set). Timed here: GroupedLinear of TransformerEngine 2.16.1
with 4 to 64 weights, its C++ left out, with what that hook does before the last microbatch, on a virtual
machine of an AMD EPYC that takes 9.0 us for a torch.nn.Linear of one number.
"""

_GRACE = 0.3093 / 0.2150
FUSED_MLP_FORWARD_S, FUSED_MLP_BACKWARD_S = 1.11e-3 / _GRACE, 1.55e-3 / _GRACE
"""What TransformerEngine's fused grouped MLP costs a host of x86, forward and backward, with quantising.

A GB200's host takes 1.2 and 2.1 ms for 64 experts, of which 0.09 ms initialise quantisers, and 0.35 and
0.2 ms allocate and clear tensors, one for each weight (TransformerEngine issue 2897, April 2026). Grace's
factor is that of launches from Python (hardware/nodes.yaml).
"""


def loop_prices(launch_s: float, node: Node) -> LoopPrices:
    """The host cost of launches in a loop in C++, of weights, and of a fused MLP, if a launch from Python
    takes ``launch_s`` on x86."""
    if not launch_s:
        return LoopPrices()
    share = node.loop_factor / (launch_s * node.launch_factor)
    return LoopPrices(
        product=min(1.0, PRODUCT_IN_LOOP_S * share),
        kernel=min(1.0, KERNEL_IN_LOOP_S * share),
        weight=min(1.0, WEIGHT_IN_MODULE_S / launch_s),
        fused_forward=FUSED_MLP_FORWARD_S / launch_s,
        fused_backward=FUSED_MLP_BACKWARD_S / launch_s,
    )


class HostPrices(NamedTuple):
    """Host seconds of launching a kernel, an operator on distributed tensors, and a collective. ``eager``
    are those of a kernel and a collective outside of CUDA graphs; None without graphs."""

    kernel_s: float
    operator_s: float
    collective_s: float
    eager: tuple[float, float] | None


def host_prices(scenario: Scenario, slower: float) -> HostPrices:
    """What launches cost a host that is ``slower`` times as slow as the preset's."""
    host, calls = scenario.software.host, scenario.software.host.launches_per_collective
    launch_s = slower * host.host_s_per_kernel
    kernel_s = 0.0 if host.cuda_graphs else launch_s
    eager = scenario.parallelism.tp > 1 and kernel_s > 0 and not scenario.software.kernels.torch_compile
    return HostPrices(
        kernel_s=kernel_s,
        operator_s=slower * host.host_s_per_dtensor if eager else 0.0,
        collective_s=calls * kernel_s,
        eager=(launch_s, calls * launch_s) if host.cuda_graphs else None,
    )
