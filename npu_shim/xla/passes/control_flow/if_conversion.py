"""Makes the update of a step that may be skipped unconditional: it always runs, and a choice keeps the old values.

    If(finite, v <- update(v, g), nothing)     becomes     old = v     v <- update(v, g)     v <- finite ? v : old

XLA compiles the branches of an If apart from what surrounds them. So the gradients, unscaled, would be written in
float32 in front of it and read in it; now the casts and products that unscale them are part of the update's kernel,
which reads them in 16 bits. The values are the same bits in steps that are applied and in steps that are skipped. Only
an If that tests whether values are finite is replaced: its update is seldom skipped, so that running it costs nothing.

The loss-scale optimizer first looks at the sum of all squares, and at each value where that is not finite. In one
program both would read all gradients:

    If(finite(sum of squares of x, y), True, all(finite(x), finite(y)))     becomes     all(finite(x), finite(y))
"""

from __future__ import annotations

import math
from typing import Any, Callable, Container, Iterable, Iterator

import numpy as np
import tensorflow.compat.v1 as tf

from npu_shim.rewriter import tf_internals
from npu_shim.rewriter.analysis import order
from npu_shim.rewriter.analysis.writes import PASSES_ON, writes
from npu_shim.rewriter.graph.walks import reached
from npu_shim.rewriter.ir import graphdef
from npu_shim.rewriter.ir.attributes import Callee
from npu_shim.rewriter.ir.graph import Node, Value
from npu_shim.rewriter.ir.module import Function, Module
from npu_shim.rewriter.tables import dtypes
from npu_shim.xla.passes import inlined

IFS = ("If", "StatelessIf")
TESTS = frozenset(["IsFinite", "IsInf", "IsNan"])
# what a predicate may be made of
LOGIC = frozenset(["All", "Any", "Identity", "LogicalAnd", "LogicalNot", "LogicalOr", "Pack", "Reshape", *IFS])
STATE_OPS = ("Assign", "Resource", "ReadVariableOp")  # how the ops begin that read or write variables and nothing else
COSTLY = ("Conv", "MatMul", "Einsum", "Random", "Stateless", "FFT", "Cholesky", "Qr", "Svd")  # in the names of ops
OF_ROWS = ("ResourceScatter", "ResourceSparseApply")  # how the ops begin that write some rows of a variable
# a choice reads and writes all rows of a table of which the update writes a few: such tables are at most an eighth of
# what the update writes
PARTS = 8
SCOPE = "/always/"
RESOURCE, VARIANT, STRING = (dtypes.NUMBERS[name] for name in ("resource", "variant", "string"))
SUMS = frozenset(["Sum", "Pack", "Identity", "AddN", "Cast"])
ALL_OF = frozenset(["All", "Pack", "Identity", "LogicalAnd"])


def predicate(module: Module, context: Any = None) -> None:
    """Has updates under a test of finiteness run unconditionally.

    Args:
        module: of functional control flow and resource variables.
        context: not used.
    """
    for node in [node for node in module.graph if node.op in IFS and _is_seldom_skipped(node)]:
        _straighten(node)


def _is_seldom_skipped(node: Node) -> bool:
    """Whether an If tests finiteness, and has nothing in its branches that is costly or has another effect."""
    tests = any(behind.op in TESTS for behind in _behind(node.inputs[0].node, LOGIC))
    if not tests or not {RESOURCE, VARIANT, STRING}.isdisjoint(node.attrs["Tout"]):  # no choice between such values
        return False
    return _is_plain(node, "else_branch", 0) and _is_plain(node, "then_branch", None)


def _behind(first: Node, ops: Container[str]) -> Iterator[Node]:
    """The nodes whose tensors a node is computed from, through ops, with it."""
    return reached([first], lambda node: [value.node for value in node.inputs] if node.op in ops else [])


def _branch(node: Node, name: str) -> Function:
    return node.graph.module.functions[node.attrs[name].name]


def _is_plain(node: Node, branch: str, most: int | None) -> bool:
    """Whether a branch reads and writes variables at most: `most` of them, None for any number."""
    body = _branch(node, branch)
    if not all(map(_is_cheap, inlined.nodes_of(body))):
        return False
    handles = [value for value in node.inputs[1:] if value.node.op == "VarHandleOp"]
    written = _written(body)
    if len(_resources(body)) != len(handles) or (most is not None and len(written) > most):
        return False
    given = dict(zip(body.arguments, node.inputs[1:]))
    whole = _written(body, lambda writer: not writer.op.startswith(OF_ROWS))
    rows = _elements([given[argument] for argument in written if argument not in whole], math.inf)
    return PARTS * rows <= _elements([given[argument] for argument in whole], 0)


def _is_cheap(node: Node) -> bool:
    known, functions = tf_internals.op_defs(), node.graph.module.functions
    if node.op not in known or node.op in functions or any(word in node.op for word in COSTLY):
        return False
    values = [part for _, value in node.attrs.items() for part in (value if type(value) is tuple else (value,))]
    if any(isinstance(value, Callee) and value.name in functions for value in values):
        return False
    return not known[node.op].is_stateful or node.op.startswith(STATE_OPS)


def _elements(handles: Iterable[Value], unknown: float) -> float:
    """The number of elements of variables; one may be `unknown`."""
    shapes = [handle.node.attrs["shape"].dims for handle in handles]
    return sum(unknown if dims is None or -1 in dims else int(np.prod(dims)) for dims in shapes)


