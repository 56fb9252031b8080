"""The one module that imports TensorFlow's private modules, and that knows the differences between its versions.

Everything else in the project uses `tensorflow.compat.v1`; the linter and a test hold that rule. Sources: TensorFlow
1.15.5, 2.15.1 and 2.21.0.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import importlib
import sys
from typing import Any, Callable, Iterator

_registered: dict[str, Callable[..., Any]] = {}
OWN_OPS = "NpuShim"  # what the names of ops begin with that npu_shim registers for its sessions


@functools.lru_cache(maxsize=None)
def op_defs() -> dict[str, Any]:
    """Returns every op of this TensorFlow: dict of op type to its OpDef proto. Those that we register are left out."""
    from tensorflow.core.framework import op_def_pb2

    try:
        from tensorflow.python.client import pywrap_tf_session as c_api
    except ImportError:  # TensorFlow 1.15
        from tensorflow.python import pywrap_tensorflow as c_api
    buffer = c_api.TF_GetAllOpList()
    ops = op_def_pb2.OpList.FromString(c_api.TF_GetBuffer(buffer))
    return {op.name: op for op in ops.op if not op.name.startswith(OWN_OPS)}


def op_def(op: str) -> Any:
    """Returns the OpDef of an op, None if there is none; also of one whose library was loaded after `op_defs`."""
    if op in op_defs() or op.startswith(OWN_OPS):
        return op_defs().get(op)
    from tensorflow.python.framework import op_def_registry

    if hasattr(op_def_registry, "get"):
        return op_def_registry.get(op)
    return op_def_registry.get_registered_ops().get(op)  # TensorFlow 1.15


def onednn_is_on() -> bool:
    """Whether TensorFlow runs oneDNN's kernels in place of its own; decided when it is imported."""
    try:
        from tensorflow.python.util import _pywrap_util_port as port
    except ImportError:  # TensorFlow 1.15
        from tensorflow.python import pywrap_tensorflow as port
    return bool(port.IsMklEnabled())


@functools.lru_cache(maxsize=None)
def kernels() -> dict[str, list[Any]]:
    """Returns every kernel registered in this TensorFlow: dict of op type to a list of KernelDef protos."""
    from tensorflow.python.framework import kernels as registry

    kernels = {}
    for kernel in registry.get_all_registered_kernels().kernel:
        kernels.setdefault(kernel.op, []).append(kernel)
    return kernels


@functools.lru_cache(maxsize=None)
def default_attr(op: str, name: str) -> Any:
    """Returns the AttrValue that an op's attribute has where a node names none; an empty one where it must."""
    from tensorflow.core.framework import attr_value_pb2

    definition = op_defs().get(op)
    defaults = {} if definition is None else {attr.name: attr.default_value for attr in definition.attr}
    return defaults.get(name, attr_value_pb2.AttrValue())


def xla_kernels() -> dict[str, list[Any]]:
    """Returns XLA's kernels, dict of op type to a list of KernelDef protos (TensorFlow 2).

    XLA puts them into the registry when it first compiles, so a function of no ops is compiled before it is read. The
    device is the CPU, which every wheel compiles for: those of the GPU are the same but for convolutions of integers.
    """
    import tensorflow.compat.v1 as tf
    from tensorflow.python.framework import kernels as registry

    with eager_mode():
        tf.function(lambda: tf.constant(0), autograph=False, jit_compile=True).experimental_get_compiler_ir()()
    xla_kernels = {}
    for kernel in registry.get_all_registered_kernels().kernel:
        if kernel.device_type == "XLA_CPU_JIT":
            xla_kernels.setdefault(kernel.op, []).append(kernel)
    return xla_kernels


class ControlFlowPlace(collections.namedtuple("ControlFlowPlace", "context repeated control_inputs")):
    """Where ops are being added: hashable, so that it can key what exists once for each place.

    Attributes:
        context: the name of the innermost v1 control-flow context, or None.
        repeated: bool, inside a v1 loop or inside a function body other than a branch, which may be a loop's.
        control_inputs: frozenset of the names of the ops that new ops will wait for.
    """


def control_flow_place(graph: Any) -> ControlFlowPlace:
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


def partitions(partitioned: Any) -> tuple[int, ...]:
    """Returns the number of parts along each axis of a PartitionedVariable."""
    return tuple(partitioned._get_partitions())


