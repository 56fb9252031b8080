"""The part of tf.contrib.graph_editor that recomputation needs: walks, copies of subgraphs, rerouted inputs.

An argument for operations may be an operation, a tensor (for the operation that computes it), or an iterable of them;
an argument for tensors may be a tensor, an operation (for its outputs), or an iterable of tensors.

    copy_with_input_replacements    copies operations; their inputs from outside stay, or are replaced
    reroute_ts                      makes the consumers of one tensor take another
"""

from __future__ import annotations

import logging
import re
from typing import Any

import tensorflow.compat.v1 as tf

LOG = logging.getLogger("npu_shim")


def _several(x):
    """Returns a list of one thing, or of those in a collection."""
    if isinstance(x, (tf.Operation, tf.Tensor, str)) or hasattr(x, "search"):
        return [x]
    return list(x.ops if isinstance(x, SubGraphView) else x)


def _ops(x):
    """Unique operations, in order; raises TypeError for anything else."""
    found = {}
    for one in x.get_operations() if isinstance(x, tf.Graph) else _several(x):
        op = one.op if isinstance(one, tf.Tensor) else one
        if not isinstance(op, tf.Operation):
            raise TypeError("npu_shim: graph_editor: %r is neither a tf.Operation nor a tf.Tensor" % (one,))
        found[op] = None
    return list(found)


def _tensors(x):
    found = []
    for one in _several(x):
        found += one.outputs if isinstance(one, tf.Operation) else [one]
    return found


def _unique(items):
    return list(dict.fromkeys(items))


class SubGraphView:
    """Some operations of a graph.

    Attributes:
        ops: list of tf.Operation.
        inputs: list of tf.Tensor: the tensors that they take from outside.
        outputs: list of tf.Tensor: those of their tensors that operations outside, or none at all, take.
        graph: their tf.Graph; None if there are no operations.
    """

    def __init__(self, inside_ops: Any = ()) -> None:
        self.ops = _ops(inside_ops)
        inside = set(self.ops)
        self.inputs = _unique(t for op in self.ops for t in op.inputs if t.op not in inside)
        outputs = [t for op in self.ops for t in op.outputs]
        self.outputs = [t for t in outputs if not t.consumers() or any(c not in inside for c in t.consumers())]
        self.graph = self.ops[0].graph if self.ops else None

    def __iter__(self):
        return iter(self.ops)

    def __len__(self):
        return len(self.ops)

    def __contains__(self, op):
        return op in self.ops


def make_view(*args: Any, **kwargs: Any) -> SubGraphView:
    """Returns a SubGraphView of operations, given directly, by tensors, or by regular expressions with `graph`."""
    return SubGraphView(select_ops(*args, **{"tensors": True, **kwargs}))


sgv = make_view


def select_ops(*args: Any, **kwargs: Any) -> list[Any]:
    """Lists operations, and those whose name matches a regular expression.

    Args:
        *args: operations, or regular expressions (str or compiled), which are searched in names.
        **kwargs: graph, a tf.Graph, for regular expressions; positive_filter, a function of an operation.

    Raises:
        ValueError: a regular expression comes without `graph`.
    """
    graph, keep, tensors = (kwargs.get(name) for name in ("graph", "positive_filter", "tensors"))
    found = []
    for one in (one for argument in args for one in _several(argument)):
        if isinstance(one, str) or hasattr(one, "search"):
            if graph is None:
                raise ValueError("npu_shim: graph_editor: %r is a name: give graph=tf.get_default_graph()" % (one,))
            found += [op for op in graph.get_operations() if re.search(one, op.name)]
        elif tensors or isinstance(one, tf.Operation):
            found += _ops(one)
    return [op for op in _unique(found) if keep is None or keep(op)]


def filter_ops(ops: Any, positive_filter: Any) -> list[tf.Operation]:
    """The operations for which a function is true; all of them for True."""
    return [op for op in _ops(ops) if positive_filter is True or positive_filter(op)]


