"""Finds the tensors that hold one Optional, wherever it is passed on, and the dtype and shape of its value."""

from __future__ import annotations

from typing import Any, Mapping, NamedTuple, Tuple

import tensorflow.compat.v1 as tf

from npu_shim.rewriter.errors import PlanError
from npu_shim.rewriter.graph.arguments import data, output_of
from npu_shim.rewriter.graphdef import functions
from npu_shim.xla.passes.shapes.optionals.origins import Origins
from npu_shim.xla.passes.shapes.optionals.views import GRAPH, View, is_variant

OPTIONALS = frozenset(["OptionalFromValue", "OptionalNone", "OptionalGetValue"])
# all inputs and the first output hold the same, or zeros
FORWARDS = frozenset(["Identity", "Enter", "Exit", "NextIteration", "Merge", "ZerosLike"])
LIST_OPS = frozenset(name for name in dir(tf.raw_ops) if "TensorList" in name)

FIXED = frozenset([
    tf.bool, tf.int8, tf.uint8, tf.int16, tf.uint16, tf.int32, tf.uint32, tf.int64, tf.uint64, tf.float16, tf.bfloat16,
    tf.float32, tf.float64,
])  # fmt: skip
DEPTH = 2  # lists in lists that a loop in a loop makes

# (name of the View, name of the node, number of its output, 0; or 1 for an element of the list that it is, 2 for ..)
Slot = Tuple[str, str, int, int]


class Value(NamedTuple):
    """A dtype and a full shape."""

    dtype: Any
    shape: Any

    @property
    def bytes(self) -> int:
        """Its size."""
        return int(self.shape.num_elements()) * int(self.dtype.size)


class Found(NamedTuple):
    """What tensors hold in place of Optionals.

    Attributes:
        places: slot of a tensor of dtype variant that is an Optional -> Value. It is uint8 [bytes of the largest] where
            the branches of a conditional have values of different dtypes or shapes there.
        inside: slot of an OptionalFromValue or OptionalGetValue -> Value of what it puts in or takes out.
    """

    places: Mapping[Slot, Value]
    inside: Mapping[Slot, Value]


def find(views: Mapping[str, View]) -> Found:
    """Returns what the Optionals of a graph and its functions hold.

    Raises:
        PlanError: that is not known; the error names the node and says why.
    """
    places = _Places(views)
    for name, view in views.items():
        for node in view.graph_def.node:
            places.read(name, view, node)
    return places.solution()


def slot_of(name: str, text: str) -> Slot:
    """The slot of a tensor of a View."""
    return (name, *output_of(text), 0)


def element(slot: Slot) -> Slot:
    """The slot of all elements of a list, given that of its handle."""
    return (*slot[:3], slot[3] + 1)


