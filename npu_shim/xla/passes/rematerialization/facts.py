"""Reads a step's module into what planning needs: nodes in topological order, with the shapes of their results.

A loop of TensorFlow 1 is there with its nodes, which run where it runs: what leaves it waits for all that enters it,
and edges to its next iteration do not count.
"""

from __future__ import annotations

import collections
import functools
import operator
from operator import attrgetter
from typing import Any, Sequence

from npu_shim.rewriter.analysis import order
from npu_shim.rewriter.analysis.frames import ENTERS, EXITS, frames
from npu_shim.rewriter.analysis.order import MERGES, NEXT
from npu_shim.rewriter.ir.graph import Graph, Value
from npu_shim.rewriter.ir.graph import Node as Op
from npu_shim.rewriter.ir.module import Module
from npu_shim.rewriter.tables import dtypes
from npu_shim.xla.passes import enclosed
from npu_shim.xla.passes.rematerialization import table
from npu_shim.xla.passes.rematerialization.step import Node, Result, Step
from npu_shim.xla.passes.sizes import Sizes

NAME = attrgetter("name")
LEAVES = EXITS | MERGES
HANDS_ON = frozenset(["Identity", "RefIdentity", "StopGradient"])


def read(module: Module, mode: str, sizes: Sizes) -> Step:
    """Returns the Step of a module whose feeds have full shapes.

    Args:
        module: a Module.
        mode: "auto", or "memory", for which batched products of two computed values are small.
        sizes: of its tensors.
    """
    entered = _entered(module.graph)
    kinds = _kinds(module)
    ops = _in_order(module.graph, entered)
    place = {node: number for number, node in enumerate(ops)}

    def results(number: int) -> tuple[Result, ...]:
        return tuple([Result(dtypes.name(dtype), dims) for dtype, dims in sizes.results(ops[number])])

    nodes: list[Node] = []
    for number, op in enumerate(ops):
        inputs = tuple([(place[value.node], value.index) for value in _inputs(op)])
        flops = 0
        if mode == "memory" and op.op in table.PRODUCTS:  # no other mode runs a product again
            flops = _flops(op, [*(results(source)[port].sizes for source, port in inputs), results(number)[-1].sizes])
        waits = tuple([place[source] for source in (*op.controls, *entered.get(op, ()))])
        nodes.append(Node(op.name, kinds.get(op) or _op(op), inputs, waits, flops))
    small = frozenset(number for number, node in enumerate(nodes) if mode == "memory" and node.op in table.BATCHED)
    return Step(tuple(nodes), results, small)


def _entered(graph: Graph) -> dict[Op, list[Op]]:
    """Exit of an outermost loop -> the Enters of that loop that wait for no Exit, as a gradient's counter may."""
    if not any(node.op in EXITS for node in graph.nodes.values()):
        return {}
    enters: dict[Any, list[Op]] = collections.defaultdict(list)
    exits: dict[Any, list[Op]] = collections.defaultdict(list)
    for node, frame in frames(graph).items():
        if node.op in ENTERS | EXITS and len(frame) == 1:
            (enters if node.op in ENTERS else exits)[frame].append(node)
    entered: dict[Op, list[Op]] = {}
    for frame, left in exits.items():
        behind = set(order.descendants(left))
        first = [node for node in enters[frame] if node not in behind]
        entered.update(dict.fromkeys(left, first))
    return entered


def _kinds(module: Module) -> dict[Op, str]:
    """The nodes whose op is not what planning goes by: in loops and conditionals, behind them, reads of references."""
    kinds: dict[Op, str] = dict.fromkeys(enclosed.nodes(module.graph), table.ENCLOSED)
    for node in module.graph.nodes.values():
        if node not in kinds and node.op in LEAVES:
            kinds[node] = table.LOOP if node.op in EXITS else table.CONDITIONAL
        elif node.op in table.REFERENCES:
            kind = table.LATE_READ if _is_written_early(module, node) else table.READ
            if kind == table.LATE_READ:
                kinds[node] = kind
            reads = [user for user in node.value.users if user.op in HANDS_ON and user not in kinds]
            kinds.update(dict.fromkeys(reads, kind))
    return kinds


def _is_written_early(module: Module, variable: Op) -> bool:
    """Whether anything is computed behind a write to a reference variable, whose memory then has another value."""
    writers = [user for user in variable.value.users if _takes_reference(module, user)]
    return any(node.op not in ("NoOp", *HANDS_ON) for node in order.descendants(writers) if node not in writers)


def _takes_reference(module: Module, node: Op) -> bool:
    definition = module.definition(node.op)
    return definition is not None and any(argument.is_ref for argument in definition.inputs)


def _inputs(node: Op) -> Sequence[Value]:
    """Its data inputs; a loop's Merge has what enters in the place of what the iteration before gave."""
    if node.op not in MERGES or not order.closes_loop(node):
        return node.inputs
    first = next(value for value in node.inputs if value.node.op not in NEXT)
    return [first if value.node.op in NEXT else value for value in node.inputs]


def _in_order(graph: Graph, entered: dict[Op, list[Op]]) -> list[Op]:
    """The nodes, each behind its sources, depth first in the order of their names."""

    def sources(node: Op) -> list[Op]:
        behind = node.sources() if node.op not in MERGES else (n for n in node.sources() if n.op not in NEXT)
        return [*behind, *entered.get(node, ())]

    done: list[Op] = []
    is_done: dict[Op, bool] = {}
    for start in sorted(graph, key=NAME):
        stack = [] if start in is_done else [start]
        while stack:
            node = stack[-1]
            if node not in is_done:
                is_done[node] = False
                stack += sorted((source for source in sources(node) if source not in is_done), key=NAME)
                continue
            stack.pop()
            if not is_done[node]:
                is_done[node] = True
                done.append(node)
    return done


def _op(node: Op) -> str:
    """The op's type; a batch normalization that does not train has another name, so that no table contains it."""
    infers = node.op in table.NORMALISED and not node.attrs.get("is_training", True)
    return "%s of inference" % node.op if infers else node.op


def _flops(node: Op, sizes: Sequence[tuple[int, ...] | None]) -> int:
    """Twice the product of the sizes of the result and of the summed dimensions; 0 if they are not known.

    Args:
        node: a product.
        sizes: of its inputs and of its result.
    """
    known = [size for size in sizes if size is not None]
    if len(known) < len(sizes):
        return 0
    first, result = known[0], known[-1]  # tf.einsum may have one input
    summed = 0
    if node.op == "MatMul" or node.op in table.BATCHED:
        summed = first[-2 if node.attrs.get("transpose_a" if node.op == "MatMul" else "adj_x") else -1]
    if node.op == "Conv2D":
        summed = _product(known[1][:-1])
    return int(2 * _product(result) * summed)


def _product(numbers: Sequence[int]) -> int:
    return functools.reduce(operator.mul, numbers, 1)
