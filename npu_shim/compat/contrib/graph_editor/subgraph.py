"""Views of some operations of a graph (behaviour of TensorFlow 1.15.5)."""

from __future__ import annotations

import copy
from typing import Any

import tensorflow.compat.v1 as tf

from npu_shim.compat.contrib.graph_editor import select, util


class SubGraphView:
    """Some operations of a graph; a view may show its inputs and outputs in another order, or only some of them.

    Args:
        inside_ops: the operations.
        passthrough_ts: tensors that are both inputs and outputs: those that no operation of the view takes or makes.

    Attributes:
        ops: list of tf.Operation.
        inputs: list of tf.Tensor: the tensors that they take from outside.
        outputs: list of tf.Tensor: those of their tensors that operations outside, or none at all, take.
        passthroughs: list of tf.Tensor.
        graph: their tf.Graph; None if there is neither an operation nor a tensor.
    """

    def __init__(self, inside_ops: Any = (), passthrough_ts: Any = ()) -> None:
        self.ops = util.to_ops(inside_ops)
        taken, given, _ = select.compute_boundary_ts(self.ops)
        connected = {t for op in self.ops for t in (*op.inputs, *op.outputs)}
        self.passthroughs = [t for t in util.unique(util.to_tensors(passthrough_ts)) if t not in connected]
        self._taken, self._given = taken + self.passthroughs, given + self.passthroughs
        self.inputs, self.outputs = list(self._taken), list(self._given)
        self.graph = next((top.graph for top in (*self.ops, *self.passthroughs)), None)

    def __iter__(self):
        return iter(self.ops)

    def __len__(self):
        return len(self.ops)

    def __contains__(self, op):
        return op in self.ops

    def __bool__(self):
        return self.graph is not None

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    @property
    def connected_inputs(self) -> list[tf.Tensor]:
        """The inputs that an operation of the view takes."""
        return [t for t in self.inputs if not self.is_passthrough(t)]

    @property
    def connected_outputs(self) -> list[tf.Tensor]:
        """The outputs that an operation of the view makes."""
        return [t for t in self.outputs if not self.is_passthrough(t)]

    def copy(self) -> SubGraphView:
        """Another view of the same."""
        return copy.copy(self)

    def op(self, op_id: int) -> tf.Operation:
        """The operation at a place."""
        return self.ops[op_id]

    def is_passthrough(self, t: Any) -> bool:
        """Whether a tensor is one of `passthroughs`."""
        return t in self.passthroughs

    def input_index(self, t: Any) -> int:
        """The place of an input; ValueError if it is none."""
        return self.inputs.index(t)

    def output_index(self, t: Any) -> int:
        """The place of an output; ValueError if it is none."""
        return self.outputs.index(t)

    def consumers(self) -> list[tf.Operation]:
        """The operations outside of the view that take an output."""
        return [op for op in util.get_consuming_ops(util.unique(self.outputs)) if op not in self.ops]

    def find_op_by_name(self, op_name: str) -> tf.Operation:
        """The operation of a name; ValueError if there is none."""
        named = [op for op in self.ops if op.name == op_name]
        if not named:
            raise ValueError("%s not found in subgraph." % op_name)
        return named[0]

    def remap(self, new_input_indices: Any = None, new_output_indices: Any = None) -> SubGraphView:
        """A view with other inputs and outputs: numbers of those that it has by itself, or the tensors.

        Raises:
            ValueError: there is no such input or output, or an input appears twice.
        """
        view = self.copy()
        if new_input_indices is not None:
            view.inputs = _chosen(new_input_indices, self._taken)
            if len(util.unique(view.inputs)) < len(view.inputs):
                raise ValueError("an input is there twice: %s" % (new_input_indices,))
        if new_output_indices is not None:
            view.outputs = _chosen(new_output_indices, self._given)
        return view

    def remap_inputs(self, new_input_indices: Any) -> SubGraphView:
        """As `remap`, of the inputs."""
        return self.remap(new_input_indices=new_input_indices)

    def remap_outputs(self, new_output_indices: Any) -> SubGraphView:
        """As `remap`, of the outputs, which may be there several times."""
        return self.remap(new_output_indices=new_output_indices)

    def remap_default(self, remove_input_map: bool = True, remove_output_map: bool = True) -> SubGraphView:
        """A view with the inputs and outputs that it has by itself."""
        return self.remap(
            range(len(self._taken)) if remove_input_map else None,
            range(len(self._given)) if remove_output_map else None,
        )

    def remap_outputs_make_unique(self) -> SubGraphView:
        """A view that shows each output once."""
        return self.remap_outputs(util.unique(self.outputs))

    def remap_outputs_to_consumers(self) -> SubGraphView:
        """A view that shows each output as often as operations take it."""
        return self.remap_outputs([t for t in util.unique(self.outputs) for _ in t.consumers()])

    def remove_unused_ops(self, control_inputs: bool = True) -> SubGraphView:
        """A view of the operations that depend on its inputs, or that its outputs depend on."""
        used = select.get_walks_union_ops(
            self.connected_inputs, self.connected_outputs, within_ops=self.ops, control_inputs=control_inputs
        )
        view = SubGraphView([op for op in self.ops if op in set(used)], self.passthroughs)
        return view.remap([t for t in self.inputs if t in view._taken], [t for t in self.outputs if t in view._given])


def _chosen(indices, tensors):
    places = [index if isinstance(index, int) else tensors.index(index) for index in indices]
    if any(not 0 <= place < len(tensors) for place in places):
        raise ValueError("Out of range: %s, of %d tensors" % (places, len(tensors)))
    return [tensors[place] for place in places]


def make_view(*args: Any, **kwargs: Any) -> SubGraphView:
    """A SubGraphView of operations and tensors, given directly, or by regular expressions with `graph`.

    Tensors that no operation of the view takes or makes pass through it. A view is returned as it is.
    """
    if len(args) == 1 and isinstance(args[0], SubGraphView) and not kwargs:
        return args[0]
    ops, tensors = select.select_ops_and_ts(*args, **kwargs)
    return SubGraphView(ops, tensors)


def make_view_from_scope(scope: str, graph: tf.Graph) -> SubGraphView:
    """A view of the operations in a name scope."""
    return SubGraphView(select.get_name_scope_ops(graph, scope))