def filter_ops_from_regex(ops: Any, regex: Any) -> list[tf.Operation]:
    """The operations in whose names a regular expression is found."""
    return filter_ops(ops, lambda op: re.search(regex, op.name))


def filter_ts(ops: Any, positive_filter: Any) -> list[tf.Tensor]:
    """Inputs and outputs of operations for which a function is true; all of them for True."""
    ops = _ops(ops)
    every = _unique([t for op in ops for t in op.inputs] + [t for op in ops for t in op.outputs])
    return [t for t in every if positive_filter is True or positive_filter(t)]


def filter_ts_from_regex(ops: Any, regex: Any) -> list[tf.Tensor]:
    """Inputs and outputs of operations in whose names a regular expression is found."""
    return filter_ts(ops, lambda tensor: re.search(regex, tensor.name))


def get_tensors(graph: Any) -> list[tf.Tensor]:
    """All tensors of a graph."""
    return [t for op in graph.get_operations() for t in op.outputs]


def get_backward_walk_ops(
    seed_ops: Any,
    inclusive: bool = True,
    within_ops: Any = None,
    within_ops_fn: Any = None,
    stop_at_ts: Any = (),
    control_inputs: bool = False,
) -> list[tf.Operation]:
    """Operations that the seeds depend on, nearest first.

    Args:
        seed_ops: operations, or tensors for those that make them.
        inclusive: bool, whether the seeds are among them.
        within_ops: operations to which the walk is restricted, or None.
        within_ops_fn: function of an operation that says whether the walk may go there, or None.
        stop_at_ts: tensors at which the walk stops.
        control_inputs: bool, whether it follows control edges, too.
    """
    stop = set(_tensors(stop_at_ts))

    def before(op):
        makers = [t.op for t in op.inputs if t not in stop]
        return makers + list(op.control_inputs) if control_inputs else makers

    return _walk(_ops(seed_ops), before, inclusive, within_ops, within_ops_fn)


def get_forward_walk_ops(
    seed_ops: Any,
    inclusive: bool = True,
    within_ops: Any = None,
    within_ops_fn: Any = None,
    stop_at_ts: Any = (),
    control_outputs: Any = None,
) -> list[tf.Operation]:
    """Operations that depend on the seeds, nearest first; arguments as of get_backward_walk_ops.

    Seeds that are tensors stand for their consumers. With `control_outputs` (anything true) control edges count, too.
    """
    stop = set(_tensors(stop_at_ts))
    seeds = []
    for one in _several(seed_ops):
        seeds += one.consumers() if isinstance(one, tf.Tensor) else [one]

    def after(op):
        takers = [c for t in op.outputs if t not in stop for c in t.consumers()]
        return takers + list(op._control_outputs) if control_outputs else takers

    return _walk(_ops(seeds), after, inclusive, within_ops, within_ops_fn)


def _walk(seeds, neighbours, inclusive, within_ops, within_ops_fn):
    within = None if within_ops is None else set(_ops(within_ops))
    found, wave = dict.fromkeys(seeds), seeds
    while wave:
        reached = _unique(n for op in wave for n in neighbours(op) if n not in found)
        wave = [n for n in reached if (within is None or n in within) and (not within_ops_fn or within_ops_fn(n))]
        found.update(dict.fromkeys(wave))
    return list(found) if inclusive else [op for op in found if op not in set(seeds)]


