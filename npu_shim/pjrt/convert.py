"""Converts HLO protos to StableHLO with what jaxlib ships.

As a script it needs only JAX, so that `npu-shim export` can run it under another interpreter:

    python convert.py IN OUT
"""

from __future__ import annotations

import re
import sys
from typing import Any

NODE = re.compile(r'"(?:[^";]*/)?step/([^";]+)[";]')  # of a location, which names the step's function first
MESH = "sdy.mesh"  # names the devices that a program divides itself among
TARGET = "1.0.0"  # the version of StableHLO to write: every supported release of JAX reads it


def stablehlo(hlo: bytes) -> bytes:
    """Converts a serialized HLO module proto (of TensorFlow's XLA, say) to a StableHLO portable artifact.

    Raises:
        RuntimeError or ValueError: the module contains something that StableHLO cannot express.
    """
    from jax.interpreters import mlir
    from jaxlib import _jax
    from jaxlib.mlir import ir

    imported = _jax.mlir.hlo_to_stablehlo(hlo)
    with mlir.make_ir_context():
        try:
            module = ir.Module.parse(imported)
        except ir.MLIRError as reason:
            raise ValueError(_refusal(reason)) from reason
        _clean(ir, module)
        return portable(module)


def _refusal(reason: Any) -> str:
    """An MLIRError in one line that names the node of the graph; all after its first diagnostic is the program."""
    if not reason.error_diagnostics:
        return str(reason.message)
    first = reason.error_diagnostics[0]
    match = NODE.search(str(first.location))
    return "%s%s" % ("node '%s': " % match[1] if match else "", first.message)


def portable(module: Any, target: str = TARGET) -> bytes:
    """Returns an MLIR module of StableHLO as a portable artifact of that version, within its context.

    One that says by Shardy's dialect what devices compute of it is for the release of JAX that reads it here.
    """
    from jaxlib import _jax
    from jaxlib.mlir.dialects import stablehlo as dialect

    if any(operation.operation.name == MESH for operation in module.body.operations):
        from jax.interpreters import mlir

        divided: bytes = _jax.mlir.serialize_portable_artifact(mlir.module_to_bytecode(module), target, True)
        return divided
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


def _clean(ir: Any, module: Any) -> None:
    """Removes what the HLO importer leaves of the older MHLO dialect: attributes of the module, and copies."""
    for attribute in list(module.operation.attributes):
        name = attribute if isinstance(attribute, str) else attribute.name
        if name.startswith("mhlo."):
            del module.operation.attributes[name]
    copies = []

    def visit(op: Any) -> Any:
        if op.name == "mhlo.copy":
            op.results[0].replace_all_uses_with(op.operands[0])
            copies.append(op)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    for op in copies:
        op.erase()


if __name__ == "__main__":
    with open(sys.argv[1], "rb") as source:
        text = stablehlo(source.read())
    with open(sys.argv[2], "wb") as target:
        target.write(text)
