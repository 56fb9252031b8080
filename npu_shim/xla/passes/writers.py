"""Finds the variables that a step writes to."""

from __future__ import annotations

import collections
from typing import Any, Iterable, Mapping, Sequence

from npu_shim.rewriter.analysis.writes import PASSES_ON, READS
from npu_shim.rewriter.graph.arguments import data, source_of

VARIABLES = ("VarHandleOp", "VariableV2", "Variable")
OWN_CONTAINER = ("", "localhost")  # TensorFlow's own, by both of its names


def variable_name(node: Any) -> str:
    """Returns what identifies a variable, given its node: its name in shared resources, with its container behind it.

    That is "v" in TensorFlow's own container and "v@c" in `tf.container("c")`; these are two variables.
    """
    name, container = node.attr["shared_name"].s.decode() or node.name, node.attr["container"].s.decode()
    return str(name if container in OWN_CONTAINER else "%s@%s" % (name, container))


def collected_names(variables: Iterable[Any]) -> dict[str, str]:
    """Returns what identifies each of a graph's collected variables -> its op's name, under which Savers write it."""
    ops = [variable.op for variable in variables]
    return {variable_name(op.node_def) if op.type in VARIABLES else op.name: op.name for op in ops}


def clear_containers(graph_def: Any, whole: Any) -> Any:
    """Leaves out the containers of a GraphDef's variables, in place, where names tell these apart; returns it.

    So a step's variables have their names in TensorFlow's checkpoints wherever that is possible.

    Args:
        graph_def: the GraphDef of a step.
        whole: the one that it was cut from, whose other variables are in the same checkpoints.
    """
    variables = [node for node in graph_def.node if node.op in VARIABLES]
    contained = [node for node in variables if "container" in node.attr and node.attr["container"].s]
    if not contained:
        return graph_def
    identities = collections.defaultdict(set)
    for node in whole.node:
        if node.op in VARIABLES:
            identities[node.attr["shared_name"].s or node.name.encode()].add(variable_name(node))
    for node in contained:
        if len(identities[node.attr["shared_name"].s or node.name.encode()]) == 1:
            node.attr["container"].s = b""
    return graph_def


def written_by(nodes: Sequence[Any], origins: Mapping[str, set[str]], bodies: Mapping[str, Any]) -> set[str]:
    """Returns the handles that nodes write to.

    Args:
        nodes: NodeDefs, in any order.
        origins: name of a tensor's node (or of an argument) -> set of the handles that it may be.
        bodies: name -> FunctionDef of the graph's library.
    """
    origins = dict(origins)
    written = set()
    changed = True
    while changed:  # to a fixed point, since nodes may be in any order
        changed = False
        for node in nodes:
            inputs = [] if node.op in READS else [source_of(text) for text in data(node)]
            taken = [origins[name] for name in inputs if name in origins]
            if not taken:
                continue
            reaching = set().union(*taken)
            if node.op in PASSES_ON and origins.get(node.name) != reaching:
                origins[node.name] = reaching
                changed = True
            if node.op not in PASSES_ON:
                written |= _call_writes(node, inputs, origins, bodies)
    return written


def _call_writes(
    node: Any, inputs: Sequence[str], origins: Mapping[str, set[str]], bodies: Mapping[str, Any]
) -> set[str]:
    functions = called(node, bodies)
    if not functions:
        return set().union(*(origins.get(name, ()) for name in inputs))
    if node.op in ("If", "StatelessIf", "Case"):
        inputs = inputs[1:]  # the predicate is not an argument of the branches
    written = set()
    for body in functions:
        arguments = {arg.name: origins[name] for arg, name in zip(body.signature.input_arg, inputs) if name in origins}
        written |= written_by(body.node_def, arguments, bodies)
    return written


def called(node: Any, bodies: Mapping[str, Any]) -> list[Any]:
    """Returns the FunctionDefs that a node calls, by its op or its attributes.

    Args:
        node: NodeDef.
        bodies: name -> FunctionDef.
    """
    names = [node.op, *(attr.func.name for attr in node.attr.values())]
    names += [func.name for attr in node.attr.values() for func in attr.list.func]
    return [bodies[name] for name in names if name in bodies]
