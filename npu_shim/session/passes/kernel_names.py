"""Renames stateful ops that run in two dtypes, or with two functions, within one session.

A session creates the kernel of a stateful op once and looks it up by the op's name in every graph that it runs. A
node's dtype can depend on the fetches: the TensorArray of an RNN's input is float16 when the network only runs forward,
and float32 when an embedding is trained through it. So can the functions of an If or a While. So a stateful op whose
attributes have changed gets a name that says what they are now. Where its old name is fetched, an IdentityN has that.
"""

from __future__ import annotations

import hashlib
from typing import Any, Iterable, Mapping

import tensorflow.compat.v1 as tf

from npu_shim.rewriter import tf_internals
from npu_shim.rewriter.graph.arguments import source_of
from npu_shim.rewriter.ir import graphdef
from npu_shim.rewriter.ir.module import Module

_LOCATION = b"loc:@"


def distinct(before: tf.GraphDef, after: tf.GraphDef) -> dict[str, str]:
    """Names the stateful nodes of a rewritten graph whose attributes have changed.

    Args:
        before: tf.compat.v1.GraphDef, a session's graph.
        after: the rewritten GraphDef.

    Returns:
        Dict of old name -> new name. In every rewrite of a graph, equal changes of a node give it equal names, and
        other changes give it others.
    """
    ops, was = tf_internals.op_defs(), {node.name: node for node in before.node}
    taken = {node.name for node in after.node}
    moved = {}
    for node in after.node:
        old = was.get(node.name)
        if old is not None and old.op == node.op and node.op in ops and ops[node.op].is_stateful:
            form = _form(old, node)
            if form:
                moved[node.name] = _reserve_name("%s-in-%s" % (node.name, form), taken)
    return moved


def rename(module: Module, moved: Mapping[str, str], asked: Iterable[str] = ()) -> None:
    """Gives the nodes of a rewritten graph their new names.

    Args:
        module: changed in place.
        moved: what `distinct` returned.
        asked: names of what a run fetches, tensors and nodes.
    """
    graph = module.graph
    graph.rename({graph[old]: new for old, new in moved.items()})
    for node in graph:
        places = node.attrs.get("_class", ())
        if any(_moved_place(place, moved) != place for place in places):
            node.attrs["_class"] = tuple(_moved_place(place, moved) for place in places)
    fetched = {source_of(name) for name in asked}
    stands_for = {old: graphdef.written(graph[moved[old]], tf.NodeDef()) for old in moved if old in fetched}
    graphdef.insert(graph, [_under(old, node) for old, node in stands_for.items()])


def undone(after: tf.GraphDef, moved: Mapping[str, str]) -> tf.GraphDef:
    """Returns a graph as it was before `rename`.

    Args:
        after: tf.compat.v1.GraphDef; it is not changed.
        moved: what `distinct` returned.
    """
    by_name = {node.name: node for node in after.node}
    read = {source_of(text) for node in after.node for text in node.input}  # a copy is for who fetches, no reader
    names = {old: new for old, new in moved.items() if new in by_name and old not in read}
    standing = {old: _under(old, by_name[new]) for old, new in names.items()}
    graph_def = tf.GraphDef(versions=after.versions, library=after.library)
    graph_def.node.extend(node for node in after.node if node != standing.get(node.name))
    back = {new: old for old, new in moved.items()}
    for node in graph_def.node:
        _rewire(node, back)
    return graph_def


def _under(name: str, node: Any) -> Any:
    """A node of that name which gives another one's outputs."""
    dtypes = _outputs(node)
    if not dtypes:
        return tf.NodeDef(name=name, op="NoOp", input=["^" + node.name], device=node.device)
    inputs = ["%s:%d" % (node.name, number) for number in range(len(dtypes))]
    alias = tf.NodeDef(name=name, op="IdentityN", input=inputs, device=node.device)
    alias.attr["T"].list.type.extend(dtypes)
    return alias


def _outputs(node: Any) -> list[int]:
    """The dtypes of a node's outputs."""
    outputs: list[int] = []
    for argument in tf_internals.op_defs()[node.op].output_arg:
        if argument.type_list_attr:
            outputs += node.attr[argument.type_list_attr].list.type
        else:
            count = node.attr[argument.number_attr].i if argument.number_attr else 1
            outputs += [argument.type or node.attr[argument.type_attr].type] * count
    return outputs


def _form(old: Any, node: Any) -> str:
    """The attributes of a node that have changed, as a word: a dtype where that says all; "" if none has."""
    changed = {name: value for name, value in sorted(node.attr.items()) if _makes(name) and value != old.attr.get(name)}
    dtypes = [value.type for value in changed.values()]
    if len(dtypes) < 2 and all(dtypes):
        return "".join(tf.as_dtype(dtype).name for dtype in dtypes)
    said = b"".join(name.encode() + value.SerializeToString(deterministic=True) for name, value in changed.items())
    return hashlib.sha256(said).hexdigest()[:16]


def _makes(name: str) -> bool:
    """Whether a kernel may be made by an attribute: one with _ in front is about the node, not the op."""
    return name[0] != "_"


def _reserve_name(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def _rewire(node: Any, moved: Mapping[str, str]) -> None:
    node.name = moved.get(node.name, node.name)
    for number, text in enumerate(node.input):
        name = source_of(text)
        if name in moved:
            node.input[number] = text.replace(name, moved[name], 1)
    for number, place in enumerate(node.attr["_class"].list.s if "_class" in node.attr else ()):
        node.attr["_class"].list.s[number] = _moved_place(place, moved)


def _moved_place(place: bytes, moved: Mapping[str, str]) -> bytes:
    """A location, by the new name of its node."""
    name = place[len(_LOCATION) :].decode()
    return _LOCATION + moved[name].encode() if place.startswith(_LOCATION) and name in moved else place
