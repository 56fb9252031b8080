"""Lists of operations and tensors, their graphs, control outputs, scopes and placeholders (as in 1.15.5).

An argument for operations may be an operation, a tensor (for the operation that computes it), a graph, a view, or an
iterable of them; an argument for tensors may be a tensor, an operation (for its outputs), a graph, a view, or an
iterable of them.
"""

from __future__ import annotations

from typing import Any, Callable, Iterable, Iterator

import tensorflow.compat.v1 as tf

from npu_shim.rewriter import tf_internals

PLACEHOLDER = "geph"
_selector = tf_internals.op_selector()
is_iterable, concatenate_unique = _selector.is_iterable, _selector.concatenate_unique
get_tensors, get_unique_graph = _selector.get_tensors, _selector.get_unique_graph
make_list_of_t = _selector.make_list_of_t
get_generating_ops, get_consuming_ops = _selector.get_generating_ops, _selector.get_consuming_ops


def several(x: Any) -> list[Any]:
    """A list of one thing, or of those in a collection, a graph (its operations) or a view."""
    if isinstance(x, (tf.Operation, tf.Tensor, str)) or hasattr(x, "search"):
        return [x]
    if isinstance(x, tf.Graph):
        return list(x.get_operations())
    return list(getattr(x, "ops", x))


def to_ops(x: Any) -> list[tf.Operation]:
    """Unique operations, in order; raises TypeError for anything else."""
    ops_given = {}
    for one in several(x):
        op = one.op if isinstance(one, tf.Tensor) else one
        if not isinstance(op, tf.Operation):
            raise TypeError("npu_shim: graph_editor: %r is neither a tf.Operation nor a tf.Tensor" % (one,))
        ops_given[op] = None
    return list(ops_given)


def to_tensors(x: Any) -> list[tf.Tensor]:
    """Tensors, in order; those of an operation are its outputs."""
    tensors: list[tf.Tensor] = []
    for one in several(x):
        tensors += one.outputs if isinstance(one, tf.Operation) else [one]
    return tensors


def unique(items: Iterable[Any]) -> list[Any]:
    """The items without repetitions, in order."""
    return list(dict.fromkeys(items))


class ListView:
    """A list that cannot be changed."""

    def __init__(self, list_: Any) -> None:
        if not isinstance(list_, list):
            raise TypeError("Expected a list, got: %s." % type(list_))
        self._list = list_

    def __iter__(self) -> Iterator[Any]:
        return iter(self._list)

    def __len__(self) -> int:
        return len(self._list)

    def __getitem__(self, i: Any) -> Any:
        return self._list[i]

    def __add__(self, other: Any) -> list[Any]:
        return self._list + list(other)


def flatten_tree(tree: Any, leaves: list[Any] | None = None) -> list[Any]:
    """The leaves of nested iterables and dicts, appended to `leaves`."""
    leaves = [] if leaves is None else leaves
    if isinstance(tree, str) or not is_iterable(tree):
        leaves.append(tree)
    else:
        for child in tree.values() if isinstance(tree, dict) else tree:
            flatten_tree(child, leaves)
    return leaves


def transform_tree(tree: Any, fn: Callable[[Any], Any], iterable_type: Any = tuple) -> Any:
    """Nested iterables and dicts with their leaves replaced by what a function makes of them."""
    if isinstance(tree, str) or not is_iterable(tree):
        return fn(tree)
    if isinstance(tree, dict):
        return type(tree)((key, transform_tree(value, fn)) for key, value in tree.items())
    children = [transform_tree(child, fn) for child in tree]
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*children)
    return type(tree)(children) if isinstance(tree, (list, tuple)) else iterable_type(children)


def check_graphs(*args: Any) -> None:
    """Raises ValueError unless all have one graph; None has any."""
    graphs = unique(arg.graph for arg in args if arg is not None and arg.graph is not None)
    if len(graphs) > 1:
        raise ValueError("Argument[%d]: Wrong graph!" % next(i for i, arg in enumerate(args) if arg.graph != graphs[0]))


