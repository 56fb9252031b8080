"""StableHLO portable artifacts: read and written with what jaxlib ships."""

from __future__ import annotations

from typing import Any

MESH = "sdy.mesh"  # names the devices that a program divides itself among
OLDEST = "1.0.0"  # a version of StableHLO that every supported release of JAX reads


def for_older(artifact: bytes) -> bytes:
    """Returns an artifact in a version that older releases of JAX read too; as it is where that cannot express it."""
    from jax.interpreters import mlir
    from jaxlib.mlir import ir

    with mlir.make_ir_context() as context:
        context.attach_diagnostic_handler(lambda _: True)  # nobody need read it
        try:
            return portable(parsed(artifact), OLDEST)
        except (ValueError, RuntimeError, ir.MLIRError):
            return artifact


def portable(module: Any, target: str) -> bytes:
    """Returns an MLIR module of StableHLO as a portable artifact of that version, within its context.

    One that has more than StableHLO's dialect, such as what Shardy's says of devices, or a scan of JAX's own for GPUs,
    is for the release of JAX that reads it here.
    """
    from jax.interpreters import mlir
    from jaxlib import _jax
    from jaxlib.mlir.dialects import stablehlo as dialect

    if target == newest():
        mixed: bytes = _jax.mlir.serialize_portable_artifact(mlir.module_to_bytecode(module), target, True)
        return mixed
    artifact: bytes = dialect.serialize_portable_artifact(module, target)
    return artifact


def newest() -> str:
    """Returns the version of StableHLO that this jaxlib has, for what it reads itself."""
    from jaxlib.mlir.dialects import stablehlo as dialect

    version: str = dialect.get_current_version()
    return version


def parsed(artifact: bytes) -> Any:
    """Returns a StableHLO portable artifact as an MLIR module, within an MLIR context."""
    from jaxlib import _jax
    from jaxlib.mlir import ir

    module = _jax.mlir.deserialize_portable_artifact(artifact)
    return ir.Module.parse(module) if isinstance(module, (bytes, str)) else module  # a module since JAX 0.10 or so
