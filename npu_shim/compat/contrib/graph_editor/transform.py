"""Copies of operations, as they are or changed by handlers (behaviour of TensorFlow 1.15.5)."""

from __future__ import annotations

import logging
from typing import Any

import tensorflow.compat.v1 as tf

from npu_shim.compat.contrib.graph_editor import select, subgraph, util

LOG = logging.getLogger("npu_shim")


class _TmpInfo:
    """What handlers know of a running copy.

    Attributes:
        sgv: the SubGraphView that is copied; ops: set of its operations; sgv_inputs_set: set of its inputs.
        graph, scope: where they are; graph_, scope_: where the copies are; frames: what begins their loops' frames.
        transformed_ops, transformed_ts: dicts of an operation or tensor to its copy.
    """

    def __init__(self, sgv: subgraph.SubGraphView, dst_graph: tf.Graph, dst_scope: str, src_scope: str) -> None:
        self.sgv = sgv
        self.sgv_inputs_set = set(sgv.inputs)
        self.ops = set(sgv.ops)
        self.control_outputs = util.ControlOutputs(sgv.graph)
        self.graph, self.scope = sgv.graph, util.scope_finalize(src_scope)
        self.graph_, self.scope_ = dst_graph, util.scope_finalize(dst_scope)
        loops = self.graph is dst_graph and any("frame_name" in op.node_def.attr for op in sgv.ops)
        # two loops of one graph may not have one frame
        self.frames = tf.compat.as_bytes(dst_graph.unique_name("geph__frames") + "/" if loops else "")
        self.transformed_ops: dict[Any, Any] = {}
        self.transformed_ts: dict[Any, Any] = {}
        self.collections = {name: set(map(_key, self.graph.get_collection(name))) for name in self.graph.collections}

    def new_name(self, name: str) -> str:
        """The name of a copy; ValueError if `name` is not in the source scope."""
        if not name.startswith(self.scope):
            raise ValueError("%s does not belong to source scope: %s." % (name, self.scope))
        return self.scope_ + name[len(self.scope) :]


def _key(elem):
    return id(elem)


def replace_t_with_placeholder_handler(info: _TmpInfo, t: tf.Tensor) -> tf.Tensor:
    """A placeholder for a tensor."""
    with info.graph_.as_default(), tf.name_scope(None):
        scope = info.scope_ if info.scope_ else None
        return util.make_placeholder_from_tensor(t, scope=scope)


def keep_t_if_possible_handler(info: _TmpInfo, t: tf.Tensor) -> tf.Tensor:
    """The tensor itself, or a placeholder for it in another graph."""
    return t if info.graph is info.graph_ else replace_t_with_placeholder_handler(info, t)


def assign_renamed_collections_handler(info: _TmpInfo, elem: Any, elem_: Any) -> None:
    """Adds a copy to the collections of the original; those that are not TensorFlow's own are renamed by the scope."""
    known = util.get_predefined_collection_names()
    for name, members in info.collections.items():
        if _key(elem) in members:
            info.graph_.add_to_collection(name if name in known else info.scope_ + name, elem_)


def transform_op_if_inside_handler(info: _TmpInfo, op: Any, keep_if_possible: bool = True) -> Any:
    """The copy of an operation; else itself, if it may be kept in its graph, or None."""
    if op in info.transformed_ops:
        return info.transformed_ops[op]
    return op if keep_if_possible and op is not None and info.graph is info.graph_ else None


def copy_op_handler(
    info: _TmpInfo, op: tf.Operation, new_inputs: list[tf.Tensor], copy_shape: bool = False, nodedef_fn: Any = None
) -> tuple[tf.Operation, Any]:
    """A copy of an operation.

    Args:
        info: of the running copy.
        op: the operation.
        new_inputs: tensors that it takes.
        copy_shape: whether its outputs get the shapes of the original's, where they are better known.
        nodedef_fn: function of the NodeDef, which it may change and returns; or None.

    Returns:
        (the copy, its outputs).
    """
    node = tf.NodeDef.FromString(op.node_def.SerializeToString())
    node.name = info.new_name(op.name)
    if "frame_name" in node.attr:
        node.attr["frame_name"].s = info.frames + node.attr["frame_name"].s
    node = nodedef_fn(node) if nodedef_fn is not None else node
    _warn_of_other_numbers(op)
    graph = info.graph_
    cleared = tf.control_dependencies(None), tf.name_scope(None), graph.device(None)
    with graph.as_default(), cleared[0], cleared[1], cleared[2], graph.device(op.device):
        copy = graph.create_op(
            op.type, new_inputs, [t.dtype for t in op.outputs], input_types=[t.dtype for t in op.inputs],
            name=graph.unique_name(node.name, mark_as_used=False), attrs=dict(node.attr), op_def=op.op_def,
        )  # fmt: skip
    if copy_shape:
        for before, after in zip(op.outputs, copy.outputs):
            after.set_shape(before.shape)
    return copy, copy.outputs


