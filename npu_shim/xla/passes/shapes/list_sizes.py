"""Folds the lengths of lists in loops of version 2, since XLA must know how long a list is when it makes one.

The gradient of a loop that reads a list makes a list as long, and the forward loop keeps the length for it, in a list
that grows by one in every iteration:

    forward:  TensorListPushBack(kept, TensorListLength(xs))
    backward:  TensorListReserve(.., TensorListPopBack(kept))   becomes   TensorListReserve(.., Const)

A list is as long behind a loop as before it if the body only sets its items, and what is popped is what was pushed if
that is the same in every iteration. Both hold until something contradicts it: the answers start at "whatever", and what
nodes say is joined until nothing changes (Wegman and Zadeck, Constant Propagation with Conditional Branches, 1991).
"""

from __future__ import annotations

import enum
from typing import Any, Iterable, NamedTuple

from npu_shim.rewriter.analysis import calls
from npu_shim.rewriter.graph.walks import behind, reached
from npu_shim.rewriter.ir.attributes import DType, Tensor
from npu_shim.rewriter.ir.graph import Graph, Node, Value
from npu_shim.rewriter.ir.module import Function, Module
from npu_shim.rewriter.tables.dtypes import NUMBERS
from npu_shim.rewriter.tables.function_calls import LOOP
from npu_shim.xla.passes.shapes.optionals.inference import Inferred

LENGTH, SHAPE = "TensorListLength", "TensorListElementShape"
POP = "TensorListPopBack"
OPS = frozenset([LENGTH, SHAPE])  # what asks for the sizes of lists
INTEGERS = frozenset(NUMBERS[name] for name in ("int32", "int64"))


class Asks(enum.Enum):
    """What is asked of a value: its number, or of a list its length or its element's shape."""

    NUMBER = 1
    LENGTH = 2
    SHAPE = 3


class Question(NamedTuple):
    """What is asked of a value; with a depth of 1 of the items of the list that it is, with 2 of theirs, .."""

    asks: Asks
    depth: int
    value: Value


WHATEVER, NOTHING = "whatever", None  # answers of what contradicts no number, and of what is no one number
DEEPEST = 8  # loops in loops
# what is asked of a list: what is asked instead, of which input of the op that makes it
MADE = {
    "TensorListReserve": {Asks.SHAPE: (Asks.NUMBER, 0), Asks.LENGTH: (Asks.NUMBER, 1)},
    "EmptyTensorList": {Asks.SHAPE: (Asks.NUMBER, 0)},
    LENGTH: {Asks.NUMBER: (Asks.LENGTH, 0)},
    SHAPE: {Asks.NUMBER: (Asks.SHAPE, 0)},
}
RESIZED = ("TensorListPushBack", POP)  # give a list of other length, with elements of the same shape
FORWARDS = ("TensorListSetItem", "ZerosLike", "AddN")  # give lists as long as those that they take


def fold(module: Module, context: Any = None) -> None:
    """Makes lengths and element shapes of lists constants where they are known, in loops and their gradients too.

    Args:
        module: of functional control flow, with Placeholders of full shapes.
        context: not used.
    """
    asked = Answers(module)
    for graph in asked.graphs:
        for node in graph:
            value = node.output(1) if node.op == POP else node.value
            dtype = node.attrs.get("element_dtype" if node.op == POP else "shape_type", NUMBERS["int32"])
            if (node.op in OPS or node.op == POP) and dtype in INTEGERS and value.users:
                number = asked.number(value)
                if number is not None:
                    _replace(value, number, DType(dtype))


def _replace(value: Value, number: Any, dtype: DType) -> None:
    node = value.node
    tensor = Tensor(dtype, (len(number),), tuple(number)) if isinstance(number, list) else Tensor(dtype, (), (number,))
    name, attrs = node.graph.free_name(node.name + "/known"), {"dtype": dtype, "value": tensor}
    constant = node.graph.add(name, "Const", attrs=attrs, origin=node, before=node)
    value.replace_by(constant.value)


