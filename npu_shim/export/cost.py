"""The cost of a step from its graph, by TensorFlow's own XLA: float32 as written beside the rewritten step."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf
from tensorflow.compiler.xla.service import hlo_pb2

from npu_shim.export import step as export
from npu_shim.pjrt.cost import hlo, report
from npu_shim.pjrt.cost.report import Cost
from npu_shim.xla import step_function

AS_WRITTEN = {"precision_mode": "must_keep_origin_dtype", "profile": "gpu"}  # changes nothing
FREE = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast"}


def of_graph(
    source: Any,
    fetches: Any,
    feeds: Any,
    options: Any,
    compiled: bool = True,
    float32_products: str | None = "default",
    **given: Any
) -> list[Cost]:
    """Returns two Costs: of the step as written and of the step under the options.

    Args:
        source: a `sources.Source`.
        fetches: as for `step_function.build`.
        feeds: likewise.
        options: precision options, dict.
        compiled: whether to compile for this machine's CPU, for bytes moved and temporary memory.
        float32_products: as for `export`.
        **given: as for `step_function.build`.
    """
    export.require_xla()
    costs = []
    for name, chosen in (("as written", AS_WRITTEN), (None, options)):
        step = step_function.prepare(source, fetches, feeds, **dict(given, **chosen)).for_shapes()
        costs.append(_cost(name or step.plan.policy.name, step, compiled, float32_products))
    return costs


def _cost(name, step, compiled, float32_products):
    module = export.hlo_module(step, float32_products)
    described = export.describe(step, module, kind="hlo", float32_products=float32_products, options={})
    text = export.hlo_of(step, float32_products, "hlo")
    if not compiled:
        return report.of_text(name, text, described)
    made = hlo_pb2.HloProto.FromString(export.hlo_of(step, float32_products, "optimized_hlo_proto_serialized"))
    moved = _moved(hlo.parse(export.hlo_of(step, float32_products, "optimized_hlo")))
    return report.of_text(
        name, text, described, _temporary(made.buffer_assignment), moved, "this CPU, TensorFlow %s" % tf.__version__
    )


def _temporary(assignment):
    """Bytes of the allocations that are neither arguments, results, constants nor a thread's own."""
    return sum(
        each.size
        for each in assignment.buffer_allocations
        if not (each.is_entry_computation_parameter or each.maybe_live_out or each.is_constant or each.is_thread_local)
    )


def _moved(module):
    """Bytes that the instructions of the compiled program read and write, a fusion as one; a loop's body once."""
    return int(_moved_by(module, module.entry))


def _moved_by(module, name):
    computation = module.computations[name]
    total = 0
    for instruction in computation.instructions.values():
        if instruction.code in FREE:
            continue
        if instruction.code in ("while", "call", "conditional"):
            total += sum(_moved_by(module, each) for names in instruction.called.values() for each in names)
            continue
        total += instruction.bytes + sum(computation.instructions[name].bytes for name in instruction.operands)
    return total
