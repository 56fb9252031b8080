"""Whether products are right on a CPU: XLA generates their kernels at the first one, and does not see that fail.

XLA's CPU runtime gives float32 products and convolutions to oneDNN's sgemm, which generates its kernels once for the
process. Where there is no memory for them, sgemm returns a status, and XLA drops it (`dnnl_gemm_kernel` of
`xla/tsl/framework/contraction/eigen_contraction_kernel.h` has it in an `eigen_assert`, which releases compile to
nothing). Then products are wrong until the process ends, and each of them counts as completed. So the kernels are
generated when the device is opened, with one product that is checked. What fails for lack of memory later is an error.
"""

from __future__ import annotations

import functools
import resource
from typing import Any

import numpy as np

from npu_shim.rewriter.errors import ConfigError

FACTOR = (np.arange(16 * 64) % 7).reshape(16, 64)
PRODUCT = FACTOR.T @ FACTOR  # of whole numbers: exact in float32 too, and without BLAS, which needs memory as well


@functools.lru_cache(maxsize=None)
def require(jax: Any, device: Any) -> None:
    """Generates the kernels for products, once for the process, on a CPU.

    Args:
        jax: the module.
        device: a jax device.

    Raises:
        ConfigError: products are wrong in this process.
    """
    if device.platform != "cpu":
        return
    factor = jax.device_put(FACTOR.astype(np.float32), device)
    transposed = jax.jit(lambda a: a.T @ a).lower(factor).compile()  # XLA has kernels of its own for plain products
    if not np.array_equal(transposed(factor), PRODUCT):
        raise ConfigError(
            "XLA computes wrong products in this process: it had no memory for their kernels%s" % _limit()
        )


def _limit() -> str:
    most = resource.getrlimit(resource.RLIMIT_AS)[0]
    return "" if most == resource.RLIM_INFINITY else " (ulimit -v is %d kB)" % (most // 1024)
