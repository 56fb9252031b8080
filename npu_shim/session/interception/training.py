"""Training steps among the runs of a session: what tells them, the values that they update by, and their losses."""

from __future__ import annotations

import contextlib
import re
from typing import Any, Iterable, Iterator, NamedTuple, Sequence

import tensorflow.compat.v1 as tf

from npu_shim.options import collected
from npu_shim.options.ops.scopes import keep_dtype_scope
from npu_shim.rewriter import tf_internals
from npu_shim.rewriter.errors import ConfigError, nearest
from npu_shim.session.observers import dump, ranges

LOSS_SCALE = re.compile(r"^(?:.*/)?loss_scale(?:_\d+)?$")  # names of what holds it
MOST_NAMES = 12  # in a message
LEAST, NEAR_BEST = 0.6, 0.9  # share of its ops that a step computes of its loss; share of the best such share
APPLIES = ("Apply", "ResourceApply", "SparseApply", "ResourceSparseApply")  # how the types of updating ops begin
ADDS = ("AssignAdd", "AssignSub", "AssignAddVariableOp", "AssignSubVariableOp")
ASSIGNS = ("Assign", "AssignVariableOp")
SCATTERS = tuple(kind + "Scatter" + verb for kind in ("", "Resource") for verb in ("Add", "Sub", "Update"))
SUM_OF_ROWS = "UnsortedSegmentSum"  # with which optimizers sum the rows of a sparse gradient that are of one index
_LOSS = re.compile("loss|cost", re.IGNORECASE)
_OURS = "npu_shim"  # how the names of our own collections begin: what our hooks fetch
_OWN = ("Const", "Placeholder", "PlaceholderWithDefault", "ReadVariableOp", "VariableV2", "Variable")


class Run(NamedTuple):
    """What a run asks for: fetched tensors, all ops that are fetched or run, and names that tell runs apart."""

    tensors: tuple[Any, ...]
    fetched: tuple[Any, ...]
    key: Any


def run(graph: tf.Graph, fetches: Any, feeds: Iterable[Any]) -> Run:
    """Returns what a run of `fetches` (as for Session.run) with `feeds` (keys of its feed_dict) asks for."""
    handler = tf_internals.fetch_handler(graph, fetches)
    tensors = tuple(handler.fetches())
    fetched = (*(tensor.op for tensor in tensors), *handler.targets())
    fed = {getattr(key, "name", str(key)) for key in feeds}
    return Run(tensors, fetched, (tuple(sorted({op.name for op in fetched})), tuple(sorted(fed))))


@contextlib.contextmanager
def added(graph: tf.Graph, scope: str) -> Iterator[None]:
    """Ops made in the block join a graph, also a finalized one: below a scope, waiting for nothing, in their dtypes."""
    finalized = graph.finalized
    graph._unsafe_unfinalize()
    try:
        with graph.as_default(), tf.control_dependencies(None), tf.name_scope(scope + "/"), keep_dtype_scope():
            yield
    finally:
        if finalized:
            graph.finalize()


def updates(operations: Sequence[tf.Operation]) -> list[tuple[tf.Operation, tf.Tensor]]:
    """Returns the updates of trained variables among the ops of a run, each with the tensor that it updates by.

    That is an optimizer's op and its gradient, of a sparse one its rows. Optimizers of scripts' own assign the new
    value to a trained variable, or add to it. What only initializes or restores variables reads none of them, and is
    no update.
    """
    if not operations:
        return []
    sums = {_scope(op): op.inputs[0] for op in operations if op.type == SUM_OF_ROWS}
    pairs = [(op, _gradient(op)) for op in operations if op.type.startswith(APPLIES)]
    trained = {
        _holder(variable).name for variable in operations[0].graph.get_collection(tf.GraphKeys.TRAINABLE_VARIABLES)
    }
    written = [op for op in operations if op.type in (*ADDS, *ASSIGNS, *SCATTERS) and _written(op) in trained]
    rows = [(op, _rows(op, sums)) for op in written]
    pairs += [(op, tensor) for op, tensor in rows if tensor is not None]
    reads = [op for op in written if op.type not in ASSIGNS or _reads(op.inputs[1].op, outside(op.inputs[0]).op)]
    return pairs or [(op, op.inputs[-1]) for op in reads]


def outside(tensor: tf.Tensor) -> tf.Tensor:
    """Returns a tensor as it is outside of the branch of a step that may be skipped."""
    while tensor.op.type in ("Switch", "RefSwitch"):
        tensor = tensor.op.inputs[0]
    return tensor


def _gradient(operation):
    names = [argument.name for argument in operation.op_def.input_arg]
    gradient = operation.inputs[names.index("grad") if "grad" in names else len(names) - 1]
    return gradient.op.inputs[0] if gradient.op.type == SUM_OF_ROWS else gradient


def _rows(operation, sums):
    """The rows of a sparse gradient, by which ops that are no optimizer's own write a variable; else None.

    TensorFlow's optimizers do so for want of such an op (Adam, plain descent), in a scope of the variable's name.
    """
    scope = _scope(operation)
    if not re.search(r"(^|/)update_%s(_\d+)?$" % re.escape(_written(operation)), scope):
        return None
    if scope in sums or operation.type not in SCATTERS:
        return sums.get(scope)
    rows = operation.inputs[2]
    while rows.op.type in ("Mul", "Neg") and _scope(rows.op) == scope:  # by the learning rate
        rows = rows.op.inputs[0]
    return rows