def make_list_of_op(
    ops: Any, check_graph: bool = True, allow_graph: bool = True, ignore_ts: bool = False
) -> list[tf.Operation]:
    """TensorFlow's, whose first parameter has another name today."""
    listed: list[tf.Operation] = _selector.make_list_of_op(ops, check_graph, allow_graph, ignore_ts)
    return listed


class ControlOutputs:
    """The operations that wait for each operation of a graph."""

    def __init__(self, graph: Any) -> None:
        if not isinstance(graph, tf.Graph):
            raise TypeError("Expected a tf.Graph, got: %s" % type(graph))
        self._graph = graph
        self.update()

    def update(self) -> ControlOutputs:
        """Reads the graph again; returns itself."""
        self._outputs: dict[tf.Operation, list[tf.Operation]] = {}
        for op in self._graph.get_operations():
            for before in op.control_inputs:
                self._outputs.setdefault(before, []).append(op)
        return self

    def get_all(self) -> dict[tf.Operation, list[tf.Operation]]:
        """Dict of operation to those that wait for it."""
        return self._outputs

    def get(self, op: Any) -> tuple[tf.Operation, ...]:
        """Those that wait for an operation."""
        return tuple(self._outputs.get(op, ()))

    @property
    def graph(self) -> tf.Graph:
        """The graph."""
        return self._graph


def scope_finalize(scope: str) -> str:
    """A scope with a slash at its end, or ""."""
    return scope if not scope or scope.endswith("/") else scope + "/"


def scope_dirname(scope: str) -> str:
    """The scope of a name, with a slash at its end."""
    return scope[: scope.rfind("/") + 1]


def scope_basename(scope: str) -> str:
    """A name without its scope."""
    return scope[scope.rfind("/") + 1 :]


def placeholder_name(t: Any = None, scope: str | None = None, prefix: str = PLACEHOLDER) -> str:
    """The name of a placeholder for a tensor: in its scope, or in another one.

    Raises:
        TypeError: t is neither None nor a tensor.
    """
    if t is None:
        return scope_finalize(scope or "") + prefix
    if not isinstance(t, tf.Tensor):
        raise TypeError("Expected a tf.Tensor, got: %s" % type(t))
    where = scope_dirname(t.op.name) if scope is None else scope_finalize(scope)
    return "%s%s__%s_%d" % (where, prefix, scope_basename(t.op.name), t.value_index)


def make_placeholder_from_tensor(t: Any, scope: str | None = None, prefix: str = PLACEHOLDER) -> tf.Tensor:
    """A placeholder like a tensor, in the current graph."""
    return tf.placeholder(t.dtype.base_dtype, t.shape, name=placeholder_name(t, scope, prefix))


def make_placeholder_from_dtype_and_shape(
    dtype: Any, shape: Any = None, scope: str | None = None, prefix: str = PLACEHOLDER
) -> tf.Tensor:
    """A placeholder in the current graph."""
    return tf.placeholder(dtype, shape, name=placeholder_name(scope=scope, prefix=prefix))


def get_predefined_collection_names() -> list[str]:
    """The names of TensorFlow's own collections."""
    return [getattr(tf.GraphKeys, key) for key in dir(tf.GraphKeys) if not key.startswith("_")]


def find_corresponding_elem(target: Any, dst_graph: tf.Graph, dst_scope: str = "", src_scope: str = "") -> Any:
    """The operation or tensor of another graph that has a name without one scope, and in another.

    Raises:
        ValueError: the name is not in `src_scope`.
        TypeError: target is neither an operation nor a tensor.
        KeyError: there is none.
    """
    if not isinstance(target, (tf.Operation, tf.Tensor)):
        raise TypeError("Expected tf.Tensor or tf.Operation, got: %s" % type(target))
    name = target.name
    if not name.startswith(scope_finalize(src_scope)):
        raise ValueError("%s does not start with %s" % (name, src_scope))
    name = scope_finalize(dst_scope) + name[len(scope_finalize(src_scope)) :]
    return dst_graph.as_graph_element(name)


def find_corresponding(targets: Any, dst_graph: tf.Graph, dst_scope: str = "", src_scope: str = "") -> Any:
    """As `find_corresponding_elem`, for the leaves of nested iterables and dicts."""
    return transform_tree(targets, lambda top: find_corresponding_elem(top, dst_graph, dst_scope, src_scope))