def bulk_saver_builder() -> Any:
    """Returns the class that `tf.train.Saver` builds with when it is given no builder."""
    from tensorflow.python.training import saver

    return saver.BulkSaverBuilder


def saver_that_builds(builder: Any) -> Any:
    """Returns the Saver that is calling `builder`, or None: TensorFlow tells a builder neither it nor its options."""
    frame = sys._getframe(1)
    for _ in range(8):
        caller = frame.f_locals.get("self") if frame is not None else None
        if caller is not builder and getattr(caller, "_builder", None) is builder:
            return caller
        frame = frame and frame.f_back
    return None


def object_graph_keys(checkpoint: str) -> dict[str, str]:
    """Returns variable name -> key for an object-based checkpoint (the path of its prefix)."""
    from tensorflow.python.training import saver

    return saver.object_graph_key_mapping(checkpoint)


def saveables(variables: Any) -> list[Any]:
    """Returns the SaveableObjects of a Saver's `var_list`: a list, a dict or None for everything in the graph."""
    from tensorflow.python.ops import variables as variables_module
    from tensorflow.python.training.saving import saveable_object_util

    variables = variables_module._all_saveable_objects() if variables is None else variables
    if not isinstance(variables, dict):
        variables = saveable_object_util.op_list_to_dict(variables)
    return saveable_object_util.validate_and_slice_inputs(variables)


@contextlib.contextmanager
def replaced_restore_v2(wrap: Callable[[Any], Any]) -> Iterator[None]:
    """Scope in which TensorFlow's Python code calls `wrap(restore_v2)` where it would call `restore_v2`."""
    from tensorflow.python.ops import io_ops

    original = io_ops.restore_v2
    io_ops.restore_v2 = wrap(original)
    try:
        yield
    finally:
        io_ops.restore_v2 = original


def python_module(path: str) -> Any:
    """Returns a module of `tensorflow.python`, which scripts reach through modules that import it.

    Raises:
        ImportError: this TensorFlow does not have it.
    """
    return importlib.import_module("tensorflow.python." + path)


def client_session() -> Any:
    """Returns the module in which `Session` lives, which TensorFlow's public API does not show."""
    from tensorflow.python.client import session

    return session


def fetch_handler(graph: Any, fetches: Any) -> Any:
    """Returns what Session.run makes of `fetches`, in any structure that it takes.

    It has `fetches()` (Tensors), `targets()` (Operations) and `build_results(session, values of the tensors)`.
    """
    from tensorflow.python.client import session

    return session._FetchHandler(graph, fetches, {})


def fed_tensors(graph: Any, feed_dict: Any) -> list[tuple[Any, Any]]:
    """Returns what Session.run makes of `feed_dict`: list of (Tensor, value), one for each part of what is composite.

    Raises:
        TypeError, ValueError or KeyError: a key that cannot be fed.
    """
    from tensorflow.python.client import session
    from tensorflow.python.util import nest

    fed_tensors = []
    for key, value in nest.flatten_dict_items(feed_dict or {}).items():
        expand = next(feed for kind, _, feed, _ in session._REGISTERED_EXPANSIONS if isinstance(key, kind))
        for part, part_value in expand(key, value):
            fed_tensors.append((graph.as_graph_element(part, allow_operation=False), part_value))
    return fed_tensors


def session_run_hook() -> Any:
    """Returns the module in which `SessionRunHook` lives."""
    from tensorflow.python.training import session_run_hook

    return session_run_hook


def collective_ops() -> Any:
    """Returns the module with TensorFlow's collectives between processes."""
    from tensorflow.python.ops import collective_ops

    return collective_ops


def register_py_func(token: str, function: Callable[..., Any]) -> None:
    """Registers a function of numpy arrays for the PyFunc ops that have this token, also those of other processes."""
    from tensorflow.python.ops import script_ops

    _registered[token] = function  # TensorFlow keeps weak references
    script_ops._py_funcs._funcs[token] = function


