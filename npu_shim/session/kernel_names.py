"""Renames stateful ops that run in two dtypes within one session.

A session creates the kernel of a stateful op once and looks it up by the op's name in every graph that it runs. A
node's dtype can depend on the fetches: the TensorArray of an RNN's input is float16 when the network only runs forward,
and float32 when an embedding is trained through it. So a stateful op whose dtype has changed gets a name of its own.
Where its old name is fetched, an IdentityN has that.
"""

from __future__ import annotations

from typing import Any, Iterable, Mapping

import tensorflow.compat.v1 as tf

from npu_shim.rewriter import tf_internals
from npu_shim.rewriter.graph.arguments import source_of

_LOCATION = b"loc:@"


def distinct(before: tf.GraphDef, after: tf.GraphDef, asked: Iterable[str] = ()) -> dict[str, str]:
    """Renames the stateful nodes of a rewritten graph whose dtypes have changed, in place.

    Args:
        before: tf.compat.v1.GraphDef, a session's graph.
        after: the rewritten GraphDef; it is changed.
        asked: names of what a run fetches, tensors and nodes.

    Returns:
        Dict of old name -> new name.
    """
    ops, was = tf_internals.op_defs(), {node.name: node for node in before.node}
    taken = {node.name for node in after.node}
    moved = {}
    for node in after.node:
        old = was.get(node.name)
        if old is not None and old.op == node.op and node.op in ops and ops[node.op].is_stateful:
            changed = [v for v in _dtypes(node) if v not in _dtypes(old)]
            if changed:
                moved[node.name] = _reserve_name("%s-in-%s" % (node.name, tf.as_dtype(changed[0]).name), taken)
    if moved:
        for node in after.node:
            _rewire(node, moved)
        by_name = {node.name: node for node in after.node}
        fetched = {source_of(name) for name in asked}
        after.node.extend([_under(old, by_name[new]) for old, new in moved.items() if old in fetched])
    return moved


def undone(after: tf.GraphDef, moved: Mapping[str, str]) -> tf.GraphDef:
    """Returns a graph as it was before `distinct` renamed nodes in it.

    Args:
        after: tf.compat.v1.GraphDef; it is not changed.
        moved: what `distinct` returned.
    """
    by_name = {node.name: node for node in after.node}
    read = {source_of(text) for node in after.node for text in node.input}  # a copy is for who fetches, no reader
    names = {old: new for old, new in moved.items() if new in by_name and old not in read}
    standing = {old: _under(old, by_name[new]) for old, new in names.items()}
    made = tf.GraphDef(versions=after.versions, library=after.library)
    made.node.extend(node for node in after.node if node != standing.get(node.name))
    back = {new: old for old, new in moved.items()}
    for node in made.node:
        _rewire(node, back)
    return made


def _under(name: str, node: Any) -> Any:
    """A node of that name which gives another one's outputs."""
    dtypes = _outputs(node)
    if not dtypes:
        return tf.NodeDef(name=name, op="NoOp", input=["^" + node.name], device=node.device)
    inputs = ["%s:%d" % (node.name, number) for number in range(len(dtypes))]
    made = tf.NodeDef(name=name, op="IdentityN", input=inputs, device=node.device)
    made.attr["T"].list.type.extend(dtypes)
    return made


def _outputs(node: Any) -> list[int]:
    """The dtypes of a node's outputs."""
    found: list[int] = []
    for each in tf_internals.op_defs()[node.op].output_arg:
        if each.type_list_attr:
            found += node.attr[each.type_list_attr].list.type
        else:
            count = node.attr[each.number_attr].i if each.number_attr else 1
            found += [each.type or node.attr[each.type_attr].type] * count
    return found


def _dtypes(node: Any) -> list[int]:
    """The dtypes among a node's attributes, in the order of their names."""
    values = [value for _, value in sorted(node.attr.items())]
    return [dtype for value in values for dtype in ([value.type] if value.type else value.list.type)]


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
        name = place[len(_LOCATION) :].decode()
        if place.startswith(_LOCATION) and name in moved:
            node.attr["_class"].list.s[number] = _LOCATION + moved[name].encode()
