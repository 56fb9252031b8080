"""Finds the loops that TensorFlow 1 makes for gradients, and what they take from the loops that they belong to.

    while ...:      push(stack, a);  n = n + 1        n counts the steps from 0
    while n >= 1:   n = n - 1;  a = pop(stack)        the gradient's loop: n is the place of a in the Stack

Source: TensorFlow's control_flow_ops.py (AddForwardLoopCounter, AddBackpropLoopCounter), control_flow_state.py.
"""

from __future__ import annotations

from typing import Any, Collection, Iterator, Mapping, NamedTuple

from npu_shim.rewriter.analysis import branches, frames
from npu_shim.rewriter.graph.arguments import tensor_of
from npu_shim.rewriter.graph.walks import behind
from npu_shim.rewriter.ir.graph import CONTROL, Node, Value
from npu_shim.rewriter.ir.module import Module
from npu_shim.xla.passes.shapes import static_shapes

PASSES_ON = ("Enter", "Identity", "Switch")


class Loop(NamedTuple):
    """A loop outside of other loops and of tf.cond.

    Attributes:
        enter: the Enter of its counter.
        condition: its LoopCond.
        place: value in it, int32: the number of the step, from 0.
    """

    enter: Node
    condition: Node
    place: Value


class Stack(NamedTuple):
    """A Stack that each step of a loop pushes to, once, and each step of its gradient pops from, once."""

    push: Node
    pop: Node


class Gradient(NamedTuple):
    """A loop, its gradient's loop, and what they have in common.

    Attributes:
        forward: Loop.
        backward: Loop; its steps count the places down.
        stacks: pop -> Stack.
        size: how many steps there are at most.
    """

    forward: Loop
    backward: Loop
    stacks: Mapping[Node, Stack]
    size: int


class View:
    """A graph with its loops.

    Args:
        module: has v1 control flow.

    Attributes:
        graph: its graph.
    """

    def __init__(self, module: Module) -> None:
        self.graph, self._module = module.graph, module
        self._inferred: Any = None
        self._branches, self._loops = branches.branches(self.graph), frames.frames(self.graph)
        self._gradients: dict[Node, Gradient | None] = {}

    def tensor(self, value: Value) -> Any:
        """Returns a tf.Tensor with the dtype and shape that a value had when one was first asked for."""
        if self._inferred is None:
            self._inferred = static_shapes.of_module(self._module)
        return self._inferred.as_graph_element(tensor_of(str(value)))

    def readers(self, node: Node) -> Collection[Node]:
        """Returns the nodes that take a tensor of a node; what only waits for it is not one of them."""
        return dict.fromkeys(user for value in node.values() if value.index != CONTROL for user in value.users)

    def gradient(self, condition: Node) -> Gradient | None:
        """Returns the Gradient whose backward loop has this LoopCond; None if there is none."""
        if condition not in self._gradients:
            self._gradients[condition] = self._gradient(condition)
        return self._gradients[condition]

    def _gradient(self, condition: Node) -> Gradient | None:
        test = condition.inputs[0].node
        if test.op != "GreaterEqual" or _constant(test.inputs[1]) != 1:
            return None
        down = self._counter(test.inputs[0].node, ("Sub",))
        if down is None or down.switch.inputs[1].node is not condition or down.enter.inputs[0].node.op != "Exit":
            return None
        left = down.enter.inputs[0].node
        up = self._counter(left.inputs[0].node.inputs[0].node, ("Add", "AddV2"))
        if up is None or up.switch is not left.inputs[0].node or _constant(up.enter.inputs[0]) != 0:
            return None
        forward = Loop(up.enter, up.switch.inputs[1].node, up.switch.output(1))
        backward = Loop(down.enter, condition, down.step.value)
        return self._together(forward, backward) if self._is_outside(forward) and self._is_outside(backward) else None

    def _counter(self, merge: Node, ops: Collection[str]) -> _Counter | None:
        """The _Counter with this Merge, which counts by one by one of `ops`; None if it is another loop variable."""
        if merge.op != "Merge" or len(merge.inputs) != 2:
            return None
        enter, following = (value.node for value in merge.inputs)
        step = following.inputs[0].node if following.op == "NextIteration" else following
        if enter.op != "Enter" or step.op not in ops or _constant(step.inputs[1]) != 1:
            return None
        switch, port = step.inputs[0].node, step.inputs[0].index
        is_own = switch.op == "Switch" and port == 1 and switch.inputs[0].node is merge
        return _Counter(enter, switch, step) if is_own else None

    def _is_outside(self, loop: Loop) -> bool:
        """Whether a loop is in no other and in no tf.cond; constants may enter an inner loop past the outer one."""
        own = self._loops[loop.enter][-1]
        around = [self._loops[node] for node in self.graph if node.op == "Enter"]
        return not self._branches[loop.condition] and all(names == (own,) for names in around if names[-1] == own)

    def _together(self, forward: Loop, backward: Loop) -> Gradient | None:
        stacks, sizes = {}, []
        for node in self.graph:
            stack = self._stack(node, forward, backward) if node.op == "StackV2" else None
            size = _constant(node.inputs[0]) if stack else None
            if stack and size:
                stacks[stack.pop] = stack
                sizes.append(size)
        return Gradient(forward, backward, stacks, min(sizes)) if sizes and min(sizes) > 0 else None

    def _stack(self, node: Node, forward: Loop, backward: Loop) -> Stack | None:
        """The Stack of a node if it belongs to two loops, else None."""
        users = {user.op: user for user in self._users(node)}
        if len(list(self._users(node))) != 2 or set(users) != {"StackPushV2", "StackPopV2"}:
            return None
        stack = Stack(users["StackPushV2"], users["StackPopV2"])
        for user, loop in zip(stack, (forward, backward)):
            if self._loops[user] != self._loops[loop.enter] or self._branches[user]:
                return None
        return stack

    def _users(self, node: Node) -> Iterator[Node]:
        """The nodes that take a handle, behind those that pass it on."""
        for reader in self.readers(node):
            if reader.op in PASSES_ON:
                yield from self._users(reader)
            else:
                yield reader


class _Counter(NamedTuple):
    """The nodes of a loop variable that counts steps."""

    enter: Node
    switch: Node
    step: Node


def _constant(value: Value) -> Any:
    """The number of a constant of one element, also where it enters a loop; else None."""
    node = behind(value, ("Identity", "Enter")).node
    numbers = node.attrs["value"].numbers() if node.op == "Const" else None
    return numbers[0] if numbers is not None and len(numbers) == 1 else None
