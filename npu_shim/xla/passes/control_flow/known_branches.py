"""Keeps one side of a tf.cond whose predicate is known when the step is compiled: by shapes, constants, or `constants`.

    s = Switch(x, p)   a = Exp(s:1)   m = Merge(s:0, a)   and p is True     becomes     s = x   a = Exp(s)   m = a

The gradient of a loop in a tf.cond needs it. The loop hands its values to its gradient on a Stack, and XLA cannot fill
one in a conditional that may not run. tf.contrib.crf asks in this way whether a sequence has one element.
"""

from __future__ import annotations

import collections
from typing import Any, Iterable, Mapping

import numpy as np
import tensorflow.compat.v1 as tf

from npu_shim.rewriter.graph.arguments import controls, data, output_of, source_of
from npu_shim.session.clusters import pruning
from npu_shim.session.clusters.branches import MERGES, SWITCHES
from npu_shim.xla.passes.legalize.facts import Facts
from npu_shim.xla.passes.legalize.site import NotConstant

ENTERS = ("Switch", "Enter", "Identity")  # what leads a handle into loops and branches
TRIGGER = "ControlTrigger"  # runs whether what it waits for is alive or not
INDEX = "/value_index"  # a Merge's second output, as a node
OPEN = (
    "the loop with node '%s' (StackPushV2) has a gradient and stands in a tf.cond, and XLA must know its predicate "
    "'%s', which depends on what the step is given or computes (see `constants`); move the condition into the loop's, "
    "or run the step in the session instead"
)


def taken(graph_def: Any, keep: Iterable[str]) -> Any:
    """Returns a GraphDef in which each tf.cond with a known predicate is the side that it takes.

    The same object is returned if there is none, or if what is kept is on a side that is not taken.

    Args:
        graph_def: tf.compat.v1.GraphDef with v1 control flow and Placeholders of full shapes; it is not changed.
        keep: names of the nodes that are fetched or run.

    Raises:
        NotConstant: a loop with a gradient is in a tf.cond with an unknown predicate; the error names the predicate.
    """
    nodes = {node.name: node for node in graph_def.node}
    around = _branches_around_loops(graph_def, nodes)
    if not around:
        return graph_def
    sides = _known_sides(graph_def, nodes)
    for push, switch in around.items():
        if switch not in sides:
            raise _not_constant(push, nodes[switch], nodes)
    alive, keep = _alive(nodes, sides), list(keep)
    if not alive.issuperset(keep):
        return graph_def
    merges = _decided_merges(nodes, sides, alive)
    renamed = {"%s:1" % name: name for name in sides}
    renamed.update(("%s:1" % name, name + INDEX) for name in merges)
    decided = tf.GraphDef(versions=graph_def.versions, library=graph_def.library)
    for name in (name for name in nodes if name in alive):
        decided.node.extend(_decided(nodes[name], name in sides, merges.get(name), renamed, alive))
    return taken(pruning.reachable(decided, keep), keep)  # the side that is taken may hold a tf.cond with a loop


def _branches_around_loops(graph_def, nodes):
    """Maps each push of a loop in a tf.cond to the Switch through which the Stack enters that tf.cond."""
    around = {}
    for push in (node for node in graph_def.node if node.op == "StackPushV2"):
        node, in_loop = nodes[source_of(push.input[0])], False
        while node.op in ENTERS:
            if node.op == "Switch" and in_loop:
                around[push.name] = node.name  # the outermost
            in_loop = in_loop or node.op == "Enter"
            node = nodes[source_of(node.input[0])]
    return around


def _not_constant(push, switch, nodes):
    """The error that names a Switch's predicate where it enters the tf.cond: inside it cannot be fetched."""
    user, number = switch, 1
    while nodes[source_of(user.input[number])].op == "Identity":
        user, number = nodes[source_of(user.input[number])], 0
    return NotConstant(OPEN % (push, user.input[number]), user.name, number)