def allow_estimator_exports() -> None:
    """Lets tensorflow-estimator register its public names, which TensorFlow 2.16 and later have no table for."""
    from tensorflow.python.util import tf_export

    if hasattr(tf_export, "ESTIMATOR_API_NAME"):
        return
    tf_export.ESTIMATOR_API_NAME = "estimator"
    for table in (tf_export.API_ATTRS, tf_export.API_ATTRS_V1):
        keras = table["keras"]
        table["estimator"] = type(keras)(*(name.replace("keras", "estimator") for name in keras))


def forget_full_type(message: Any, field: str) -> None:
    """Clears what TensorFlow has noted of the dtypes in a list, which it finds again; TensorFlow 1.15 notes nothing."""
    if field in message.DESCRIPTOR.fields_by_name:
        message.ClearField(field)


@contextlib.contextmanager
def eager_mode() -> Iterator[None]:
    """Context in which TensorFlow runs eagerly, even in a program that turned that off.

    What the script's graph says of new variables does not hold in it: a tf.distribute strategy would mirror them.
    """
    from tensorflow.python.eager import context
    from tensorflow.python.framework import ops

    with ops.Graph().as_default(), context.eager_mode():
        yield


def is_variable(held: Any) -> bool:
    """Whether an object is a variable: a resource variable of TensorFlow 2 is no tf.compat.v1.Variable."""
    from tensorflow.python.ops import variables

    return isinstance(held, variables.Variable)


def default_config() -> Any:
    """Returns a new ConfigProto as a session takes where its script gives none: with what `tf.config` was asked for."""
    from tensorflow.python.eager import context

    config = context.context().config
    options, gpus = config.gpu_options, context.context().list_physical_devices("GPU")
    # TensorFlow 2 lists them even where nobody has chosen: then any may be had
    if options.visible_device_list == ",".join(str(number) for number in range(len(gpus))):
        options.visible_device_list = ""
    return config


def executing_eagerly_outside_functions() -> bool:
    """Whether ops run at once here, or would where the function that is being traced is called."""
    from tensorflow.python.framework import ops

    eagerly: bool = ops.executing_eagerly_outside_functions()
    return eagerly


def eager_gradients() -> Any:
    """Returns the module whose `imperative_grad` computes the gradients of what a tape has recorded."""
    from tensorflow.python.eager import imperative_grad

    return imperative_grad


@functools.lru_cache(maxsize=None)
def _read_only_graph() -> Any:
    import tensorflow.compat.v1 as tf
    from tensorflow.python.client import pywrap_tf_session as c_api
    from tensorflow.python.framework import c_api_util, importer

    class ReadOnlyGraph(tf.Graph):  # type: ignore[misc]
        def __init__(self, serialized: bytes) -> None:
            super().__init__()
            options = c_api_util.ScopedTFImportGraphDefOptions()
            importer._PopulateTFImportGraphDefOptions(options.options, "", {}, None, False)
            with c_api_util.tf_buffer(serialized) as buffer:
                results = c_api.TF_GraphImportGraphDefWithResults(self, buffer, options.options)
            c_api_util.ScopedTFImportGraphDefResults(results)  # frees them
            self._handles = {c_api.TF_OperationName(operation): operation for operation in self.new_operations()}
            self._unread = dict(self._handles)
            self.finalize()

        def _get_operation_by_name(self, name: str) -> Any:
            operation = self._unread.pop(name, None)
            if operation is not None:
                return tf.Operation._from_c_op(operation, self)
            return super()._get_operation_by_name(name)

        get_operation_by_name = _get_operation_by_name  # without the checks of what is a name

        def has(self, name: str) -> bool:
            """Whether there is a node of this name."""
            return name in self._handles

        def results(self, name: str) -> list[tuple[int, tuple[int, ...] | None]]:
            """(Number of its dtype, sizes or None where one is not known) of each output of a node.

            It asks C++ and makes no tf.Tensor: for a whole graph that takes a third of the time.
            """
            handle = self._handles[name]
            operation, place, results = tf.Operation(handle, tuple), c_api.TF_Output(), []  # never calls `tuple`
            operation.graph, place.oper = self, handle
            for index in range(c_api.TF_OperationNumOutputs(handle)):
                place.index = index
                sizes, is_unknown = c_api.PyTensor(operation, index, None, 0)._shape
                known = not is_unknown and None not in sizes
                results.append((int(c_api.TF_OperationOutputType(place)), tuple(sizes) if known else None))
            return results

    return ReadOnlyGraph


