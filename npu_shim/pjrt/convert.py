"""Converts HLO protos of TensorFlow's XLA to StableHLO with what jaxlib ships."""

from __future__ import annotations

import re
from typing import Any

from npu_shim.pjrt import artifacts

NODE = re.compile(r'"(?:[^";]*/)?step/([^";]+)[";]')  # of a location, which names the step's function first


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
        return artifacts.portable(module, artifacts.OLDEST)


def _refusal(reason: Any) -> str:
    """An MLIRError in one line that names the node of the graph; all after its first diagnostic is the program."""
    if not reason.error_diagnostics:
        return str(reason.message)
    first = reason.error_diagnostics[0]
    match = NODE.search(str(first.location))
    return "%s%s" % ("node '%s': " % match[1] if match else "", first.message)


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