class Answers:
    """What is known of the numbers and lists of a module as it is now: no list grows (list_growth.py).

    Attributes:
        graphs: the graph and the functions that it calls, callers first.
        callers: function -> the nodes that call it.
    """

    def __init__(self, module: Module) -> None:
        self._module = module
        self.graphs: list[Graph] = [module.graph, *calls.callers_first(module.graph, lambda node: True)]
        self.callers: dict[Graph, list[Node]] = {}
        for graph in self.graphs:
            for node in graph:
                for function in calls.functions(node):
                    self.callers.setdefault(function, []).append(node)
        self._inferred: Inferred | None = None
        self._known: dict[Question, Any] = {}

    def number(self, value: Value) -> Any:
        """A value as an int or a list of them; None where it is not known."""
        return self._answer(Question(Asks.NUMBER, 0, value))

    def length(self, handle: Value) -> int | None:
        """How long a list is; None where it is not known."""
        answer: int | None = self._answer(Question(Asks.LENGTH, 0, handle))
        return answer

    def same_lists(self, handle: Value) -> list[Value] | None:
        """The lists that one is, or is as long as; None for one that a node makes."""
        if handle.node.op in FORWARDS:
            return [handle.node.inputs[0]]
        return self._handed(handle)

    def _answer(self, question: Question) -> Any:
        if question not in self._known:
            self._settle(question)
        answer = self._known[question]
        return None if answer is WHATEVER else answer

    def _settle(self, first: Question) -> None:
        """Answers a question, and all that its answer hangs on."""
        needs = {question: self._needs(question) for question in reached([first], self._followed)}
        answers = dict.fromkeys(needs, WHATEVER)
        changed = True
        while changed:
            changed = False
            for question, need in needs.items():
                answer = need if not isinstance(need, tuple) else _joined(map(answers.__getitem__, need))
                changed = changed or answer != answers[question]
                answers[question] = answer
        self._known.update(answers)

    def _followed(self, question: Question) -> tuple[Question, ...]:
        need = self._needs(question)
        return need if isinstance(need, tuple) else ()

    def _needs(self, question: Question) -> Any:
        """The questions whose common answer is that of a question, or the answer itself."""
        asks, depth, value = question
        node = value.node
        handed = self._handed(value)
        if handed is not None:
            return tuple(Question(asks, depth, source) for source in handed)
        if depth:
            return _needs_of_items(question)
        if node.op == "Const" and asks is Asks.NUMBER:
            return _content(node)
        if node.op == "StridedSlice" and asks is Asks.NUMBER:
            return self._of_shape(node)
        if node.op == "TensorListFromTensor" and asks is not Asks.NUMBER:
            return self._of_tensor(node.inputs[0], asks)
        if node.op in MADE:
            instead, number = MADE[node.op].get(asks, (None, 0))
            return NOTHING if instead is None else (Question(instead, 0, node.inputs[number]),)
        if value.index == 1 and node.op == POP:
            return (Question(asks, 1, node.inputs[0]),)
        return _needs_of_list(question)

    def _of_tensor(self, value: Value, asks: Asks) -> Any:
        """The length or element shape of a list of a tensor's rows."""
        dims = self._dims(value)
        if not dims:
            return NOTHING
        return dims[0] if asks is Asks.LENGTH else NOTHING if None in dims[1:] else dims[1:]

    def _of_shape(self, node: Node) -> Any:
        """What tf.shape(x)[n] is."""
        shape, place = behind(node.inputs[0]).node, behind(node.inputs[1]).node
        if shape.op not in ("Shape", "Const") or place.op != "Const" or node.attrs.get("shrink_axis_mask") != 1:
            return NOTHING
        dims: Any = _content(shape) if shape.op == "Const" else self._dims(shape.inputs[0])
        at = _content(place)
        if not isinstance(dims, list) or not isinstance(at, list) or len(at) != 1:
            return NOTHING
        return dims[at[0]] if -len(dims) <= at[0] < len(dims) else NOTHING

    def _dims(self, value: Value) -> list[int | None] | None:
        """The sizes of a tensor, None for one that is not known; None in all for an unknown rank, or several calls."""
        if not self._is_called_once(value.node.graph):
            return None
        if self._inferred is None:
            self._inferred = Inferred(self._module, {})
        if value.node.graph not in self._inferred.graphs:
            return None
        shape = self._inferred.tensor(value).shape
        return None if shape.rank is None else shape.as_list()

    def _is_called_once(self, graph: Graph) -> bool:
        """Whether a graph has one set of arguments; `Inferred` has the shapes of the first call alone."""
        while graph is not self._module.graph:
            callers = self.callers.get(graph, [])
            if len(callers) != 1:
                return False
            graph = callers[0].graph
        return True

    def _handed(self, value: Value) -> list[Value] | None:
        """The values that one is, where a node, a call, a branch or a loop hands it on; None for what is computed."""
        node = value.node
        graph = node.graph
        if isinstance(graph, Function) and node in graph.arguments:
            place = graph.arguments.index(node)
            sources = [calls.given(caller)[place] for caller in self.callers[graph]]
            loops = [caller for caller in self.callers[graph] if calls.kind(caller) == LOOP]
            return sources + [body_of(caller).returned[place] for caller in loops]
        if node.op == "Identity":
            return [node.inputs[0]]
        functions = calls.functions(node)
        if not functions:
            return None
        if calls.kind(node) == LOOP:
            return [node.inputs[value.index], body_of(node).returned[value.index]]
        return [function.returned[value.index] for function in functions]


def _needs_of_items(question: Question) -> Any:
    """What is needed for a question about the items of a list."""
    asks, depth, value = question
    node = value.node
    if node.op == "EmptyTensorList":
        return ()
    if node.op == "TensorListPushBack":
        return Question(asks, depth, node.inputs[0]), Question(asks, depth - 1, node.inputs[1])
    if node.op == POP and depth + value.index <= DEEPEST:
        return (Question(asks, depth + value.index, node.inputs[0]),)
    return NOTHING


def _needs_of_list(question: Question) -> Any:
    """What is needed for a question about a list that a node makes of others."""
    asks, _, value = question
    node = value.node
    taken = node.inputs if node.op == "AddN" else node.inputs[:1]
    if (asks is Asks.SHAPE and node.op in RESIZED) or (asks is not Asks.NUMBER and node.op in FORWARDS):
        return tuple(Question(asks, 0, source) for source in taken)
    return NOTHING


def body_of(loop: Node) -> Function:
    """The second function of a loop; the first is its condition."""
    return calls.functions(loop)[1]


def _content(node: Node) -> Any:
    """A constant that is an integer, or a list of them."""
    tensor = node.attrs["value"]
    if tensor.dtype not in INTEGERS or len(tensor.dims) > 1:
        return NOTHING
    return list(tensor.numbers()) if tensor.dims else tensor.numbers()[0]


def _joined(answers: Iterable[Any]) -> Any:
    """What several answers agree on."""
    told = [answer for answer in answers if answer is not WHATEVER]
    return WHATEVER if not told else told[0] if all(answer == told[0] for answer in told) else NOTHING
