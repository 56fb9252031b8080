"""The one door to TensorFlow's private modules, and the one file that knows the differences between its versions.

Everything else in the project uses `tensorflow.compat.v1`; the linter and a test hold that rule. Sources: TensorFlow 1.15.5,
2.15.1 and 2.21.0.
"""

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
