"""The one door to TensorFlow's private modules, and the one file that knows the differences between its versions.

Everything else in the project uses `tensorflow.compat.v1`; the linter and a test hold that rule. Sources: TensorFlow 1.15.5,
2.15.1 and 2.21.0.
"""

import collections
import functools


@functools.lru_cache(maxsize=None)
def op_defs():
    """Returns every op registered in this TensorFlow: dict of op type to its OpDef proto."""
    from tensorflow.core.framework import op_def_pb2

    try:
        from tensorflow.python.client import pywrap_tf_session as c_api
    except ImportError:  # TensorFlow 1.15
        from tensorflow.python import pywrap_tensorflow as c_api
    buffer = c_api.TF_GetAllOpList()
    ops = op_def_pb2.OpList.FromString(c_api.TF_GetBuffer(buffer))
    return {op.name: op for op in ops.op}


@functools.lru_cache(maxsize=None)
def kernels():
    """Returns every kernel registered in this TensorFlow: dict of op type to a list of KernelDef protos."""
    from tensorflow.python.framework import kernels as registry

    found = {}
    for kernel in registry.get_all_registered_kernels().kernel:
        found.setdefault(kernel.op, []).append(kernel)
    return found


class ControlFlowPlace(collections.namedtuple("ControlFlowPlace", "context repeated control_inputs")):
    """Where ops are being added: hashable, so that it can key what exists once for each place.

    Attributes:
        context: the name of the innermost v1 control-flow context, or None.
        repeated: bool, inside a v1 loop or inside a function body other than a branch, which may be a loop's.
        control_inputs: frozenset of the names of the ops that new ops will wait for.
    """


def control_flow_place(graph):
    """Returns the ControlFlowPlace at which `graph` is being built."""
    innermost = context = graph._get_control_flow_context()
    repeated, function = False, graph
    while getattr(function, "building_function", False):
        repeated = repeated or type(function).__name__ != "CondBranchFuncGraph"
        function = getattr(function, "outer_graph", None)
    while context is not None:
        repeated = repeated or context.IsWhileContext()
        context = context.outer_context
    waits_for = frozenset(getattr(op, "name", None) or op.op.name for op in graph._current_control_dependencies())
    return ControlFlowPlace(innermost and innermost.name, repeated, waits_for)


def partitions(partitioned):
    """Returns the number of parts along each axis of a PartitionedVariable."""
    return tuple(partitioned._get_partitions())
