"""Turns XLA's compile errors into one sentence that names the node and its op."""

from __future__ import annotations

import contextlib
import re
from types import MappingProxyType
from typing import Any, Container, Iterator, Mapping, Sequence

import tensorflow.compat.v1 as tf

from npu_shim.rewriter.errors import PlanError
from npu_shim.rewriter.ir.module import Provenance
from npu_shim.xla.passes.control_flow.functionalization import IN_SESSION
from npu_shim.xla.passes.legalize.host import HOST
from npu_shim.xla.passes.legalize.site import NotConstant
from npu_shim.xla.passes.legalize.splice import SCOPE
from npu_shim.xla.passes.shapes import compile_time

NODE = re.compile(r"(?:\{\{node |op_name=\")(?:\S*?step/)?([^\s}\"]+)")
REFUSALS = (
    tf.errors.InvalidArgumentError, tf.errors.UnimplementedError, tf.errors.InternalError, tf.errors.NotFoundError,
    tf.errors.FailedPreconditionError,
)  # fmt: skip
SIZES = (
    "XLA must know its sizes and axes when it compiles, and they depend on what the step is given or computes; see "
    "`constants`"
)
NO_KERNEL = "XLA has no kernel for it"
UNBOUNDED = (
    "it keeps a value of each iteration of a loop of version 2 for the gradient, and XLA must know how many: give "
    "tf.while_loop its maximum_iterations"
)
EQUALLY_MANY = "two tensors have numbers of rows that depend on the data, and XLA cannot tell that these are equal"
NOTHING: Mapping[str, Provenance] = MappingProxyType({})
OPEN = re.compile(r"Input (\d+) to node `(?:\S*?step/)?([^\s`]+)` with op \S+ must be a compile-time constant")
REASONS = (  # pattern of TensorFlow's text -> what it means
    (re.compile(r"No registered '(\w+)' OpKernel for \S+ devices"), NO_KERNEL),
    (re.compile(r"must be a compile-time constant"), SIZES),
    (re.compile(r"requires a fixed tensor list size"), UNBOUNDED),
    (re.compile(r"Fail to proof the equality of two dimensions"), EQUALLY_MANY),
)


def refusal(text: str, graph_def: Any = None, provenance: Mapping[str, Provenance] = NOTHING) -> PlanError:
    """Returns an XLA error as a PlanError; as a NotConstant if it names the input that is not constant.

    Args:
        text: the text of TensorFlow's error.
        graph_def: as for `xla_errors`; None to quote only the text's first line.
        provenance: as for `xla_errors`.
    """
    sentence = _sentence(text, graph_def, provenance) if graph_def is not None else (
        "the step cannot be compiled by XLA: %s" % text.splitlines()[0]
    )  # fmt: skip
    match = OPEN.search(text)
    return NotConstant(sentence, match[2], int(match[1])) if match else PlanError(sentence)


def require_known_shapes(graph_def: Any, among: Container[str]) -> None:
    """Raises NotConstant where a step (tf.GraphDef) needs a feed's value as a size; the node is one of `among`."""
    open_one = compile_time.open_size(graph_def, among)
    if open_one is not None:
        node, number = open_one
        text = "node '%s' (%s) cannot be compiled by XLA: %s; %s" % (node.name, node.op, SIZES, IN_SESSION)
        raise NotConstant(text, node.name, number)


@contextlib.contextmanager
def xla_errors(graph_def: Any, provenance: Mapping[str, Provenance] = NOTHING) -> Iterator[None]:
    """Context in which XLA's compile errors become PlanErrors.

    Args:
        graph_def: the step's tf.GraphDef, which maps nodes to ops.
        provenance: where the nodes come from that are none of the script's, by name.
    """
    try:
        yield
    except REFUSALS as error:
        raise refusal(error.message, graph_def, provenance) from error


def hlo_of(step: Any, stage: str, feeds: Sequence[Any] = ()) -> Any:
    """Returns the HLO of a StepFunction in that `stage`, for `feeds` as `StepFunction.hlo` takes them.

    Raises:
        ConfigError: the graph does not take feeds of these shapes.
        PlanError: XLA refuses the step.
    """
    step.function  # noqa: B018  errors of tracing are none of XLA's
    try:
        with xla_errors(step.graph_def, step.provenance):
            return step.hlo(stage, feeds)
    except PlanError:
        raise
    except ValueError as reason:  # some refusals come as text only
        raise refusal(str(reason)) from reason


def parsed(hlo: bytes) -> Any:
    """Returns HLO of stage "hlo_serialized" as an HloModuleProto."""
    from tensorflow.compiler.xla.service import hlo_pb2  # TensorFlow 1 has none

    return hlo_pb2.HloModuleProto.FromString(hlo)


def _sentence(text: str, graph_def: Any, provenance: Mapping[str, Provenance]) -> str:
    name, op = _node(text, graph_def)
    where = "node '%s' (%s)" % (name, op) if name else "the step"
    if name in provenance:
        where += ", made " + str(provenance[name])
    reason = next((meaning for pattern, meaning in REASONS if pattern.search(text)), text.strip().splitlines()[0])
    if op in HOST and reason == NO_KERNEL:
        reason = "%s: %s. Feed the step what it gives, or" % (NO_KERNEL, HOST[op])
        return "%s cannot be compiled by XLA: %s %s" % (where, reason, IN_SESSION)
    return "%s cannot be compiled by XLA: %s; %s" % (where, reason, IN_SESSION)


def _node(text: str, graph_def: Any) -> Any:
    """(name, op) of the first node of the graph, lowered or not, that a text names; (None, None) if it names none."""
    bodies = [function.node_def for function in graph_def.library.function]
    ops = {node.name: node.op for nodes in [*bodies, graph_def.node] for node in nodes}
    names = (name.partition(SCOPE)[0] for name in NODE.findall(text))
    return next(((name, ops[name]) for name in names if name in ops), (None, None))
