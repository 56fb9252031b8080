"""Of ranks with several devices each, every device sends a part of what the ranks add up. Needs JAX.

    gradient [n], on each of 4 devices -> added up over the ranks, [n] from each device         the partitioner
    -> [n/4] on each -> added up over the ranks, [n/4] from each -> gathered in each rank       here

A rank's devices are near each other, ranks may be on different hosts: what a host sends is the gradient once, and not
once for each of its devices. (It is the way of hierarchical all-reduces, such as NCCL's over several nodes.) What is
small each device sends as a whole. The partitioner is told both: what ranks exchange must not hang on what else a rank
does, whose batch may be another one.
"""

from __future__ import annotations

import math
from typing import Any

from npu_shim.pjrt import artifacts
from npu_shim.pjrt.placement import AXIS, RANKS, Placement

NAME = "npu_shim_rank_sum"
LEAST = 1 << 14  # bytes of what is sent in parts: of less, the way takes longer
# {kind}: the type of what is added up; {part}: where a device has a part of it, {whole}: all of it
TEXT = """sdy.mesh @mesh = <[{mesh}]>
func.func private @divided(%x: {kind}) -> {kind} {{
  %part = sdy.sharding_constraint %x <@mesh, [{part}]> : {kind}
  return %part : {kind}
}}
func.func private @gathered(%x: {kind}) -> {kind} {{
  %part = sdy.sharding_constraint %x <@mesh, [{part}]> : {kind}
  %all = sdy.sharding_constraint %part <@mesh, [{whole}]> : {kind}
  return %all : {kind}
}}
"""


def for_devices(artifact: bytes, placement: Placement) -> bytes:
    """Returns a program whose sums over ranks travel as above.

    Args:
        artifact: bytes of a StableHLO portable artifact.
        placement: of the devices that run it.
    """
    from jax.interpreters import mlir
    from jaxlib.mlir import ir

    if placement.ranks == 1 or len(placement.devices) == 1:
        return artifact
    with mlir.make_ir_context() as context, context, ir.Location.unknown():
        module = artifacts.parsed(artifact)
        main = next(one for one in artifacts.functions(module) if artifacts.name(one) == "main")
        sums = [one.operation for one in main.regions[0].blocks[0].operations if _is_taken(one.operation)]
        for number, one in enumerate(sums):
            _edit(ir, module, one, placement, number)
        return artifacts.portable(module, artifacts.newest()) if sums else artifact


def _is_taken(one: Any) -> bool:
    return bool(one.name == "stablehlo.all_reduce" and one.results[0].type.rank)


def _is_large(kind: Any) -> bool:
    return bool(math.prod(kind.shape) * getattr(kind.element_type, "width", 0) // 8 >= LEAST)


def _edit(ir: Any, module: Any, one: Any, placement: Placement, number: int) -> None:
    """Calls functions of a sum's operand and result, which say where their parts are."""
    kind = one.results[0].type
    longest = max(range(kind.rank), key=lambda dim: kind.shape[dim]) if _is_large(kind) else None
    mesh = '"%s"=%d, "%s"=%d' % (RANKS, placement.ranks, AXIS, len(placement.devices))
    part = ", ".join('{"%s"}' % AXIS if dim == longest else "{}" for dim in range(kind.rank))
    given = ir.Module.parse(TEXT.format(mesh=mesh, kind=kind, part=part, whole=", ".join(["{}"] * kind.rank)))
    artifacts.place_mesh(ir, module, given)
    names = {}
    for function in artifacts.functions(given):
        copy, name = function.operation.clone(ir.InsertionPoint(module.body)), artifacts.name(function)
        names[name] = "%s_%s.%d" % (NAME, name, number)
        copy.attributes["sym_name"] = ir.StringAttr.get(names[name])

    def called(name: str, value: Any) -> Any:
        callee, where = {"callee": ir.FlatSymbolRefAttr.get(names[name])}, ir.InsertionPoint(one)
        return ir.Operation.create("func.call", [kind], [value], callee, ip=where, loc=one.location).results[0]

    one.operands[0] = called("divided", one.operands[0])
    again = one.clone(ir.InsertionPoint(one))
    one.results[0].replace_all_uses_with(called("gathered", again.results[0]))
    one.erase()
