"""Undoes batch-norm and moving-average updates of a step that is skipped.

The updates run before the gradients are known (the training op depends on them), so they cannot wait for the finite
flag. Their variables are copied before they run and put back when the step turns out to be skipped.
"""

import tensorflow.compat.v1 as tf

from npu_shim.rewriter.errors import ConfigError

ASSIGNMENTS = {
    "Assign",
    "AssignAdd",
    "AssignSub",
    "AssignVariableOp",
    "AssignAddVariableOp",
    "AssignSubVariableOp",
}
PASSED_THROUGH = {"NoOp", "Identity", "ReadVariableOp", "Merge", "Switch"}


def snapshots(updates):
    """Returns what `rollback` needs: list of (assigned handle or reference, tensor with the value before the step).

    Args:
        updates: iterable of ops or tensors, for example tf.get_collection(tf.GraphKeys.UPDATE_OPS).

    Raises:
        ConfigError: an update does not end in an assignment to a variable.
    """
    found = {}
    for update in updates:
        assignments = _assignments(update)
        if not assignments:
            raise ConfigError(
                "protect_update_ops: '%s' does not assign to a variable; take it out of UPDATE_OPS or build it with "
                "optimizer.when_finite" % update.name
            )
        for op in assignments:
            found.setdefault(op.inputs[0], []).append(op)
    return [(target, _copy_before(target, ops)) for target, ops in found.items()]


def rollback(taken):
    """Returns an op that puts the copies of `snapshots` back."""
    return tf.group(*[_assign(target, value) for target, value in taken])


def _copy_before(target, assignments):
    # no control dependency: the caller often stands under the very updates that must come later
    with tf.init_scope(), tf.colocate_with(target.op):
        if target.dtype == tf.resource:
            dtype = tf.as_dtype(next(_value_dtype(op) for op in assignments))
            before = tf.raw_ops.ReadVariableOp(resource=target, dtype=dtype)
        else:
            # Identity of a reference shares its buffer, and the update writes into it
            before = tf.raw_ops.DeepCopy(x=target)
    for op in assignments:
        op._add_control_input(before.op)
    return before


def _value_dtype(assignment):
    return assignment.inputs[1].dtype.base_dtype


def _assign(target, value):
    if target.dtype == tf.resource:
        return tf.raw_ops.AssignVariableOp(resource=target, value=value)
    return tf.raw_ops.Assign(ref=target, value=value).op


def _assignments(update):
    """Returns the assignment ops behind an update: itself, or what it groups or reads after."""
    found, seen, ahead = [], set(), [update.op if isinstance(update, tf.Tensor) else update]
    while ahead:
        op = ahead.pop()
        if op in seen:
            continue
        seen.add(op)
        if op.type in ASSIGNMENTS:
            found.append(op)
        elif op.type in PASSED_THROUGH:
            ahead += list(op.control_inputs) + [tensor.op for tensor in op.inputs]
    return found
