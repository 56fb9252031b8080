"""Operations and tensors of a graph by their names, their edges and walks (behaviour of TensorFlow 1.15.5).

Control edges count where `control_inputs` is True (those that lead to an operation), `control_outputs` is a
ControlOutputs (those that leave it), or `control_ios` is one (both).
"""

from __future__ import annotations

import re
from typing import Any

import tensorflow.compat.v1 as tf

from npu_shim.compat.contrib.graph_editor.util import ControlOutputs, several, to_ops, to_tensors, unique

OF_TENSORS, OF_OPS = "(?#ts)", "(?#ops)"  # what a regular expression begins with


def can_be_regex(obj: Any) -> bool:
    """Whether an object is a text or a regular expression."""
    return isinstance(obj, str) or hasattr(obj, "search")


def make_regex(obj: Any) -> Any:
    """A compiled regular expression; ValueError for anything else."""
    if not can_be_regex(obj):
        raise ValueError("Expected a string or a regex, got: %s" % type(obj))
    return re.compile(obj) if isinstance(obj, str) else obj


def filter_ops(ops: Any, positive_filter: Any) -> list[tf.Operation]:
    """The operations for which a function is true; all of them for True."""
    return [op for op in to_ops(ops) if positive_filter is True or positive_filter(op)]


def filter_ops_from_regex(ops: Any, regex: Any) -> list[tf.Operation]:
    """The operations in whose names a regular expression is found."""
    pattern = make_regex(regex)
    return filter_ops(ops, lambda op: pattern.search(op.name))


def filter_ts(ops: Any, positive_filter: Any) -> list[tf.Tensor]:
    """Inputs and outputs of operations for which a function is true; all of them for True."""
    ops = to_ops(ops)
    every = unique([t for op in ops for t in op.inputs] + [t for op in ops for t in op.outputs])
    return [t for t in every if positive_filter is True or positive_filter(t)]


def filter_ts_from_regex(ops: Any, regex: Any) -> list[tf.Tensor]:
    """Inputs and outputs of operations in whose names a regular expression is found."""
    pattern = make_regex(regex)
    return filter_ts(ops, lambda tensor: pattern.search(tensor.name))


def get_name_scope_ops(ops: Any, scope: str) -> list[tf.Operation]:
    """The operations in a name scope."""
    scope = scope[:-1] if scope.endswith("/") else scope
    return filter_ops_from_regex(ops, "^%s(/.*)?$" % re.escape(scope))


def check_cios(
    control_inputs: Any = False, control_outputs: Any = None, control_ios: Any = None
) -> tuple[bool, ControlOutputs | None]:
    """(Whether control inputs count, ControlOutputs or None) of the three arguments.

    Raises:
        TypeError: one is no ControlOutputs.
        ValueError: `control_ios` is given with another.
    """
    if control_ios is not None:
        if not isinstance(control_ios, ControlOutputs):
            raise TypeError("Expected a util.ControlOutputs, got: %s" % type(control_ios))
        if control_outputs is not None or control_inputs:
            raise ValueError("control_ios stands for control_inputs and control_outputs")
        return True, control_ios
    if control_outputs is not None and not isinstance(control_outputs, ControlOutputs):
        raise TypeError("Expected a util.ControlOutputs, got: %s" % type(control_outputs))
    return bool(control_inputs), control_outputs


def get_ops_ios(
    ops: Any, control_inputs: Any = False, control_outputs: Any = None, control_ios: Any = None
) -> list[tf.Operation]:
    """The operations at the other ends of operations' edges."""
    inputs, outputs = check_cios(control_inputs, control_outputs, control_ios)
    neighbours: list[tf.Operation] = []
    for op in to_ops(ops):
        neighbours += [t.op for t in op.inputs]
        neighbours += [taker for t in op.outputs for taker in t.consumers()]
        neighbours += op.control_inputs if inputs else []
        neighbours += outputs.get(op) if outputs else ()
    return unique(neighbours)