class TransformerInfo:
    """Maps operations and tensors to their copies, `transformed(original)`, and back, `original(transformed)`."""

    def __init__(self, ops: Any, tensors: Any) -> None:
        self._transformed_ops = ops
        self._transformed_ts = tensors

    def transformed(self, original: Any, missing_fn: Any = None) -> Any:
        """Returns the copy of an operation or tensor; if there is none, what `missing_fn` returns for it, or None."""
        made = self._transformed_ops if isinstance(original, tf.Operation) else self._transformed_ts
        return made.get(original) if original in made or not missing_fn else missing_fn(original)

    def original(self, transformed: Any, missing_fn: Any = None) -> Any:
        """Returns the operation or tensor of which another is the copy."""
        made = self._transformed_ops if isinstance(transformed, tf.Operation) else self._transformed_ts
        found = next((before for before, after in made.items() if after is transformed), None)
        return missing_fn(transformed) if found is None and missing_fn else found


def copy_with_input_replacements(
    sgv: Any,
    replacement_ts: Any,
    dst_graph: Any = None,
    dst_scope: str = "",
    src_scope: str = "",
    reuse_dst_scope: bool = False,
) -> tuple[SubGraphView, TransformerInfo]:
    """Copies operations into their own graph.

    Args:
        sgv: the operations.
        replacement_ts: dict of tensor -> the tensor that copies take instead.
        dst_graph: None, or the graph of the operations.
        dst_scope: str, the name scope of the copies.
        src_scope: str, a name scope that their names lose.
        reuse_dst_scope: bool, whether the scope may be there already.

    Returns:
        (SubGraphView of the copies, TransformerInfo). Inputs that are neither copied nor replaced stay.

    Raises:
        ValueError: the operations are from another graph, or in a loop.
    """
    ops = _in_order(_ops(sgv))
    if dst_graph is not None and ops and ops[0].graph is not dst_graph:
        raise ValueError("npu_shim: graph_editor copies operations within their graph only; use tf.import_graph_def")
    tensors, copies = dict(replacement_ts), {}
    if ops:
        with ops[0].graph.as_default(), tf.control_dependencies(None), _scope(dst_scope, reuse_dst_scope) as scope:
            for op in ops:
                copies[op] = _copied(op, [tensors.get(t, t) for t in op.inputs], scope + _without(op.name, src_scope))
                tensors.update(zip(op.outputs, copies[op].outputs))
        for op, made in copies.items():
            made._add_control_inputs([copies.get(c, c) for c in op.control_inputs])
    made = {t: tensors[t] for op in ops for t in op.outputs}
    return SubGraphView(copies.values()), TransformerInfo(copies, made)


def copy(
    sgv: Any, dst_graph: Any = None, dst_scope: str = "", src_scope: str = "", reuse_dst_scope: bool = False
) -> tuple[SubGraphView, TransformerInfo]:
    """As copy_with_input_replacements, with nothing replaced."""
    return copy_with_input_replacements(sgv, {}, dst_graph, dst_scope, src_scope, reuse_dst_scope)


def graph_replace(
    target_ts: Any, replacement_ts: Any, dst_scope: str = "", src_scope: str = "", reuse_dst_scope: bool = False
) -> Any:
    """Returns (nested) targets computed from replaced tensors: the operations in between are copied.

    Raises:
        ValueError: no target depends on a tensor that is replaced.
    """
    flat = tf.nest.flatten(target_ts)
    after = set(get_forward_walk_ops(list(replacement_ts)))
    between = [op for op in get_backward_walk_ops(flat, stop_at_ts=list(replacement_ts)) if op in after]
    if not between:
        raise ValueError("npu_shim: graph_replace: no target depends on what is replaced")
    _, info = copy_with_input_replacements(between, replacement_ts, None, dst_scope, src_scope, reuse_dst_scope)
    known = {**dict(replacement_ts), **info._transformed_ts}
    return tf.nest.pack_sequence_as(target_ts, [known.get(t, t) for t in flat])