def _known_sides(graph_def, nodes):
    """Maps each Switch with a known predicate to its living output."""
    facts, by_predicate, sides = Facts(graph_def), {}, {}
    for node in nodes.values():
        if node.op in SWITCHES and nodes[source_of(node.input[1])].op != "LoopCond":
            predicate = node.input[1]
            if predicate not in by_predicate:
                by_predicate[predicate] = facts.constant(predicate)
            if by_predicate[predicate] is not None:
                sides[node.name] = int(bool(np.asarray(by_predicate[predicate])))
    return sides


def _alive(nodes: Mapping[str, Any], sides: Mapping[str, int]) -> set[str]:
    """Names of the nodes that may run.

    A Merge runs when one of its inputs is alive, any other node when all are; a loop when all that enters it is alive:
    the counter of a loop's gradient enters a loop in a tf.cond from outside of the tf.cond.
    """
    entering, consumers, alive = collections.defaultdict(list), collections.defaultdict(list), set()
    for node in nodes.values():
        if node.op == "Enter":
            entering[node.attr["frame_name"].s].extend(node.input)
    inputs = {
        node.name: entering[node.attr["frame_name"].s] if node.op == "Enter" else node.input for node in nodes.values()
    }
    for name, texts in inputs.items():
        for source in dict.fromkeys(map(source_of, texts)):
            consumers[source].append(name)
    pending = [name for name, texts in inputs.items() if not texts or nodes[name].op == TRIGGER]
    while pending:
        name = pending.pop()
        if name not in alive and _lives(nodes[name].op, inputs[name], alive, sides):
            alive.add(name)
            pending += consumers[name]
    return {name for name in alive if nodes[name].op != TRIGGER or not alive.isdisjoint(map(source_of, inputs[name]))}


def _lives(op, inputs, alive, sides):
    if op == TRIGGER:
        return True
    living = [_is_alive(text, alive, sides) for text in inputs if text[0] != "^"]
    enough = any(living) if op in MERGES else all(living)
    return enough and all(source_of(text) in alive for text in inputs if text[0] == "^")


def _is_alive(text, alive, sides):
    name, number = output_of(text)
    return name in alive and sides.get(name, number) == number


def _decided_merges(nodes, sides, alive):
    """Maps each Merge with one living input, of several, to the number of that input."""
    decided_merges = {}
    for name in alive:
        if nodes[name].op in MERGES:
            living = [n for n, text in enumerate(data(nodes[name])) if _is_alive(text, alive, sides)]
            if len(living) == 1:
                decided_merges[name] = living[0]
    return decided_merges


def _decided(node, is_known, living, renamed, alive):
    """The nodes that replace a living one.

    Args:
        node: NodeDef.
        is_known: whether it is a Switch with a known predicate.
        living: number of the only living input of a Merge, None for other nodes.
        renamed: tensor -> what replaces it.
        alive: names of the living nodes; only a ControlTrigger waits for others, or for nothing.
    """
    identity = tf.NodeDef()
    identity.CopyFrom(node)
    inputs, waits = data(node), [text for text in controls(node) if source_of(text) in alive]
    if is_known:
        inputs, waits = inputs[:1], [*waits, "^" + source_of(inputs[1])]
    elif living is not None:
        inputs = [inputs[living]]
    if len(inputs) < len(data(node)):
        identity.op = "Identity"
        identity.attr.clear()
        identity.attr["T"].type = node.attr["T"].type
    del identity.input[:]
    identity.input.extend([*(renamed.get(text, text) for text in inputs), *dict.fromkeys(waits)])
    return [identity] if living is None else [identity, _index(node.name, living)]


def _index(name, number):
    """The node that gives which input of a Merge was alive."""
    node = tf.NodeDef(name=name + INDEX, op="Const", input=["^" + name])
    node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(number, tf.int32))
    node.attr["dtype"].type = tf.int32.as_datatype_enum
    return node