def _scope(operation):
    return operation.name.rpartition("/")[0]


def _written(operation):
    return outside(operation.inputs[0]).op.name


def _holder(variable):
    return variable.handle.op if hasattr(variable, "handle") else variable.op


def _reads(operation, holder):
    return holder in dump.upstream(operation.graph, [operation], ())


def losses(graph: tf.Graph, asked: Run, operations: Sequence[tf.Operation], wanted: str | None) -> list[tf.Tensor]:
    """Returns the losses of a training step.

    Without a name these are the fetched numbers that are called loss or cost or are in tf.GraphKeys.LOSSES, or those of
    the graph that the step's data give and of which no other such number is made, or the only number that is fetched.
    A step's gradients need not its loss itself.

    Args:
        graph: the session's.
        asked: what the run fetches.
        operations: all ops of the run.
        wanted: the name of a tensor, None to look for losses. A step of other data has none of that name.

    Raises:
        ConfigError: no tensor of that name, or nothing that may be the loss.
    """
    if wanted is not None:
        tensor = _named(graph, wanted)
        return _of_step([tensor], operations)
    own = {name for key in graph.get_all_collection_keys() if str(key).startswith(_OURS) for name in _names(graph, key)}
    known = _names(graph, tf.GraphKeys.LOSSES)
    numbers = [tensor for tensor in dict.fromkeys(asked.tensors) if _is_number(tensor) and tensor.name not in own]
    named = [tensor for tensor in numbers if _is_loss(tensor, known)]
    if named:
        return named
    every = [output for op in graph.get_operations() for output in op.outputs if _is_number(output)]
    last = _of_step(_without_sources([tensor for tensor in every if _is_loss(tensor, known)]), operations)
    if last or len(numbers) == 1:
        return last or numbers
    names = [
        tensor.name for op in operations for tensor in op.outputs if _is_number(tensor) and not _is_gradient(tensor)
    ]
    shown = ", ".join(names[-MOST_NAMES:]) or "none"
    raise ConfigError("no loss is recognized by its name; name it: --loss NAME, one of the step's numbers (%s)" % shown)


def _named(graph, wanted):
    name = wanted if ":" in wanted else wanted + ":0"
    try:
        return graph.get_tensor_by_name(name)
    except (KeyError, ValueError) as reason:
        known = [tensor.name for op in graph.get_operations() for tensor in op.outputs if _is_number(tensor)]
        hint = nearest(name, known)
        raise ConfigError("--loss is '%s', and the graph has no such tensor%s" % (wanted, hint)) from reason


def _is_number(tensor):
    """Whether a tensor is a single number that the step computes, and that can be fetched."""
    inside = tensor.op._get_control_flow_context() is not None or not tensor.graph.is_fetchable(tensor)
    return tensor.dtype.is_floating and tensor.shape.rank == 0 and tensor.op.type not in _OWN and not inside


def _names(graph, collection):
    return {getattr(member, "name", "") for member in graph.get_collection(collection)}


def _is_loss(tensor, known):
    """Whether a number is called loss or cost, or is among the graph's losses. `L2Loss` is what any norm is called."""
    name = re.sub("loss_scale|L2Loss", "", tensor.op.name)
    return (bool(_LOSS.search(name)) or tensor.name in known) and not _is_gradient(tensor)


def _is_gradient(tensor):
    return "gradients" in tensor.op.name.split("/")


def _of_step(tensors, operations):
    """Those of the tensors that a step all but computes: they need no other data, and the most of their ops are there.

    Of two networks that train in turns, the loss of one can be had from the data of the other's step too. It is none of
    that step: to compute it there would change the step's graph.
    """
    needed, shares = set(operations), {}
    for tensor in tensors:
        upstream = [op for op in dump.upstream(tensor.graph, [tensor.op], ()) if op.type not in ("Const", "NoOp")]
        if all(op in needed for op in upstream if not op.inputs):
            shares[tensor] = sum(op in needed for op in upstream) / len(upstream)
    least = max(LEAST, NEAR_BEST * max(shares.values(), default=0.0))
    return [tensor for tensor in tensors if shares.get(tensor, 0.0) >= least]


def _without_sources(tensors):
    """Those of the tensors that none of the others is computed from."""
    if len(tensors) < 2:
        return tensors
    inputs = [taken.op for tensor in tensors for taken in tensor.op.inputs]
    sources = set(dump.upstream(tensors[0].graph, inputs, ()))
    return [tensor for tensor in tensors if tensor.op not in sources]


def loss_scale(operations: Iterable[tf.Operation]) -> tf.Tensor | None:
    """Returns the loss scale that a step reads: one of a manager of ours, else what is called so; None without one."""
    operations = list(operations)
    for tensor in operations[0].graph.get_collection(collected.LOSS_SCALE) if operations else ():
        if any(source.op in operations for source in tensor.op.inputs):  # it is an Identity of what the step reads
            return tensor
    for op in operations:
        reads = op.type in ranges.READS and op.inputs
        holder = op.inputs[0].op if reads else op if op.type == "Const" else None
        # a branch that is not taken, or a loop, has no value to fetch
        outside = op._get_control_flow_context() is None
        if holder is not None and outside and LOSS_SCALE.match(holder.name) and op.outputs[0].dtype == tf.float32:
            return op.outputs[0]
    return None
