"""Gives variables of a session values, through the assignments of its graph: what everything that writes them does.

A value is fed in place of what an assignment would assign. Variables may share that tensor, so that it has one value in
each run and another run follows for each further value:

    w = tf.random_uniform([4])      a = tf.Variable(w)      b = tf.Variable(w)
"""

from __future__ import annotations

from typing import Any, Callable, Iterable, Mapping, NamedTuple

import tensorflow.compat.v1 as tf

from npu_shim.rewriter.errors import PlanError

HANDLE = "VarHandleOp"  # the op of a resource variable; reference variables have two others
_ASSIGNS = ("Assign", "AssignVariableOp")


class Assignment(NamedTuple):
    """An assignment to a variable that waits for nothing.

    Attributes:
        operation: tf.Operation that assigns.
        value: tf.Tensor that is fed.
    """

    operation: Any
    value: Any


def variable_op(variable: Any) -> Any:
    """Returns the tf.Operation of a tf.Variable, reference or resource."""
    return variable.handle.op if hasattr(variable, "handle") else variable.op


def assignment_of(variable: Any) -> Assignment:
    """Returns the Assignment to a variable, given its operation; adds one if the graph has none that takes any value.

    Raises:
        PlanError: there is none, and the graph is finalized.
    """
    tensor = variable.outputs[0]
    for operation in tensor.consumers():
        if operation.type in _ASSIGNS and operation.inputs[0] is tensor and _takes_any_value(operation, variable):
            return Assignment(operation, operation.inputs[1])
    return _added(variable)


def assign(run: Callable[[Any, Mapping[Any, Any]], Any], values: Iterable[tuple[Assignment, Any]]) -> None:
    """Assigns values to variables of a session.

    Args:
        run: as Session.run, of (fetches, feed_dict).
        values: of each variable its Assignment and the value, array_like.

    Raises:
        tf.errors.OpError: as Session.run.
    """
    rounds: list[dict[Any, tuple[Any, Any]]] = []  # name of a fed tensor -> (assignment, value)
    for assignment, value in values:
        name = assignment.value.name
        free = next((assigned for assigned in rounds if name not in assigned), None)
        if free is None:
            free = {}
            rounds.append(free)
        free[name] = assignment, value
    for pairs in rounds:
        fed = {assignment.value: value for assignment, value in pairs.values()}
        run([assignment.operation for assignment, _ in pairs.values()], fed)


def _takes_any_value(operation, variable):
    """Whether an assignment waits for nothing, and what it assigns can be fed with all that the variable can hold."""
    value, declared = operation.inputs[1], tf.TensorShape(variable.get_attr("shape"))
    if operation.control_inputs or value.dtype._is_ref_dtype or not value.graph.is_feedable(value):
        return False
    if declared.is_fully_defined():
        return declared.is_compatible_with(value.shape)
    return value.shape.rank is None and not (operation.type == "Assign" and operation.get_attr("validate_shape"))


def _added(variable):
    """An assignment that is added to the graph."""
    graph = variable.graph
    if graph.finalized:
        text = "variable '%s' has no assignment in the session's graph, and that is finalized"
        raise PlanError(text % variable.name)
    with graph.as_default(), tf.control_dependencies(None), tf.device(variable.device):
        shape = tf.TensorShape(variable.get_attr("shape"))
        value = tf.placeholder(variable.get_attr("dtype"), shape, name="npu_shim/value")
        if variable.type == HANDLE:
            return Assignment(tf.raw_ops.AssignVariableOp(resource=variable.outputs[0], value=value), value)
        fixed = shape.is_fully_defined()
        op = tf.raw_ops.Assign(ref=variable.outputs[0], value=value, validate_shape=fixed)
        return Assignment(op.op, value)