def _resources(body: Function) -> list[Node]:
    return [argument for argument in body.arguments if argument.attrs["T"] == RESOURCE]


def _written(body: Function, counts: Callable[[Node], bool] = lambda writer: True) -> list[Node]:
    """The arguments of a branch that it writes to, by ops that count."""
    return [argument for argument in _resources(body) if any(map(counts, _writers(argument)))]


def _writers(handle: Node) -> list[Node]:
    same = [
        node
        for node in order.descendants([handle], lambda node: node is handle or node.op in PASSES_ON)
        if node is handle or node.op in PASSES_ON
    ]
    return [user for node in same for user in node.users() if writes(user, node)]


def _straighten(node: Node) -> None:
    """Replaces an If by what its branches compute, and choices between that."""
    chooses, scope, waits = str(node.inputs[0]), node.name + SCOPE, ["^" + control.name for control in node.controls]
    then = _branch(node, "then_branch")
    given = dict(zip(then.arguments, node.inputs[1:]))
    written = sorted((given[argument] for argument in _written(then)), key=str)
    olds = [_read("%sold_%d" % (scope, number), handle, waits) for number, handle in enumerate(written)]
    inside, results = _inlined(node, "then_branch", [*waits, *("^" + old.name for old in olds)])
    outside, others = _inlined(node, "else_branch", waits)
    ran = ["^" + proto.name for proto in inside if tf_internals.op_defs()[proto.op].is_stateful]
    protos, assigned = [*olds, *inside, *outside], []
    for number, (handle, old) in enumerate(zip(written, olds)):
        new = _read("%snew_%d" % (scope, number), handle, ran)
        kept = _choice("%skept_%d" % (scope, number), chooses, new.name, old.name, new.attr["dtype"].type)
        assigned.append(_assign("%sassign_%d" % (scope, number), str(handle), kept))
        protos += [new, kept, assigned[-1]]
    ran += ["^" + proto.name for proto in assigned]
    if _is_shortcut(node, results, inside):
        values = [_passed_on("%svalue_0" % scope, others[0])]
    else:
        values = [
            _choice("%svalue_%d" % (scope, number), chooses, *pair, dtype)
            for number, (*pair, dtype) in enumerate(zip(results, others, node.attrs["Tout"]))
        ]
    graphdef.insert(node.graph, [*protos, *values], before=node, origin=node)
    graphdef.become(node, _together(node.name, values, [*waits, *ran]))


def _is_shortcut(node: Node, results: list[str], inside: list[Any]) -> bool:
    """Whether an If is all(finite(values)) where the sum of their squares is not finite, and else true."""
    passed_on = {proto.name: proto.input[0] for proto in inside if proto.op == "Identity"}
    if [passed_on.get(result, result) for result in results] != [str(node.inputs[0])]:
        return False
    body, decides = _branch(node, "else_branch"), node.inputs[0].node
    tested = _all_tested(body, dict(zip(body.arguments, node.inputs[1:])))
    return bool(tested) and decides.op in TESTS and tested <= _squared(decides)


def _all_tested(body: Function, given: dict[Node, Value]) -> set[Value]:
    """The tensors around a body of which it returns whether all values are finite; empty if it is another body."""
    parts = {node for value in body.results.values() for node in _behind(value.node, ALL_OF)}
    if any(node.op not in ALL_OF and node.op not in ("IsFinite", "Const") for node in parts):
        return set()
    return {given[node.inputs[0].node] for node in parts if node.op == "IsFinite" and node.inputs[0].node in given}


def _squared(decides: Node) -> set[Value]:
    """The tensors whose squares' sum a node tests."""
    parts = _behind(decides.inputs[0].node, SUMS) if decides.op == "IsFinite" else ()
    squared = {node.inputs[0] for node in parts if node.op == "L2Loss"}
    return squared | {value.node.inputs[0] for value in squared if value.node.op == "Cast"}


def _read(name: str, handle: Value, waits: Iterable[str]) -> Any:
    read = tf.NodeDef(name=name, op="ReadVariableOp", input=[str(handle), *dict.fromkeys(waits)])
    read.attr["dtype"].type = handle.node.attrs["dtype"]
    return read


def _inlined(node: Node, branch: str, waits: list[str]) -> tuple[list[Any], list[str]]:
    """(NodeDefs of a branch, its results); ops on variables wait for `waits`."""
    body, scope = _branch(node, branch), "%s%s/" % (node.name + SCOPE, branch.partition("_")[0])
    return inlined.as_nodes(body, dict(zip(body.arguments, node.inputs[1:])), scope, waits)


def _choice(name, predicate, first, second, dtype):
    node = tf.NodeDef(name=name, op="SelectV2", input=[predicate, first, second])
    node.attr["T"].type = dtype
    return node


def _passed_on(name, text):
    node = tf.NodeDef(name=name, op="Identity", input=[text])
    node.attr["T"].type = tf.bool.as_datatype_enum
    return node


def _assign(name, handle, value):
    node = tf.NodeDef(name=name, op="AssignVariableOp", input=[handle, value.name])
    node.attr["dtype"].type = value.attr["T"].type
    return node


def _together(name: str, values: Iterable[Any], waits: Iterable[str]) -> Any:
    """The node of the If's name: its results, behind all that ran."""
    values = list(values)
    node = tf.NodeDef(name=name, op="IdentityN" if values else "NoOp", input=[value.name for value in values])
    node.input.extend(dict.fromkeys(waits))
    if values:
        node.attr["T"].list.type.extend(value.attr["T"].type for value in values)
    return node