def _warn_of_other_numbers(op):
    if op.op_def.is_stateful and "seed2" in op.node_def.attr and not (op.get_attr("seed") or op.get_attr("seed2")):
        LOG.warning(
            "npu_shim: graph_editor copies %s, which draws other numbers than the original unless tf.set_random_seed "
            "is called before it is made", op.name,
        )  # fmt: skip


class TransformerInfo:
    """Maps operations and tensors to their copies, `transformed(original)`, and back, `original(transformed)`."""

    def __init__(self, info: _TmpInfo) -> None:
        self._graph, self._graph_ = info.graph, info.graph_
        self._transformed_ops, self._transformed_ts = info.transformed_ops, info.transformed_ts

    def transformed(self, original: Any, missing_fn: Any = None) -> Any:
        """The copy of an operation or tensor, or of nested ones; what `missing_fn` returns where there is none."""
        return util.transform_tree(original, lambda top: self._copy_of(top, missing_fn))

    def original(self, transformed: Any, missing_fn: Any = None) -> Any:
        """The operation or tensor of which another is the copy; nested ones as in `transformed`."""
        return util.transform_tree(transformed, lambda top: self._source_of(top, missing_fn))

    def _copy_of(self, top, missing_fn):
        copies = self._map_of(top)
        return copies[top] if top in copies else missing_fn(top) if missing_fn else None

    def _source_of(self, top, missing_fn):
        source = next((before for before, after in self._map_of(top).items() if after is top), None)
        return missing_fn(top) if source is None and missing_fn else source

    def _map_of(self, top):
        return self._transformed_ops if isinstance(top, tf.Operation) else self._transformed_ts


class Transformer:
    """Copies views; each of its handlers may be replaced.

    Attributes:
        transform_op_handler: (info, operation, new inputs) -> (copy, its outputs).
        assign_collections_handler: (info, operation or tensor, its copy), for collections.
        transform_external_input_handler: (info, tensor) -> the tensor that stands for an input of the view.
        transform_external_hidden_input_handler: likewise, for inputs that the view does not show.
        transform_original_op_handler: (info, operation) -> the operation that a copy waits for instead, or None.
    """

    def __init__(self) -> None:
        self.transform_op_handler: Any = copy_op_handler
        self.assign_collections_handler: Any = assign_renamed_collections_handler
        self.transform_external_input_handler: Any = replace_t_with_placeholder_handler
        self.transform_external_hidden_input_handler: Any = keep_t_if_possible_handler
        self.transform_original_op_handler: Any = transform_op_if_inside_handler

    def __call__(
        self, sgv: Any, dst_graph: tf.Graph, dst_scope: str, src_scope: str = "", reuse_dst_scope: bool = False
    ) -> tuple[subgraph.SubGraphView, TransformerInfo]:
        """Copies a view.

        Args:
            sgv: the view.
            dst_graph: the graph of the copies.
            dst_scope: str, their name scope.
            src_scope: str, a name scope that their names lose.
            reuse_dst_scope: bool, whether the scope may be there already.

        Returns:
            (SubGraphView of the copies, TransformerInfo).

        Raises:
            TypeError: `dst_graph` is no graph.
            ValueError: an operation is not in `src_scope`.
        """
        view = subgraph.make_view(sgv)
        if not isinstance(dst_graph, tf.Graph):
            raise TypeError("Expected a tf.Graph, got: %s" % type(dst_graph))
        scope = dst_scope
        if dst_scope and not reuse_dst_scope:
            scope = dst_graph.unique_name(util.scope_finalize(dst_scope)[:-1])
        info = _TmpInfo(view, dst_graph, scope, src_scope)
        later = self._copy_ops(info)
        for op, index, t in later:
            info.transformed_ops[op]._update_input(index, self._tensor(info, t))
        self._connect_control_inputs(info)
        return self._view_of_copies(info), TransformerInfo(info)

    def _copy_ops(self, info):
        """Copies the operations; returns the inputs (operation, index, tensor) that are behind a loop's end."""
        later = []
        for op in _in_order(info.sgv.ops):
            inputs = []
            for index, t in enumerate(op.inputs):
                if t.op in info.ops and t not in info.transformed_ts:
                    later.append((op, index, t))
                    inputs.append(_for_now(info, t))
                else:
                    inputs.append(self._tensor(info, t))
            copy, outputs = self.transform_op_handler(info, op, inputs)
            info.transformed_ops[op] = copy
            self.assign_collections_handler(info, op, copy)
            for before, after in zip(op.outputs, outputs):
                info.transformed_ts[before] = after
                self.assign_collections_handler(info, before, after)
        return later

    def _tensor(self, info, t):
        """The tensor that copies take for a tensor."""
        if t not in info.transformed_ts:
            shown = t in info.sgv_inputs_set
            handler = self.transform_external_input_handler if shown else self.transform_external_hidden_input_handler
            info.transformed_ts[t] = handler(info, t)
        return info.transformed_ts[t]

    def _connect_control_inputs(self, info):
        for op, copy in info.transformed_ops.items():
            waits = [self.transform_original_op_handler(info, before) for before in op.control_inputs]
            copy._add_control_inputs([before for before in waits if before is not None])
            if getattr(op, "_original_op", None) is not None:  # that a gradient is of
                copy._original_op = self.transform_original_op_handler(info, op._original_op)

    def _view_of_copies(self, info):
        view = info.sgv
        passing = [self._tensor(info, t) for t in view.passthroughs]
        copies = subgraph.SubGraphView(info.transformed_ops.values(), passing)
        inputs = [info.transformed_ts[t] for t in view.inputs if t in info.transformed_ts]
        outputs = [info.transformed_ts[t] for t in view.outputs]
        return copies.remap(
            [t for t in util.unique(inputs) if t in copies.inputs], [t for t in outputs if t in copies.outputs]
        )


