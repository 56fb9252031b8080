"""What is asked of JAX, in one place: which releases work, devices, a StableHLO program as a JAX function.

Only this module, `artifacts` and `barriers` use what is not public in JAX; a test (`test_private_jax_names.py`)
says what of it a newer release has moved. Tried with 0.9.2, 0.10.2, 0.11.2 and 0.12.0.
"""

from __future__ import annotations

import dataclasses
import io
import logging
import os
import re
from typing import Any, Callable, Sequence, Tuple

from npu_shim import __version__
from npu_shim.configs import extras
from npu_shim.pjrt import artifacts, barriers
from npu_shim.rewriter.errors import ConfigError

Described = Tuple[Tuple[int, ...], Any]  # shape, numpy dtype
LOG = logging.getLogger("npu_shim")
COMBINED = 30 << 20  # bytes, XLA's own bound of what is joined
TRIED = ((0, 9), (0, 12))  # first and last release, inclusive; pyproject.toml allows these


def require() -> Any:
    """Imports and returns jax.

    Raises:
        ImportError: it is not installed.
        ConfigError: the release is older than the first that works. A newer one than the last tried is logged.
    """
    try:
        import jax
    except ModuleNotFoundError as reason:
        raise ImportError(
            "npu_shim: JAX cannot be imported (%s); install it with: %s for CPU or %s for CUDA"
            % (reason, extras.pip_install("pjrt"), extras.pip_install("pjrt-cuda"))
        ) from reason
    first, last = (".".join(str(part) for part in release) for release in TRIED)
    version = release(jax.__version__)
    if version < TRIED[0]:
        raise ConfigError("jax %s is too old, expected %s to %s" % (jax.__version__, first, last))
    if version > TRIED[1]:
        LOG.warning("npu_shim: jax %s is newer than the tested versions (%s to %s)", jax.__version__, first, last)
    return jax


def release(version: str) -> tuple[int, ...]:
    """Returns (major, minor) of a version: "0.9.2" -> (0, 9)."""
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


def device(jax: Any, wanted: Any = None) -> Any:
    """Returns a jax device: the default one, the first of a platform ("cpu", "cuda"), or `wanted` itself.

    Raises:
        ConfigError: JAX sees no device of that platform.
    """
    if wanted is None or not isinstance(wanted, str):
        return wanted or jax.devices()[0]
    try:
        return jax.devices(wanted.lower())[0]
    except RuntimeError as reason:
        seen = sorted({d.platform for d in jax.devices()})
        raise ConfigError(
            "device '%s': JAX sees %s only (%s)" % (wanted, ", ".join(seen), str(reason).splitlines()[0])
        ) from reason


def function(
    jax: Any, artifact: bytes, arguments: Sequence[Described], results: Sequence[Described], platform: str
) -> Callable[..., Any]:
    """Returns a StableHLO program as a function of jax arrays, to be called within `jax.enable_x64(True)`.

    Exports a program of zeros with the same arguments and results, and replaces its StableHLO by ours, so that nothing
    here depends on how a release of JAX describes an exported function.

    Args:
        jax: the module.
        artifact: bytes, a StableHLO portable artifact whose function `main` is called.
        arguments: sequence of (shape, dtype) in the program's order.
        results: the same.
        platform: of the device, as jax names it.
    """
    from jax import export
    from jax import numpy as jnp

    zeros = jax.jit(lambda *_: tuple(jnp.zeros(shape, dtype) for shape, dtype in results))
    given = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in arguments]
    platform = {"gpu": "cuda"}.get(platform, platform)
    artifact = barriers.placed(artifact) if platform == "cpu" else artifact
    template = export.export(zeros, platforms=[platform])(*given)
    program = dataclasses.replace(
        template, fun_name="step", mlir_module_serialized=artifact, module_kept_var_idx=tuple(range(len(arguments)))
    )
    call: Callable[..., Any] = program.call
    return call


def compiler_options(platform: str, devices: int = 1) -> dict[str, Any]:
    """Returns the options that programs for a platform, run by a number of devices together, are compiled with.

    On CPUs XLA else leaves out roundings to bfloat16 where that makes a loop shorter, and other ones for other readers
    of a value: a step would differ from a session's, and from one that computes values again. The options cost no time
    that showed beside the noise of 15 to 25 steps (BERT, an LSTM and a CNN in float16 and bfloat16).

    On several GPUs XLA joins exchanges until 30 MiB of results are on each. Of gradients of which each has a part these
    are of as many times more as there are devices: most would travel behind the backward pass, not beside it. On cards
    before Hopper, XLA puts no kernels between the beginning and the end of an exchange unless it is told to.
    """
    if platform == "cpu":
        return {"xla_allow_excess_precision": False}
    if devices == 1 or platform not in ("gpu", "cuda"):
        return {}
    combined = {"xla_gpu_reduce_scatter_combine_threshold_bytes": COMBINED // devices}
    return {**combined, "xla_gpu_enable_latency_hiding_scheduler": True}


def target(jax: Any, device: Any) -> list[str]:
    """Returns what compiled code depends on besides its program: releases, device, processor and settings, as text."""
    from jax._src.lib import xla_client
    from jaxlib import version

    try:
        described = xla_client.get_topology_for_devices([device])
        fits = str(described.fingerprint() if hasattr(described, "fingerprint") else described.serialize())
    except RuntimeError:  # a backend that does not describe itself
        fits = ""
    flags = [os.environ.get(name, "") for name in ("XLA_FLAGS", "LIBTPU_INIT_ARGS")]
    settings = ["%s=%s" % item for item in sorted(jax.config.values.items()) if "compilation_cache" not in item[0]]
    client = device.client
    settings.extend("%s=%s" % item for item in compiler_options(device.platform).items())
    return [
        __version__, jax.__version__, version.__version__, client.platform, client.platform_version,
        device.device_kind, fits, str(os.cpu_count()), *flags, *settings,
    ]  # fmt: skip


def hlo_text(artifact: bytes) -> str:
    """Returns a StableHLO portable artifact as the text of an HLO module, before any optimization."""
    from jax.interpreters import mlir
    from jaxlib import _jax

    with mlir.make_ir_context():
        written = io.BytesIO()
        artifacts.parsed(artifact).operation.write_bytecode(written)
        text: str = _jax.mlir.mlir_module_to_xla_computation(written.getvalue(), return_tuple=True).as_hlo_text()
        return text