def compute_boundary_ts(ops: Any) -> tuple[list[tf.Tensor], list[tf.Tensor], list[tf.Tensor]]:
    """(Tensors from outside, tensors for outside or for nobody, tensors between operations)."""
    ops = to_ops(ops)
    within = set(ops)
    taken = unique(t for op in ops for t in op.inputs)
    given = [t for op in ops for t in op.outputs]
    leaving = [t for t in given if not t.consumers() or any(taker not in within for taker in t.consumers())]
    return [t for t in taken if t.op not in within], leaving, [t for t in given if t in set(taken)]


def get_within_boundary_ops(
    ops: Any,
    seed_ops: Any,
    boundary_ops: Any = (),
    inclusive: bool = True,
    control_inputs: Any = False,
    control_outputs: Any = None,
    control_ios: Any = None,
) -> list[tf.Operation]:
    """The operations that can be reached from seeds, along edges in any direction, without passing a boundary.

    Args:
        ops: the operations to which the walk is restricted.
        seed_ops: where it begins.
        boundary_ops: where it ends.
        inclusive: whether operations of the boundary are among them.
        control_inputs: see above.
        control_outputs: see above.
        control_ios: see above.

    Raises:
        ValueError: a seed is at the boundary while `inclusive` is False.
    """
    within, stop, seeds = set(to_ops(ops)), set(to_ops(boundary_ops)), to_ops(seed_ops)
    if not inclusive and stop.intersection(seeds):
        raise ValueError("Boundary is intersecting with the seeds.")
    reached, wave = dict.fromkeys(seeds), [op for op in seeds if op not in stop]
    while wave:
        near = get_ops_ios(wave, control_inputs, control_outputs, control_ios)
        new = [op for op in near if op in within and op not in reached]
        reached.update(dict.fromkeys(new))
        wave = [op for op in new if op not in stop]
    return [op for op in reached if inclusive or op not in stop]


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
    stop = set(to_tensors(stop_at_ts))

    def before(op):
        makers = [t.op for t in op.inputs if t not in stop]
        return makers + list(op.control_inputs) if control_inputs else makers

    return _walk(to_ops(seed_ops), before, inclusive, within_ops, within_ops_fn)


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
    stop = set(to_tensors(stop_at_ts))
    seeds = []
    for one in several(seed_ops):
        seeds += one.consumers() if isinstance(one, tf.Tensor) else [one]

    def after(op):
        takers = [c for t in op.outputs if t not in stop for c in t.consumers()]
        return takers + list(op._control_outputs) if control_outputs else takers

    return _walk(to_ops(seeds), after, inclusive, within_ops, within_ops_fn)


def _walk(seeds, neighbours, inclusive, within_ops, within_ops_fn):
    within = None if within_ops is None else set(to_ops(within_ops))
    walked, wave = dict.fromkeys(seeds), seeds
    while wave:
        reached = unique(n for op in wave for n in neighbours(op) if n not in walked)
        wave = [n for n in reached if (within is None or n in within) and (not within_ops_fn or within_ops_fn(n))]
        walked.update(dict.fromkeys(wave))
    return list(walked) if inclusive else [op for op in walked if op not in set(seeds)]


def get_walks_intersection_ops(
    forward_seed_ops: Any,
    backward_seed_ops: Any,
    forward_inclusive: bool = True,
    backward_inclusive: bool = True,
    within_ops: Any = None,
    within_ops_fn: Any = None,
    control_inputs: Any = False,
    control_outputs: Any = None,
    control_ios: Any = None,
) -> list[tf.Operation]:
    """The operations of both a forward walk and a backward walk; arguments as of these."""
    forward, backward = _both(
        forward_seed_ops, backward_seed_ops, forward_inclusive, backward_inclusive, within_ops, within_ops_fn,
        check_cios(control_inputs, control_outputs, control_ios),
    )  # fmt: skip
    return [op for op in forward if op in set(backward)]


