"""A kernel as an MLIR module, lowered without the GPU that it is for. Needs JAX."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import warnings
from typing import Any, Sequence

from npu_shim.pjrt import arrays
from npu_shim.pjrt.attention import division
from npu_shim.pjrt.attention.spec import Argument, Spec

# what Pallas lowers to Triton's language is the same for all cards since Ampere; XLA compiles it for the card at hand
AMPERE = {"device_kind": "NVIDIA A100-SXM4-80GB", "num_cores": 108, "platform": "gpu"}


@functools.lru_cache(maxsize=64)
def module(spec: Spec, highest: bool, platform: str, devices: int = 1) -> str:
    """Returns a kernel as the text of an MLIR module in StableHLO, whose function `main` computes it.

    Args:
        spec: Spec that `blocks.refused` does not refuse.
        highest: whether float32 products are computed in full, not in TF32.
        platform: "cuda", or "cpu" for the interpreted kernel.
        devices: how many compute it together, each a part of the batches; `division.refused` does not refuse it.
    """
    if devices == 1:
        return _lowered(spec, highest, platform)
    part = division.part(spec, devices)
    return division.whole(spec, devices, _lowered(part, highest, platform, division.more(spec), division.sums(spec)))


def _lowered(spec: Spec, highest: bool, platform: str, more: Sequence[Argument] = (), sums: str = "") -> str:
    import jax
    from jax._src.mesh import AbstractDevice

    from npu_shim.pjrt.attention import kernels

    run = kernels.attention(spec, highest, platform == "cpu", [argument.name for argument in more], sums)
    taken = (*spec.arguments, *more)
    given = [jax.ShapeDtypeStruct(argument.shape, arrays.dtype_of(argument.dtype)) for argument in taken]
    known = {field.name for field in dataclasses.fields(AbstractDevice)}  # fewer before JAX 0.12
    device = AbstractDevice(**{name: value for name, value in AMPERE.items() if name in known})
    mesh = jax.sharding.AbstractMesh((1,), ("x",), (jax.sharding.AxisType.Auto,), abstract_device=device)
    there = contextlib.nullcontext() if platform == "cpu" else jax.sharding.use_abstract_mesh(mesh)
    with jax.enable_x64(False), there, warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of Pallas's way to Triton: no other knows Ampere
        lowered: Any = jax.jit(run, keep_unused=True).trace(*given).lower(lowering_platforms=(platform,))
    return str(lowered.compiler_ir("stablehlo"))