def _for_now(info, t):
    """What a loop's first operation takes until its last one has been copied."""
    with info.graph_.as_default(), tf.control_dependencies(None), tf.name_scope(None):
        return tf.placeholder(t.dtype.base_dtype, t.shape, name="geph__loop")


def _in_order(ops):
    """The operations in topological order; of a loop, what takes the last one's output comes before it."""
    inside, ordered, state = set(ops), [], set()
    for seed in ops:
        stack = [(seed, False)]
        while stack:
            op, done = stack.pop()
            if done:
                ordered.append(op)
            elif op not in state:
                state.add(op)
                stack.append((op, True))
                loops = op.type in ("Merge", "RefMerge")
                before = [t.op for t in op.inputs if not (loops and t.op.type in ("NextIteration", "RefNextIteration"))]
                stack += [(other, False) for other in before if other in inside and other not in state]
    return ordered


def copy(
    sgv: Any, dst_graph: Any = None, dst_scope: str = "", src_scope: str = "", reuse_dst_scope: bool = False
) -> tuple[subgraph.SubGraphView, TransformerInfo]:
    """Copies operations; placeholders stand for their inputs.

    Args:
        sgv: the operations.
        dst_graph: the graph of the copies, or None for that of the operations.
        dst_scope: str, the name scope of the copies.
        src_scope: str, a name scope that their names lose.
        reuse_dst_scope: bool, whether the scope may be there already.

    Returns:
        (SubGraphView of the copies, TransformerInfo).
    """
    view = subgraph.make_view(sgv)
    return Transformer()(view, view.graph if dst_graph is None else dst_graph, dst_scope, src_scope, reuse_dst_scope)


def copy_with_input_replacements(
    sgv: Any,
    replacement_ts: Any,
    dst_graph: Any = None,
    dst_scope: str = "",
    src_scope: str = "",
    reuse_dst_scope: bool = False,
) -> tuple[subgraph.SubGraphView, TransformerInfo]:
    """Copies operations; arguments as of `copy`.

    Args:
        sgv: the operations.
        replacement_ts: dict of tensor -> the tensor that copies take instead; other inputs stay, or are placeholders
            in another graph.
        dst_graph: see `copy`.
        dst_scope: see `copy`.
        src_scope: see `copy`.
        reuse_dst_scope: see `copy`.

    Returns:
        (SubGraphView of the copies, TransformerInfo).
    """
    view = subgraph.make_view(sgv)
    replaced = dict(replacement_ts)
    copier = Transformer()

    def instead(info, t):
        return replaced[t] if t in replaced else keep_t_if_possible_handler(info, t)

    copier.transform_external_input_handler = copier.transform_external_hidden_input_handler = instead
    return copier(view, view.graph if dst_graph is None else dst_graph, dst_scope, src_scope, reuse_dst_scope)


def graph_replace(
    target_ts: Any, replacement_ts: Any, dst_scope: str = "", src_scope: str = "", reuse_dst_scope: bool = False
) -> Any:
    """Returns (nested) targets computed from replaced tensors: the operations in between are copied.

    Raises:
        ValueError: no target depends on a tensor that is replaced.
    """
    flat = tf.nest.flatten(target_ts)
    after = set(select.get_forward_walk_ops(list(replacement_ts)))
    between = [op for op in select.get_backward_walk_ops(flat, stop_at_ts=list(replacement_ts)) if op in after]
    if not between:
        raise ValueError("npu_shim: graph_replace: no target depends on what is replaced")
    _, info = copy_with_input_replacements(between, replacement_ts, None, dst_scope, src_scope, reuse_dst_scope)
    known = {**info._transformed_ts, **dict(replacement_ts)}
    return tf.nest.pack_sequence_as(target_ts, [known.get(t, t) for t in flat])
