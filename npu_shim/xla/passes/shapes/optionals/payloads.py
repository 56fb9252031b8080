"""Finds the tensors that hold one Optional, wherever it is passed on, and the dtype and shape of its value."""

from __future__ import annotations

from typing import Any, Iterable, Mapping, NamedTuple, Tuple

import tensorflow.compat.v1 as tf

from npu_shim.rewriter.analysis import calls
from npu_shim.rewriter.errors import PlanError
from npu_shim.rewriter.ir.attributes import DType
from npu_shim.rewriter.ir.graph import Node, Value
from npu_shim.rewriter.ir.module import Function
from npu_shim.rewriter.tables.function_calls import LOOP
from npu_shim.xla.passes.shapes.optionals.inference import Inferred
from npu_shim.xla.passes.shapes.optionals.origins import VARIANT, component_types, holds_tensor

OPTIONALS = frozenset(["OptionalFromValue", "OptionalNone", "OptionalGetValue"])
# all inputs and the first output hold the same, or zeros
FORWARDS = frozenset(["Identity", "Enter", "Exit", "NextIteration", "Merge", "ZerosLike"])
LIST_OPS = frozenset(name for name in dir(tf.raw_ops) if "TensorList" in name)

FIXED = frozenset([
    tf.bool, tf.int8, tf.uint8, tf.int16, tf.uint16, tf.int32, tf.uint32, tf.int64, tf.uint64, tf.float16, tf.bfloat16,
    tf.float32, tf.float64,
])  # fmt: skip
DEPTH = 2  # lists in lists that a loop in a loop makes

Slot = Tuple[Value, int]  # a value of dtype variant, 0; or 1 for the elements of the list that it is, 2 for theirs, ..


class TensorType(NamedTuple):
    """A tf.DType and a full shape."""

    dtype: Any
    dims: tuple[int, ...]

    @property
    def bytes(self) -> int:
        """Its size."""
        size: int = tf.TensorShape(self.dims).num_elements() * self.dtype.size
        return size

    @property
    def number(self) -> DType:
        """The dtype's number."""
        return DType(self.dtype.as_datatype_enum)


class Payloads(NamedTuple):
    """What tensors hold in place of Optionals.

    Attributes:
        slots: slot that is an Optional -> TensorType. It is uint8 [bytes of the largest] where the branches of a
            conditional have values of different dtypes or shapes there.
        own: OptionalFromValue or OptionalGetValue of a tensor -> TensorType of what it puts in or takes out.
    """

    slots: Mapping[Slot, TensorType]
    own: Mapping[Node, TensorType]


def find(inferred: Inferred, origins: Mapping[Node, Node]) -> Payloads:
    """Returns what the Optionals of a module hold.

    Args:
        inferred: of the module.
        origins: as of `origins.find`.

    Raises:
        PlanError: that is not known; the error names the node and says why.
    """
    slots = _Slots(inferred)
    for graph in inferred.graphs:
        for node in graph:
            slots.read(node)
    return slots.payloads(origins)