def get_walks_union_ops(
    forward_seed_ops: Any,
    backward_seed_ops: Any,
    forward_inclusive: bool = True,
    backward_inclusive: bool = True,
    within_ops: Any = None,
    within_ops_fn: Any = None,
    control_inputs: Any = False,
    control_outputs: Any = None,
    control_ios: Any = None,
) -> list[tf.Operation]:
    """The operations of a forward walk or a backward walk; arguments as of these."""
    forward, backward = _both(
        forward_seed_ops, backward_seed_ops, forward_inclusive, backward_inclusive, within_ops, within_ops_fn,
        check_cios(control_inputs, control_outputs, control_ios),
    )  # fmt: skip
    return unique([*forward, *backward])


def _both(forward_seeds, backward_seeds, forward_inclusive, backward_inclusive, within_ops, within_ops_fn, controls):
    inputs, outputs = controls
    forward = get_forward_walk_ops(forward_seeds, forward_inclusive, within_ops, within_ops_fn, control_outputs=outputs)
    backward = get_backward_walk_ops(
        backward_seeds, backward_inclusive, within_ops, within_ops_fn, control_inputs=inputs
    )
    return forward, backward


def select_ops(*args: Any, **kwargs: Any) -> list[Any]:
    """Lists operations, and those whose name matches a regular expression.

    Args:
        *args: operations, or regular expressions (text or compiled), which are searched in names.
        **kwargs: graph, a tf.Graph, for regular expressions; positive_filter, a function of an operation;
            restrict_ops_regex, whether expressions must begin with "(?#ops)".

    Raises:
        TypeError: an argument is neither.
        ValueError: a regular expression comes without `graph`, or another keyword.
    """
    return _selected(args, tf.Operation, OF_OPS, "restrict_ops_regex", kwargs)


def select_ts(*args: Any, **kwargs: Any) -> list[Any]:
    """As `select_ops`, for tensors; restrict_ts_regex says whether expressions must begin with "(?#ts)"."""
    return _selected(args, tf.Tensor, OF_TENSORS, "restrict_ts_regex", kwargs)


def _selected(args, kind, begin, restrict, kwargs):
    unknown = set(kwargs) - {"graph", "positive_filter", restrict}
    if unknown:
        raise ValueError("Unexpected keywords arguments: %s" % sorted(unknown))
    graph, keep = kwargs.get("graph"), kwargs.get("positive_filter")
    selected: list[Any] = []
    for one in (one for argument in args for one in several(argument)):
        if can_be_regex(one):
            if graph is None:
                raise ValueError("npu_shim: graph_editor: %r is a name: give graph=tf.get_default_graph()" % (one,))
            pattern = make_regex(one)
            if not kwargs.get(restrict) or pattern.pattern.startswith(begin):
                every = graph.get_operations() if kind is tf.Operation else filter_ts(graph, True)
                selected += [top for top in every if pattern.search(top.name)]
        elif isinstance(one, kind):
            selected.append(one)
        else:
            raise TypeError("npu_shim: graph_editor: %r is no %s" % (one, kind.__name__))
    return [one for one in unique(selected) if keep is None or keep(one)]


def select_ops_and_ts(*args: Any, **kwargs: Any) -> tuple[list[Any], list[Any]]:
    """(Operations, tensors): as both, of which expressions that begin with "(?#ts)" are for tensors.

    Raises:
        TypeError: an argument is neither an operation, a tensor nor an expression.
    """
    of_ops, of_tensors = [], []
    for one in (one for argument in args for one in several(argument)):
        tensors = make_regex(one).pattern.startswith(OF_TENSORS) if can_be_regex(one) else isinstance(one, tf.Tensor)
        (of_tensors if tensors else of_ops).append(one)
    return select_ops(*of_ops, **kwargs), select_ts(*of_tensors, **kwargs)
