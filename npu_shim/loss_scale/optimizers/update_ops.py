"""Undoes batch-norm and moving-average updates of a step that is skipped.

The updates run before the gradients are known (the training op depends on them), so they cannot wait for the finite
flag. Their variables are copied before they run and restored if the step is skipped. An update includes the writes it
depends on: a zero-debiased average first writes its sum and its count, and computes the average from these. Only
optimizer steps and the global step are excluded: they are skipped or applied by themselves.

UPDATE_OPS of a graph with several optimizers, as of a GAN, hold the updates of all. A skipped step undoes those of the
variables next to its own, by name: discriminator/bn/moving_mean is next to discriminator/bn/gamma. Where names leave it
open, as batch_normalization_1/moving_mean without a gamma, the weights decide that the average is computed from. Of the
others that ran before it, it undoes what left values that are not finite: their own optimizer may not take part in the
run.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from typing import Any, Iterable, Sequence

import tensorflow.compat.v1 as tf

from npu_shim.options.ops.scopes import keep_dtype_scope as keep_dtype
from npu_shim.rewriter.errors import ConfigError
from npu_shim.rewriter.graph.walks import givers, reached

# what writes to the resource variable that is its first input; a reference's writers say so in their signature
RESOURCE_WRITERS = re.compile(r"Assign\w*VariableOp$|Resource\w*(Assign|Scatter\w*|CountUpTo)$")
PASSES_REFERENCES_ON = re.compile(r"Ref(Switch|Merge|Enter|Exit|NextIteration|Identity|Select)$|IsVariableInitialized$")
OPTIMIZER_STEP = re.compile(r"(Resource)?(Sparse)?Apply[A-Z]\w*$")


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """A variable that UPDATE_OPS assign to, before they do.

    Attributes:
        target: resource handle or reference tensor.
        before: Tensor, the value before the step.
        own: bool, whether a skipped step restores it in any case, or only where a value is not finite.
    """

    target: tf.Tensor
    before: tf.Tensor
    own: bool


def snapshots(updates: Iterable[Any], finite: tf.Tensor, trained: Sequence[Any]) -> list[Snapshot]:
    """Returns what `rollback` needs.

    Args:
        updates: iterable of ops, tensors or variables as assignments return them, for example
            tf.get_collection(tf.GraphKeys.UPDATE_OPS).
        finite: bool scalar tensor of the step, made under the control dependencies of its training op.
        trained: the variables of the step.

    Raises:
        ConfigError: an update does not write to a variable, or it does in a loop.
    """
    earlier = upstream([tf.identity(finite).op])
    trained_names = {variable.op.name for variable in trained}
    trainable = trained_names | {variable.op.name for variable in tf.trainable_variables()}
    taken, late = [], []
    for target, writers in _targets(updates):
        neighbours = _nearest(target.op.name, trainable)
        if not (neighbours <= trained_names or neighbours.isdisjoint(trained_names)):
            neighbours = _first_upstream(writers, neighbours) or neighbours
        certain = any(op in earlier for op in writers)  # the others may or may not be part of the run
        own = bool(neighbours & trained_names) if certain else neighbours <= trained_names
        if not certain and own:
            late.append(writers[0].name)
        if own or (certain and _base_dtype(target).is_floating):
            taken.append(Snapshot(target, _copy_before(target, writers), own))
    if late:
        tf.logging.warning(
            "npu_shim: protect_update_ops: the training op does not wait for %d update ops, such as '%s', so they race "
            "in a skipped step: make it under tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS))",
            len(late),
            late[0],
        )
    return taken


def rollback(taken: Iterable[Snapshot]) -> tf.Operation:
    """Returns an op that restores the copies of `snapshots`, in a branch that waits for their `finite`."""
    return tf.group(*[_restore(snapshot) if snapshot.own else _restore_if_spoilt(snapshot) for snapshot in taken])


def upstream(ops: Iterable[Any]) -> set[Any]:
    """Returns the ancestors of `ops`, including `ops`; what is not an operation is left out."""
    starts = [op for op in ops if isinstance(op, tf.Operation)]
    return set(reached(starts, givers))


def _targets(updates):
    """Yields each variable that updates write to, and the ops that do."""
    writers_of = {}
    steps = {getattr(op, "op", op) for op in tf.get_collection(tf.GraphKeys.TRAIN_OP)}
    for update in updates:
        writers = _writers(update, steps)
        if not writers:
            raise ConfigError(
                "protect_update_ops: '%s' does not assign to a variable; take it out of UPDATE_OPS or build it with "
                "optimizer.when_finite" % update.name
            )
        for op in writers:
            writers_of.setdefault(_variable(op.inputs[0]), {})[op.name] = op
    return [(target, list(ops.values())) for target, ops in writers_of.items()]


def _nearest(name, others):
    """Returns those of `others` that share the longest path with the scope of a variable."""
    scope = name.split("/")[:-1]
    shared = {other: _common(scope, other.split("/")) for other in others}
    longest = max(shared.values())
    return {other for other, length in shared.items() if length == longest}


def _first_upstream(ops, names):
    """Returns those of `names` whose variables are the fewest ops above `ops`; none if no variable of them is."""
    level, seen = set(ops), set()
    while level:
        reached = {op.name for op in level} & names
        if reached:
            return reached
        seen |= level
        level = {tensor.op for op in level for tensor in op.inputs} - seen
    return set()


def _copy_before(target, writers):
    for op in writers:
        if op._control_flow_context is not None and op._control_flow_context.GetWhileContext() is not None:
            raise ConfigError(
                "protect_update_ops: '%s' assigns to a variable in a loop; take the update out of UPDATE_OPS or build "
                "it with optimizer.when_finite" % op.name
            )
    # no control dependency: the caller often stands under the very updates that must come later
    with tf.init_scope(), tf.colocate_with(target.op):
        if target.dtype == tf.resource:
            before = tf.raw_ops.ReadVariableOp(resource=target, dtype=_base_dtype(target))
        else:
            # Identity of a reference shares its buffer, and the update writes into it
            before = tf.raw_ops.DeepCopy(x=target)
    for op in writers:
        op._add_control_input(before.op)
    return before


def _common(one, other):
    """Returns how many parts two paths share from their start."""
    return len(list(itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one, other))))


def _base_dtype(target):
    return target.op.get_attr("dtype") if target.dtype == tf.resource else target.dtype.base_dtype


def _restore(snapshot):
    if snapshot.target.dtype == tf.resource:
        return tf.raw_ops.AssignVariableOp(resource=snapshot.target, value=snapshot.before)
    return tf.raw_ops.Assign(ref=snapshot.target, value=snapshot.before).op


def _restore_if_spoilt(snapshot):
    target = snapshot.target
    with keep_dtype():  # a variance of 1e5 is finite
        if target.dtype == tf.resource:
            value = tf.raw_ops.ReadVariableOp(resource=target, dtype=_base_dtype(target))
        else:
            value = tf.identity(target)
        return tf.cond(tf.reduce_all(tf.is_finite(value)), tf.no_op, lambda: tf.group(_restore(snapshot)))


def _writers(update, steps):
    """Returns the ops that write to variables at or before an update, but not before `steps`."""
    writers, seen, ahead = [], set(steps), [getattr(update, "op", update)]
    global_step = tf.train.get_global_step()
    while ahead:
        op = ahead.pop()
        if op in seen or OPTIMIZER_STEP.match(op.type):
            continue
        seen.add(op)
        if _writes_to_variable(op) and (global_step is None or _variable(op.inputs[0]).op.name != global_step.op.name):
            writers.append(op)
        ahead += givers(op)
    return writers


def _writes_to_variable(op):
    if not len(op.inputs):
        return False
    if op.inputs[0].dtype == tf.resource:
        return RESOURCE_WRITERS.match(op.type) is not None
    arguments = op.op_def.input_arg
    return bool(arguments) and arguments[0].is_ref and not PASSES_REFERENCES_ON.match(op.type)


def _variable(written):
    """Returns the reference or the handle as the variable's own op gives it: through assignments and switches."""
    while written.op.inputs:
        written = written.op.inputs[0]
    return written