class _Slots:
    """Slots in classes: those of one class hold the same Optional, or handles of the same list."""

    def __init__(self, inferred: Inferred) -> None:
        self._inferred = inferred
        self._graphs = frozenset(inferred.graphs)
        self._parent: dict[Slot, Slot] = {}
        self._optional: set[Slot] = set()
        self._foreign: dict[Slot, str] = {}  # slots that an op uses which is not known here, or makes: that op
        self._put: dict[Node, Any] = {}  # OptionalFromValue -> tf.Tensor that it puts in
        self._taken: dict[Node, Any] = {}  # OptionalGetValue -> tf.Tensor that it takes out

    def payloads(self, origins: Mapping[Node, Node]) -> Payloads:
        """The result of `find`, once all nodes are read."""
        optional = set(map(self._root, self._optional))
        for slot, op in self._foreign.items():
            if self._root(slot) in optional:
                raise _refused(slot[0].node, "which %s takes" % op)
        held: dict[Slot, set[TensorType]] = {root: set() for root in optional}
        own: dict[Node, TensorType] = {}
        for node, tensor in self._put.items():
            if not tensor.shape.is_fully_defined() or tensor.dtype not in FIXED:
                raise _refused(node, "a %s of shape %s, and XLA must know both" % (tensor.dtype.name, tensor.shape))
            own[node] = TensorType(tensor.dtype, tuple(tensor.shape.as_list()))
            held[self._root((node.value, 0))].add(own[node])
        for node, tensor in self._taken.items():
            origin = origins.get(node)
            candidates = {own[origin]} if origin in own else held[self._root((node.inputs[0], 0))]
            fitting = [candidate for candidate in candidates if _fits(candidate, tensor)]
            if len(fitting) != 1:
                raise _refused(node, "of shape %s, and which of %d values it is is not known" % (
                    tensor.shape, len(candidates)))  # fmt: skip
            own[node] = fitting[0]
        return Payloads({s: _common(held[self._root(s)]) for s in self._parent if self._root(s) in optional}, own)

    def read(self, node: Node) -> None:
        """Notes what a node does with values of dtype variant."""
        taken = [(value, 0) for value in node.inputs if self._inferred.is_variant(value)]
        if calls.kind(node) is not None:
            self._read_call(node)
        elif node.op in OPTIONALS:
            self._read_optional(node)
        elif node.op in LIST_OPS:
            self._read_list(node)
        elif node.op in FORWARDS or node.op == "Switch":
            given = [(node.output(index), 0) for index in range(1 + (node.op == "Switch"))]
            self._join(*taken, *(given if taken else []))
        else:
            self._foreign.update((slot, node.op) for slot in taken)

    def _read_call(self, node: Node) -> None:
        is_loop = calls.kind(node) == LOOP
        for number, function in enumerate(calls.functions(node)):
            if function in self._graphs:
                self._join_body(node, function, gives=not is_loop or number > 0)  # a condition gives no variable
        if is_loop:  # before the first iteration and after the last one
            self._join_pairs(node.inputs, [node.output(port) for port in range(len(node.inputs))])

    def _join_body(self, node: Node, function: Function, gives: bool) -> None:
        self._join_pairs(calls.given(node), [argument.value for argument in function.arguments])
        if gives:
            results = function.returned
            self._join_pairs(results, [node.output(port) for port in range(len(results))])

    def _join_pairs(self, values: Iterable[Value], others: Iterable[Value]) -> None:
        """Joins values with others, pair by pair, where they are of dtype variant."""
        for value, other in zip(values, others):
            if self._inferred.is_variant(value):
                self._join((value, 0), (other, 0))

    def _read_optional(self, node: Node) -> None:
        takes = node.op == "OptionalGetValue"
        optional = (node.inputs[0] if takes else node.value, 0)
        self._join(optional)
        self._optional.add(optional)
        if node.op == "OptionalNone":
            return
        value = node.value if takes else node.inputs[0]
        if len(component_types(node)) != 1:
            self._foreign[optional] = node.op
        elif holds_tensor(node):
            (self._taken if takes else self._put)[node] = self._inferred.tensor(value)
        else:  # an Optional in an Optional
            self._join(optional, (value, 0))

    def _read_list(self, node: Node) -> None:
        own = (node.value, 0)
        handles = [(value, 0) for value in node.inputs[:1] if self._inferred.is_variant(value)]
        if self._inferred.is_variant(node.value) and node.op != "TensorListGetItem":
            self._foreign[own] = node.op  # a handle is no Optional
            self._join(own, *handles)
        if node.attrs.get("element_dtype") != VARIANT:
            return
        if node.op == "TensorListPushBack":
            self._join((node.value, 1), (node.inputs[1], 0))
        elif node.op == "TensorListPopBack":
            self._join((node.value, 1), (node.output(1), 0))
        elif node.op not in ("EmptyTensorList", "TensorListLength"):
            self._foreign.update(((value, 1), node.op) for value, _ in [own, *handles])

    def _join(self, *slots: Slot) -> None:
        """Makes slots one class, and so their elements if they are lists."""
        for more in range(DEPTH + 1):
            roots = [self._root((value, depth + more)) for value, depth in slots]
            for root in roots[1:]:
                self._parent[self._root(root)] = self._root(roots[0])

    def _root(self, slot: Slot) -> Slot:
        self._parent.setdefault(slot, slot)
        while self._parent[slot] != slot:
            slot = self._parent[slot]
        return slot


def _refused(node: Node, text: str) -> PlanError:
    where = " of function '%s'" % node.graph.name if isinstance(node.graph, Function) else ""
    return PlanError(
        "node '%s'%s: a value that a conditional of version 2 keeps for its gradient, %s" % (node.name, where, text)
    )


def _fits(candidate: TensorType, tensor: Any) -> bool:
    is_shape = bool(tensor.shape.is_compatible_with(tf.TensorShape(candidate.dims)))
    return is_shape and candidate.dtype == tensor.dtype


def _common(types: set[TensorType]) -> TensorType:
    """What holds a value of any of several types; of none, which nobody takes, a number."""
    if len(types) > 1:
        return TensorType(tf.uint8, (max(kind.bytes for kind in types),))
    return next(iter(types), TensorType(tf.float32, ()))
