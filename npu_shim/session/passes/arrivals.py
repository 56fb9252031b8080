"""Notes when the input of a collective has come: in a session's graph NpuShimArrive stands before each.

    x -> CollectiveReduce                     what the script wrote, what `rewrite` and plans show
    x -> NpuShimArrive -> CollectiveReduce    what a session of several ranks runs

The op is defined in native/arrivals.cc. By what it has noted the other ranks tell a collective that waits for them from
one whose own input stands still (`distributed.watch`).
"""

from __future__ import annotations

from npu_shim.distributed.collectives import in_graph, signature
from npu_shim.distributed.liveness import progress
from npu_shim.rewriter.ir import definitions
from npu_shim.rewriter.ir.definitions import Argument, Definition
from npu_shim.rewriter.ir.graph import Graph, Node
from npu_shim.rewriter.ir.module import Module
from npu_shim.session.native import loader

OP = "NpuShimArrive"
definitions.OURS[OP] = Definition(
    name=OP,
    inputs=(Argument("x", type_attr="T"),),
    outputs=(Argument("y", type_attr="T"),),
    attributes={"T": ("type", None, ()), "key": ("int", None, ())},
    is_stateful=True,
)
_marked: dict[int, tuple[str, int]] = {}  # instance key -> (node, group's key) of the collectives that may run here


def mark(module: Module) -> None:
    """Puts NpuShimArrive before each collective of a module."""
    for graph in module.graphs_with(_is_collective):
        _mark(graph)


def noted() -> dict[int, progress.Arrival]:
    """Returns what has come to the collectives of the graphs that were marked, by instance key."""
    come = loader.arrivals()
    return {key: progress.Arrival(*known, *come.get(key, (0, 0.0))) for key, known in list(_marked.items())}


def _is_collective(op: str) -> bool:
    return op.startswith(in_graph.PREFIX)


def _mark(graph: Graph) -> None:
    for node in graph:
        # TensorFlow's optimizers go round twice where nothing is lowered
        if not _is_collective(node.op) or not node.inputs or node.inputs[0].node.op == OP:
            continue
        key = _key(node, "instance_key")
        if key is not None:
            _marked[key] = node.name, _key(node, "group_key") or 0
            _put_before(node, key)


def _key(node: Node, name: str) -> int | None:
    """A key of a collective, as `signature.instance_of`; None where the graph does not say."""
    if name in node.attrs:
        return int(node.attrs[name])
    at = signature.INPUTS.get(node.op, {}).get(name)
    source = None if at is None else node.inputs[at].node
    return None if source is None or source.op != "Const" else int(source.attrs["value"].numbers()[0])


def _put_before(node: Node, key: int) -> None:
    attrs = {"T": node.attrs["T"], "key": key}
    source, waits = node.inputs[0], node.controls
    name = node.name + "/npu_shim_arrive"
    arrival = node.graph.add(name, OP, [source], waits, attrs, node.device, origin=node)
    node.set_input(0, arrival.value)
    node.set_controls([])
