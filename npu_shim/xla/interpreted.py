"""A step as JAX interprets it: its packed graph for feeds of full shapes, which computes values again.

What a step computes again depends on the sizes of its tensors, so that a graph is packed anew for each set of shapes.
"""

from __future__ import annotations

from typing import Any, Mapping, NamedTuple, Sequence

import tensorflow.compat.v1 as tf

from npu_shim.options import engine
from npu_shim.pjrt.attention.spec import CALL, Spec
from npu_shim.rewriter.analysis.frames import V1_OPS
from npu_shim.rewriter.collector import without_collector
from npu_shim.session import lines
from npu_shim.step import packing
from npu_shim.xla import pipeline, step_function
from npu_shim.xla.passes.attention import fusion
from npu_shim.xla.passes.attention.report import ELSEWHERE, OFF, Attention
from npu_shim.xla.passes.memory import rematerialization
from npu_shim.xla.passes.memory.rematerialization.report import Recomputation
from npu_shim.xla.passes.resources import host_reports
from npu_shim.xla.passes.sizes import Sizes

FRAMES = "JAX interprets the step, which has loops or conditionals of TensorFlow 1"
OLD = "JAX interprets the step, whose sizes TensorFlow %s does not tell" % tf.__version__
OF_FRAMES = V1_OPS.union("Ref" + op for op in V1_OPS)


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
    because = _why_not(prepared)
    if because and manner.recompute == "memory":
        lines.once("npu_shim: recompute 'memory' has no effect: %s" % because)
    recomputation, attention = Recomputation(manner.recompute, because=because), _unfused(manner)
    if because and attention is not None:
        return Interpreted(prepared.packed, recomputation, attention, {})
    names = [fetch if isinstance(fetch, str) else fetch.name for fetch in prepared.fetches]
    module = pipeline.module_of(prepared.before, pipeline.results_of(names))
    with prepared.sized(module, shapes):
        host_reports.eliminate(module)
        sizes = Sizes(module)
        if attention is None:
            attention = fusion.fused(module, sizes)
        if not because:
            recomputation = rematerialization.recomputed(module, manner.recompute, manner.on_cpu, sizes)
    content = prepared.packed
    if recomputation.chains or attention.taken:
        content = packing.packed(module, {name: feed.name for name, feed in prepared.feeds.items()})
    texts = [node.attrs["spec"].decode() for node in module.graph if node.op == CALL]
    module.release()
    return Interpreted(content, recomputation, attention, {Spec.from_json(text).name: text for text in texts})


def _unfused(manner: step_function.Manner) -> Attention | None:
    """Why no attention is looked for, None if it is."""
    if manner.attention == "off":
        return OFF
    return None if manner.has_kernels else ELSEWHERE


def _why_not(prepared: step_function.Prepared) -> str:
    """Why nothing is computed again, "" where that depends on the step's sizes."""
    if prepared.manner.recompute == "off":
        return "it is off"
    if not engine.is_converted(tf.__version__):
        return OLD
    return FRAMES if any(node.op in OF_FRAMES for node in prepared.before.node) else ""