def _in_order(ops):
    """The operations in topological order; TensorFlow 1's loops have none."""
    inside, ordered, state = set(ops), [], {}
    for seed in ops:
        stack = [(seed, False)]
        while stack:
            op, done = stack.pop()
            if done:
                state[op] = "done"
                ordered.append(op)
            elif op not in state:
                state[op] = "open"
                stack.append((op, True))
                stack += [(t.op, False) for t in op.inputs if t.op in inside and state.get(t.op) != "done"]
    loop = next((op for op in ordered if op.type in ("Enter", "RefEnter", "NextIteration", "RefNextIteration")), None)
    if loop is not None:
        raise ValueError("npu_shim: graph_editor: %s is in a loop, which cannot be copied" % loop.name)
    return ordered


def _scope(name, reuse):
    return tf.name_scope(name + "/" if name and reuse and not name.endswith("/") else name or None)


def _without(name, scope):
    scope = scope if not scope or scope.endswith("/") else scope + "/"
    return name[len(scope) :] if scope and name.startswith(scope) else name


def _copied(op, inputs, name):
    if op.op_def.is_stateful and "seed2" in op.node_def.attr and not (op.get_attr("seed") or op.get_attr("seed2")):
        LOG.warning(
            "npu_shim: graph_editor copies %s, which draws other numbers than the original unless tf.set_random_seed "
            "is called before it is made", op.name,
        )  # fmt: skip
    graph = op.graph
    with tf.name_scope(None), graph.device(None), graph.device(op.device):
        made = graph.create_op(
            op.type, inputs, [t.dtype for t in op.outputs], input_types=[t.dtype for t in op.inputs],
            name=graph.unique_name(name, mark_as_used=False), attrs=dict(op.node_def.attr), op_def=op.op_def,
        )  # fmt: skip
    for before, after in zip(op.outputs, made.outputs):
        after.set_shape(before.shape)
    return made


def reroute_ts(ts0: Any, ts1: Any, can_modify: Any = None, cannot_modify: Any = None) -> int:
    """Makes the consumers of `ts1` take `ts0` instead.

    Args:
        ts0: tensors.
        ts1: as many tensors.
        can_modify: the operations that may be changed, or None for all.
        cannot_modify: operations that may not be, or None.

    Returns:
        int, how many inputs were changed.

    Raises:
        ValueError: `ts0` and `ts1` differ in number.
    """
    new, old = _tensors(ts0), _tensors(ts1)
    if len(new) != len(old):
        raise ValueError("npu_shim: reroute_ts: %d tensors cannot stand for %d" % (len(new), len(old)))
    may = None if can_modify is None else set(_ops(can_modify))
    may_not = set(_ops(cannot_modify or ()))
    edges = [
        (op, index, after)
        for after, before in zip(new, old)
        for op in _unique(before.consumers())
        if (may is None or op in may) and op not in may_not
        for index, tensor in enumerate(op.inputs)
        if tensor is before
    ]
    for op, index, after in edges:
        op._update_input(index, after)
    return len(edges)


def swap_ts(ts0: Any, ts1: Any, can_modify: Any = None, cannot_modify: Any = None) -> int:
    """Swaps the consumers of `ts0` and `ts1`; returns the number of inputs that were changed."""
    new, old = _tensors(ts0), _tensors(ts1)
    return reroute_ts([*new, *old], [*old, *new], can_modify, cannot_modify)


def add_control_inputs(op: Any, cops: Any) -> None:
    """Makes an operation wait for others.

    Raises:
        ValueError: it waits for one of them already.
    """
    for other in _ops(cops):
        if other in op.control_inputs:
            raise ValueError("%s is already a control_input of %s" % (other.name, op.name))
    op._add_control_inputs(_ops(cops))


def remove_control_inputs(op: Any, cops: Any) -> None:
    """Makes an operation no longer wait for others.

    Raises:
        ValueError: it does not wait for one of them.
    """
    gone = set(_ops(cops))
    missing = [other.name for other in gone if other not in op.control_inputs]
    if missing:
        raise ValueError("%s is not a control_input of %s" % (missing[0], op.name))
    kept = [other for other in op.control_inputs if other not in gone]
    op._remove_all_control_inputs()
    op._add_control_inputs(kept)