class _Places:
    """Slots in classes: those of one class hold the same Optional, or handles of the same list."""

    def __init__(self, views: Mapping[str, View]) -> None:
        self._views = views
        self._library = dict.fromkeys(name for name in views if name != GRAPH)
        self._parent: dict[Slot, Slot] = {}
        self._optional: set[Slot] = set()
        self._foreign: dict[Slot, str] = {}  # slots that an op uses which is not known here, or makes: that op
        self._put: dict[Slot, Value] = {}  # slot of an OptionalFromValue -> what it puts in
        self._taken: dict[Slot, tuple[Slot, Value]] = {}  # slot of an OptionalGetValue -> (what it takes from, what)

    def solution(self) -> Found:
        """The result of `find`, once all nodes are read."""
        optional = set(map(self._root, self._optional))
        for slot, op in self._foreign.items():
            if self._root(slot) in optional:
                raise _refused(slot, "which %s takes" % op)
        held: dict[Slot, set[Value]] = {root: set() for root in optional}
        for slot, value in self._put.items():
            if not value.shape.is_fully_defined() or value.dtype not in FIXED:
                raise _refused(slot, "a %s of shape %s, and XLA must know both" % (value.dtype.name, value.shape))
            held[self._root(slot)].add(_known(value))
        inside, origins = dict(self._put), Origins(self._views)
        for slot, (outer, wanted) in self._taken.items():
            origin = origins.of(outer[0], "%s:%d" % outer[1:3])
            candidates = held[self._root(outer)] if origin is None else {_known(self._put[(*origin, 0, 0)])}
            fitting = [candidate for candidate in candidates if _fits(candidate, wanted)]
            if len(fitting) != 1:
                raise _refused(slot, "of shape %s, and which of %d values it is is not known" % (
                    wanted.shape, len(candidates)))  # fmt: skip
            inside[slot] = Value(fitting[0].dtype, tf.TensorShape(fitting[0].shape))
        places = {slot: _common(held[self._root(slot)]) for slot in self._parent if self._root(slot) in optional}
        return Found(places, inside)

    def read(self, name: str, view: View, node: Any) -> None:
        """Notes what a node does with tensors of dtype variant."""
        taken = [slot_of(name, text) if is_variant(view, text) else None for text in data(node)]
        own = slot_of(name, node.name)
        if functions.kind_of(node, self._library) is not None:
            self._read_call(name, node, own, taken)
        elif node.op in OPTIONALS:
            self._read_optional(view, node, own, taken)
        elif node.op in LIST_OPS:
            self._read_list(name, view, node, own, taken)
        elif node.op in FORWARDS or node.op == "Switch":
            forwarded = [place for place in taken if place is not None]
            other = [slot_of(name, node.name + ":1")] if node.op == "Switch" else []
            self._join(*forwarded, *([own, *other] if forwarded else []))
        else:
            self._foreign.update((place, node.op) for place in taken if place is not None)

    def _read_call(self, name, node, own, taken):
        kind = functions.kind_of(node, self._library)
        names = [name for name in functions.called(node, self._library) if name in self._library]
        for number, callee in enumerate(names):
            body = self._views[callee]
            for slot, argument in zip(taken[1:] if kind == functions.BRANCH else taken, body.arguments):
                if slot is not None:
                    self._join(slot, slot_of(callee, argument))
            gives = () if kind == functions.LOOP and number == 0 else body.results  # a condition gives no variable
            for port, text in enumerate(gives):
                if is_variant(body, text):
                    self._join(slot_of(name, "%s:%d" % (node.name, port)), slot_of(callee, text))
        for port, slot in enumerate(taken if kind == functions.LOOP else ()):
            if slot is not None:  # before the first iteration and after the last one
                self._join(slot, slot_of(name, "%s:%d" % (node.name, port)))

    def _read_optional(self, view, node, own, taken):
        outer = taken[0] if node.op == "OptionalGetValue" else own
        self._join(outer)
        self._optional.add(outer)
        if node.op == "OptionalNone":
            return
        value = node.name if node.op == "OptionalGetValue" else data(node)[0]
        if _components(node) != 1:
            self._foreign[outer] = node.op
        elif is_variant(view, value):  # an Optional in an Optional
            self._join(outer, own if node.op == "OptionalGetValue" else taken[0])
        else:
            tensor = view.tensor(value)
            kept = Value(tensor.dtype, tensor.shape)
            if node.op == "OptionalFromValue":
                self._put[own] = kept
            else:
                self._taken[own] = outer, kept

    def _read_list(self, name, view, node, own, taken):
        handles = [place for place in taken[:1] if place is not None]
        if is_variant(view, node.name) and node.op != "TensorListGetItem":
            self._foreign[own] = node.op  # a handle is no Optional
            self._join(own, *handles)
        if "element_dtype" not in node.attr or node.attr["element_dtype"].type != tf.variant.as_datatype_enum:
            return
        if node.op == "TensorListPushBack":
            self._join(element(own), taken[1])
        elif node.op == "TensorListPopBack":
            self._join(element(own), slot_of(name, node.name + ":1"))
        elif node.op not in ("EmptyTensorList", "TensorListLength"):
            self._foreign.update((element(handle), node.op) for handle in [own, *handles])

    def _join(self, *slots):
        """Makes slots one class, and so their elements if they are lists."""
        for depth in range(DEPTH + 1):
            roots = [self._root((*slot[:3], slot[3] + depth)) for slot in slots]
            for root in roots[1:]:
                self._parent[self._root(root)] = self._root(roots[0])

    def _root(self, slot):
        self._parent.setdefault(slot, slot)
        while self._parent[slot] != slot:
            slot = self._parent[slot]
        return slot


def _components(node):
    """How many tensors an Optional holds."""
    return len(node.attr["output_types" if node.op == "OptionalGetValue" else "Toutput_types"].list.type)


def _refused(slot, text):
    where = "node '%s'%s" % (slot[1], " of function '%s'" % slot[0] if slot[0] != GRAPH else "")
    return PlanError("%s: a value that a conditional of version 2 keeps for its gradient, %s" % (where, text))


def _known(value):
    """A Value that can be in a set."""
    return Value(value.dtype, tuple(value.shape.as_list()))


def _fits(value, wanted):
    return value.dtype == wanted.dtype and wanted.shape.is_compatible_with(value.shape)


def _common(values):
    """The Value of a place for several; for none, which nobody takes, a number."""
    shaped = [Value(value.dtype, tf.TensorShape(value.shape)) for value in values]
    if len(shaped) > 1:
        return Value(tf.uint8, tf.TensorShape([max(value.bytes for value in shaped)]))
    return shaped[0] if shaped else Value(tf.float32, tf.TensorShape([]))
