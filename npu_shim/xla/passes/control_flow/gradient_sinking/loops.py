"""Finds the loops that TensorFlow 1 makes for gradients, and what they take from the loops that they belong to.

    while ...:      push(stack, a);  n = n + 1        n counts the steps from 0
    while n >= 1:   n = n - 1;  a = pop(stack)        the gradient's loop: n is the place of a in the Stack

Source: TensorFlow's control_flow_ops.py (AddForwardLoopCounter, AddBackpropLoopCounter), control_flow_state.py.
"""

from __future__ import annotations

from typing import Any, Collection, Mapping, NamedTuple

import tensorflow.compat.v1 as tf

from npu_shim.rewriter.graph.arguments import data, output_of, source_of, tensor_of
from npu_shim.session.clusters.branches import Branches
from npu_shim.xla.passes.shapes import static_shapes

PASSES_ON = ("Enter", "Identity", "Switch")


class Loop(NamedTuple):
    """A loop outside of other loops and of tf.cond.

    Attributes:
        enter: the Enter of its counter.
        condition: name of its LoopCond.
        place: tensor in it, int32: the number of the step, from 0.
    """

    enter: Any
    condition: str
    place: str


class Stack(NamedTuple):
    """A Stack that each step of a loop pushes to, once, and each step of its gradient pops from, once."""

    push: Any
    pop: Any


class Gradient(NamedTuple):
    """A loop, its gradient's loop, and what they have in common.

    Attributes:
        forward: Loop.
        backward: Loop; its steps count the places down.
        stacks: name of a pop -> Stack.
        size: how many steps there are at most.
    """

    forward: Loop
    backward: Loop
    stacks: Mapping[str, Stack]
    size: int


class View:
    """A graph with its loops.

    Args:
        graph_def: tf.compat.v1.GraphDef with v1 control flow.

    Attributes:
        nodes: name -> NodeDef.
        consumers: name -> names of the nodes that have it as an input.
    """

    def __init__(self, graph_def: Any) -> None:
        branches = Branches(graph_def)
        self.nodes, self.consumers = branches.nodes, branches.consumers
        self._branches, self._loops = branches.of, _loops_around(branches.nodes)
        self._graph_def, self._graph = graph_def, None
        self._gradients: dict[str, Any] = {}

    def source(self, text: str) -> Any:
        """Returns the node of a tensor or control input."""
        return self.nodes[source_of(text)]

    def tensor(self, text: str) -> Any:
        """Returns a tf.Tensor with a tensor's dtype and shape."""
        if self._graph is None:
            self._graph = static_shapes.loopless(self._graph_def)
        return self._graph.as_graph_element(tensor_of(text))

    def readers(self, name: str) -> list[Any]:
        """Returns the nodes that take a tensor of a node; what only waits for it is not one of them."""
        users = map(self.nodes.__getitem__, self.consumers[name])
        return [node for node in users if name in map(source_of, data(node))]

    def gradient(self, condition: str) -> Gradient | None:
        """Returns the Gradient whose backward loop has the LoopCond of this name; None if there is none."""
        if condition not in self._gradients:
            self._gradients[condition] = self._gradient(self.nodes[condition])
        return self._gradients[condition]

    def _gradient(self, condition):
        test = self.source(condition.input[0])
        if test.op != "GreaterEqual" or self._constant(test.input[1]) != 1:
            return None
        down = self._counter(self.source(test.input[0]), ("Sub",))
        left = self.source(down.enter.input[0]) if down else test
        if left.op != "Exit" or source_of(down.switch.input[1]) != condition.name:
            return None
        up = self._counter(self.source(self.source(left.input[0]).input[0]), ("Add", "AddV2"))
        if up is None or up.switch.name != source_of(left.input[0]) or self._constant(up.enter.input[0]) != 0:
            return None
        forward = Loop(up.enter, source_of(up.switch.input[1]), up.switch.name + ":1")
        backward = Loop(down.enter, condition.name, down.step.name)
        return self._together(forward, backward) if self._is_outside(forward) and self._is_outside(backward) else None

    def _counter(self, merge, ops):
        """The _Counter with this Merge, which counts by one by one of `ops`; None if it is another loop variable."""
        if merge.op != "Merge" or len(data(merge)) != 2:
            return None
        enter, following = map(self.source, data(merge))
        step = self.source(following.input[0]) if following.op == "NextIteration" else following
        if enter.op != "Enter" or step.op not in ops or self._constant(step.input[1]) != 1:
            return None
        switch, port = output_of(step.input[0])
        counter = _Counter(enter, self.nodes[switch], step)
        is_own = counter.switch.op == "Switch" and port == 1 and source_of(counter.switch.input[0]) == merge.name
        return counter if is_own else None

    def _is_outside(self, loop):
        """Whether a loop is in no other and in no tf.cond; constants may enter an inner loop past the outer one."""
        own = self._loops[loop.enter.name][-1]
        around = [self._loops[node.name] for node in self.nodes.values() if node.op == "Enter"]
        return not self._branches[loop.condition] and all(names == (own,) for names in around if names[-1] == own)

    def _together(self, forward, backward):
        stacks, sizes = {}, []
        for node in self.nodes.values():
            stack = self._stack(node, forward, backward) if node.op == "StackV2" else None
            size = self._constant(node.input[0]) if stack else None
            if size:
                stacks[stack.pop.name] = stack
                sizes.append(size)
        return Gradient(forward, backward, stacks, min(sizes)) if sizes and min(sizes) > 0 else None

    def _stack(self, node, forward, backward):
        """The Stack of a node if it belongs to two loops, else None."""
        users = {user.op: user for user in self._users(node.name)}
        if len(list(self._users(node.name))) != 2 or set(users) != {"StackPushV2", "StackPopV2"}:
            return None
        stack = Stack(users["StackPushV2"], users["StackPopV2"])
        for user, loop in zip(stack, (forward, backward)):
            if self._loops[user.name] != self._loops[loop.enter.name] or self._branches[user.name]:
                return None
        return stack

    def _users(self, name):
        """The nodes that take a handle, behind those that pass it on."""
        for reader in self.readers(name):
            if reader.op in PASSES_ON:
                yield from self._users(reader.name)
            else:
                yield reader

    def _constant(self, text):
        """The value of a constant of one element, also where it enters a loop; else None."""
        node = self.source(text)
        while node.op in ("Identity", "Enter"):
            node = self.source(node.input[0])
        value = tf.make_ndarray(node.attr["value"].tensor) if node.op == "Const" else None
        return value.item() if value is not None and value.size == 1 else None


class _Counter(NamedTuple):
    """The nodes of a loop variable that counts steps."""

    enter: Any
    switch: Any
    step: Any


def _loops_around(nodes: Mapping[str, Any]) -> dict[str, Collection[str]]:
    """Maps each node to the names of the loops that it is in, outermost first; takes them in topological order."""
    loops: dict[str, Any] = {}
    for name, node in nodes.items():
        around = next((loops[source] for source in map(source_of, node.input) if source in loops), ())
        if node.op == "Enter":
            around = (*around, node.attr["frame_name"].s)
        loops[name] = around[:-1] if node.op == "Exit" else around
    return loops
