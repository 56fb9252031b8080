"""Reads and writes a session's variables, without adding to its graph where possible."""

import tensorflow.compat.v1 as tf

from npu_shim.rewriter.errors import PlanError
from npu_shim.session import doors
from npu_shim.xla.sources import Source

ASSIGNS = ("Assign", "AssignVariableOp")


class SessionValues:
    """Reads and writes variables of one session.

    Args:
        session: tf.Session.
    """

    def __init__(self, session):
        self._session = session
        self._source = Source(session.graph, None, None, session)
        self._reads, self._writes = {}, {}  # variable's name -> tensor; -> (operation, tensor that is fed)

    def know(self, handles):
        """Finds how to read and write variables; dict of a variable's name to its node's.

        Raises:
            PlanError or ConfigError: nothing in a finalized graph reads a variable, or assigns to it.
        """
        for name, node in handles.items():
            if name not in self._reads:
                read = self._source.read_of(node)
                self._writes[name] = self._assignment(node)
                self._reads[name] = read

    def read(self, names):
        """Returns the values of variables in the session: dict of name to np.ndarray.

        Raises:
            tf.errors.FailedPreconditionError: a variable is not initialized.
        """
        return doors.plain_run(self._session, {name: self._reads[name] for name in names})

    def write(self, values):
        """Assigns values to variables of the session; dict of name to array."""
        pairs = {name: self._writes[name] for name in values}
        fed = {pairs[name][1]: value for name, value in values.items()}
        doors.plain_run(self._session, [operation for operation, _ in pairs.values()], fed)

    def _assignment(self, node):
        """An assignment to a variable without control inputs, and the tensor to feed."""
        variable = self._session.graph.get_operation_by_name(node).outputs[0]
        for operation in variable.consumers():
            assigns = operation.type in ASSIGNS and operation.inputs[0] is variable and not operation.control_inputs
            if assigns and self._session.graph.is_feedable(operation.inputs[1]):
                return operation, operation.inputs[1]
        return self._own_assignment(node, variable)

    def _own_assignment(self, node, variable):
        graph, operation = self._session.graph, variable.op
        if graph.finalized:
            raise PlanError("variable '%s' has no assignment in the session's graph, and that is finalized" % node)
        with graph.as_default(), tf.control_dependencies(None), tf.device(operation.device):
            dtype, shape = operation.get_attr("dtype"), tf.TensorShape(operation.get_attr("shape"))
            value = tf.placeholder(dtype, shape, name="npu_shim/value")
            if operation.type == "VarHandleOp":
                return tf.raw_ops.AssignVariableOp(resource=variable, value=value), value
            return tf.raw_ops.Assign(ref=variable, value=value).op, value
