"""A step as JAX interprets it: its packed graph for feeds of full shapes, which computes values again.

What a step computes again depends on the sizes of its tensors, so that a graph is packed anew for each set of shapes.
"""

from __future__ import annotations

from typing import Any, Mapping, NamedTuple, Sequence

from npu_shim.pjrt.attention.spec import CALL, Spec
from npu_shim.rewriter.analysis.frames import V1_OPS
from npu_shim.rewriter.collector import without_collector
from npu_shim.session import lines
from npu_shim.xla import step_function
from npu_shim.xla.passes import rematerialization
from npu_shim.xla.passes.attention import fusion
from npu_shim.xla.passes.attention.report import ELSEWHERE, OFF, Attention
from npu_shim.xla.passes.rematerialization.report import Recomputation
from npu_shim.xla.passes.sizes import Sizes

UNSIZED = "the sizes of tensors in the step's loops are not known: %s"


class Interpreted(NamedTuple):
    """A packed step.

    Attributes:
        content: as `step.packing.packed` returns it.
        recomputation: what it computes again.
        attention: what of its attention is calls.
        specs: name of a function that these call -> its `attention.spec.Spec` as JSON.
    """

    content: bytes
    recomputation: Recomputation
    attention: Attention
    specs: Mapping[str, str]


@without_collector()
def of(prepared: step_function.Prepared, shapes: Sequence[Any]) -> Interpreted:
    """Returns a step for feeds of these shapes, in the order of `prepared.feeds`.

    Raises:
        ConfigError: a shape does not fit the graph's.
    """
    manner = prepared.manner
    recomputation = rematerialization.OFF if manner.recompute == "off" else None
    attention = _unfused(manner)
    if recomputation and attention:
        return Interpreted(prepared.packed, recomputation, attention, {})
    module = prepared.module()
    with prepared.sized(module, shapes):
        try:
            sizes = Sizes(module)
        except ValueError as reason:
            if V1_OPS.isdisjoint(node.op for node in module.graph):
                raise
            return _unsized(prepared, attention, str(reason).partition("\n")[0])
        attention = attention or fusion.fused(module, sizes)
        recomputation = recomputation or rematerialization.recomputed(module, manner.recompute, sizes)
    is_changed = recomputation.chains or attention.taken
    content = prepared.as_packed(module) if is_changed else prepared.packed
    texts = [node.attrs["spec"].decode() for node in module.graph if node.op == CALL]
    module.release()
    return Interpreted(content, recomputation, attention, {Spec.from_json(text).name: text for text in texts})


def _unsized(prepared: step_function.Prepared, attention: Attention | None, why: str) -> Interpreted:
    """A step as its graph has it: loops may give their variables other sizes in each iteration."""
    because = UNSIZED % why
    manner = prepared.manner
    if manner.recompute == "memory":
        lines.once("npu_shim: recompute 'memory' has no effect: %s" % because)
    recomputation = Recomputation(manner.recompute, because=because)
    return Interpreted(prepared.packed, recomputation, attention or Attention("auto", because=because), {})


def _unfused(manner: step_function.Manner) -> Attention | None:
    """Why no attention is looked for, None if it is."""
    if manner.attention == "off":
        return OFF
    return None if manner.has_kernels else ELSEWHERE