@functools.lru_cache(maxsize=None)
def _imported_graph() -> Any:
    import tensorflow.compat.v1 as tf

    class ImportedGraph(tf.Graph):  # type: ignore[misc]
        def __init__(self, graph_def: Any) -> None:
            super().__init__()
            with self.as_default():
                tf.import_graph_def(graph_def, name="")
            self._own = {operation.name: operation for operation in self.get_operations()}
            self.finalize()

        def has(self, name: str) -> bool:
            return name in self._own

        def results(self, name: str) -> list[tuple[int, tuple[int, ...] | None]]:
            known = ((output.dtype.as_datatype_enum, output.shape) for output in self._own[name].outputs)
            return [(dtype, tuple(shape.as_list()) if shape.is_fully_defined() else None) for dtype, shape in known]

    return ImportedGraph


def read_only_graph(graph_def: Any) -> Any:
    """Returns a tf.Graph of a GraphDef to ask for shapes, dtypes and (TensorFlow 2) constants.

    TensorFlow 2's C++ imports it and infers the shapes; what `import_graph_def` does in Python takes four times as
    long, since it looks at every node. Here an operation exists in Python when its name is first asked for; so
    `get_operations` does not give all.

    Raises:
        ValueError: shapes that contradict each other, or a graph that is none.
    """
    import tensorflow.compat.v1 as tf

    if tf.__version__.startswith("1."):
        return _imported_graph()(graph_def)
    try:
        return _read_only_graph()(graph_def.SerializeToString())
    except tf.errors.InvalidArgumentError as reason:
        raise ValueError(str(reason)) from reason  # as import_graph_def does


def constant_shape(tensor: Any) -> Any:
    """Returns what is constant in a tensor of sizes, as a tf.TensorShape: `tf.stack([n, 4])` is (?, 4).

    `tf.get_static_value` gives all of it or nothing.
    """
    from tensorflow.python.framework import tensor_util

    return tensor_util.constant_value_as_shape(tensor)


def op_selector() -> Any:
    """Returns the module that has what TensorFlow 2 keeps of tf.contrib.graph_editor.util."""
    from tensorflow.python.ops import op_selector as module

    return module


def virtual_gpu_cluster() -> Any:
    """A Grappler cluster of a CPU and a GPU of compute capability 8.0, for offline runs on a machine without a GPU."""
    from tensorflow.core.protobuf import device_properties_pb2
    from tensorflow.python.grappler import cluster

    devices = []
    for name, environment in (("CPU", {}), ("GPU", {"architecture": "8.0", "cuda": "11050", "cudnn": "8302"})):
        properties = device_properties_pb2.DeviceProperties(
            type=name, frequency=1000, num_cores=64, memory_size=1 << 36, bandwidth=1000000,
            vendor="NVIDIA" if name == "GPU" else "", environment=environment,
        )  # fmt: skip
        full_name = "/job:localhost/replica:0/task:0/device:%s:0" % name
        devices.append(device_properties_pb2.NamedDevice(name=full_name, properties=properties))
    return cluster.Cluster(devices=devices)


def optimize_offline(config: Any, meta_graph: Any, cluster: Any) -> Any:
    """TensorFlow's own Grappler on a MetaGraphDef; returns a GraphDef. `config` is a ConfigProto."""
    from tensorflow.python.grappler import tf_optimizer

    return tf_optimizer.OptimizeGraph(config, meta_graph, verbose=False, cluster=cluster)


def is_mixed_precision_rewrite_on() -> bool:
    """Whether enable_mixed_precision_graph_rewrite has asked TensorFlow for casts in every session."""
    state = importlib.import_module("tensorflow.python.training.experimental.mixed_precision_global_state")
    if hasattr(state, "is_mixed_precision_graph_rewrite_enabled"):
        return bool(state.is_mixed_precision_graph_rewrite_enabled())
    return bool(state.mixed_precision_graph_rewrite_is_enabled)  # TensorFlow 1.15


def checkpoint_management() -> Any:
    """Returns the module whose `_GetCheckpointFilename` names the file that lists a folder's checkpoints."""
    try:
        from tensorflow.python.checkpoint import checkpoint_management as module
    except ImportError:  # TensorFlow 1
        from tensorflow.python.training import checkpoint_management as module
    return module
