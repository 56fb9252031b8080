"""Scopes that mark ops: every op made inside gets the attribute; whoever reads the attribute decides its meaning.

The precision planner reads `_keep_dtype`. The others have no meaning off the NPU and do nothing else.
Source: Ascend adapter of 2023-12 (r1.15) and 2026-07 (CANN 9.0), npu_scope.
"""

from __future__ import annotations

import contextlib
import enum
from typing import Any, ContextManager, Iterator, Mapping, Sequence

import tensorflow.compat.v1 as tf

from npu_shim.options.ops import kept_gradients
from npu_shim.rewriter.errors import ConfigError, nearest, one_of
from npu_shim.rewriter.graph.graph_view import KEEP, KEEP_WITH_GRADIENTS, TO_FLOAT

# attributes of our own that XLA clusters and compiled steps read
OPT_OUT = "_without_npu_compile"  # of npu_scope.without_npu_compile_scope: the op stays outside
EQUAL_SHAPES = "_npu_shim_equal_shapes"  # of a Merge: both sides have the same shapes
# of a bool scalar that spares a session a slower test, which would be true as well: compiled, that one is enough
QUICK_TEST = "_npu_shim_quick_test"
TO_FLOAT_DTYPES = ("float16", "bfloat16", "float32")


class NpuExecutePlacement(enum.Enum):
    """Engines of the device."""

    ALL = "all"
    CUBE = "cube"
    VECTOR = "vector"
    TAISHAN = "taishan"
    DVPP = "dvpp"
    HOST = "host"


@contextlib.contextmanager
def attributes(**values: bool | int | str) -> Iterator[None]:
    """Scope in which every new op of the default graph gets the given attributes (name to bool, int or str)."""
    with tf.get_default_graph()._attr_scope({name: _attr_value(value) for name, value in values.items()}):
        yield


def _attr_value(value: Any) -> Any:
    if isinstance(value, bool):
        return tf.AttrValue(b=value)
    if isinstance(value, int):
        return tf.AttrValue(i=value)
    return tf.AttrValue(s=tf.compat.as_bytes(value))


def keep_dtype_scope(gradients: bool = False) -> ContextManager[None]:
    """Scope whose ops keep their dtype in the modes that lower.

    Args:
        gradients: whether the gradient ops that tf.gradients makes of them keep their dtype too, wherever they are
            made. Otherwise, as in the original, only gradient ops that are made inside the scope do.
    """
    if gradients:
        kept_gradients.follow()
        kept_gradients.tell_of_tapes()
    return attributes(**{KEEP: KEEP_WITH_GRADIENTS if gradients else 1})


@contextlib.contextmanager
def to_float(dtype: Any) -> Iterator[None]:
    """Scope whose ops compute in `dtype`, whatever the precision mode and the lists say; the innermost scope wins.

    Variables, constants and data sources keep their dtypes, and an op without a kernel for `dtype` keeps its own.
    customize_dtypes wins over it, and modes that must keep every dtype ignore it. Source: MindSpore's Cell.to_float.

    Args:
        dtype: "float16", "bfloat16" or "float32", or a TensorFlow dtype of that name.

    Raises:
        ConfigError: another dtype.
    """
    name = one_of(getattr(dtype, "name", dtype), TO_FLOAT_DTYPES, "to_float: dtype")
    with tf.get_default_graph()._attr_scope({TO_FLOAT: tf.AttrValue(type=tf.as_dtype(name).as_datatype_enum)}):
        yield


def without_npu_compile_scope() -> ContextManager[None]:
    """Scope whose ops stay on the host on the NPU; here TensorFlow places them as usual."""
    return attributes(**{OPT_OUT: True})


def npu_variable_scope(placement: NpuExecutePlacement = NpuExecutePlacement.ALL) -> ContextManager[None]:
    """Scope whose variables belong to an engine of the NPU.

    Raises:
        ConfigError: `placement` is no NpuExecutePlacement.
    """
    if not isinstance(placement, NpuExecutePlacement):
        raise ConfigError("npu_variable_scope: placement must be a NpuExecutePlacement, got %r" % (placement,))
    return attributes(_variable_placement=placement.value)


def npu_stage_scope(stage: int) -> ContextManager[None]:
    """Scope whose ops form pipeline stage number `stage`."""
    return attributes(_stage_level=int(stage))


def npu_mem_type_scope() -> ContextManager[None]:
    """Scope whose outputs lie in the NPU's peer-to-peer memory."""
    return attributes(_output_memory_type=1)


def npu_weight_prefetch_scope(buffer_pool_id: int = 0, buffer_pool_size: int = 536870912) -> ContextManager[None]:
    """Scope whose weights are prefetched into a buffer pool of `buffer_pool_size` bytes."""
    return attributes(_buffer_pool_id=buffer_pool_id, _buffer_pool_size=buffer_pool_size)


def op_specified_engine_scope(engine_name: str, kernel_lib_name: str) -> ContextManager[None]:
    """Scope whose ops run on a named engine with a named kernel library."""
    return attributes(_specified_engine_name=engine_name, _specified_kernel_lib_name=kernel_lib_name)


def npu_qos_label_scope(label: int) -> ContextManager[None]:
    """Scope whose traffic carries a quality-of-service label, an int."""
    return attributes(_qos_service_label=label)


def subgraph_multi_dims_scope(index: int) -> ContextManager[None]:
    """Scope of the subgraph number `index` with several sets of input shapes."""
    return attributes(_subgraph_multi_dims_index=index)


def npu_optimizer_scope() -> ContextManager[None]:
    """Scope of the training optimizer's ops."""
    return attributes(_optimizer=True)


def disable_autofuse() -> ContextManager[None]:
    """Scope whose ops the NPU's compiler does not fuse."""
    return attributes(_disable_autofuse_scope=True)


def limit_core_num_scope(op_aicore_num: str = "0", op_vectorore_num: str = "0") -> ContextManager[None]:
    """Scope that limits the number of NPU cores of its ops; the second name is spelled as the vendor spells it.

    Raises:
        ConfigError: an argument is not a str with a whole number above 0.
    """
    for name, value in (("op_aicore_num", op_aicore_num), ("op_vectorore_num", op_vectorore_num)):
        if not isinstance(value, str) or not value.isdigit() or int(value) <= 0:
            raise ConfigError("limit_core_num_scope: %s must be a str with a number above 0, got %r" % (name, value))
    return attributes(_op_aicore_num=op_aicore_num, _op_vectorcore_num=op_vectorore_num)


@contextlib.contextmanager
def npu_recompute_scope() -> Iterator[None]:
    """Name scope "NpuRecompute": the NPU recomputes its activations in the backward pass; here they are kept."""
    with tf.name_scope("NpuRecompute"):
        yield


@contextlib.contextmanager
def npu_graph_slice_scope(slice_num: int | None = None) -> Iterator[None]:
    """Name scope "SliceNum-N-NpuGraphSlicingN": the NPU slices the batch into N parts; here it stays whole.

    Raises:
        ConfigError: slice_num is neither None nor an int above 0.
    """
    if slice_num is not None and (not isinstance(slice_num, int) or slice_num <= 0):
        raise ConfigError("npu_graph_slice_scope: slice_num must be an int above 0, got %r" % (slice_num,))
    with tf.name_scope("SliceNum-%s-NpuGraphSlicing%s" % (slice_num, slice_num)):
        yield


def keep_tensors_dtypes(graph: tf.Graph, input_tensors: Sequence[str]) -> None:
    """Marks the ops that produce the given tensors of a finished graph, so that they keep their dtype.

    Args:
        graph: tf.Graph.
        input_tensors: list or tuple of tensor names, such as "dense/MatMul:0".

    Raises:
        ConfigError: another type of argument.
        KeyError: the graph has no tensor of that name.
    """
    if not isinstance(graph, tf.Graph):
        raise ConfigError("keep_tensors_dtypes: graph must be a tf.Graph, got %s" % type(graph))
    if not isinstance(input_tensors, (list, tuple)):
        raise ConfigError("keep_tensors_dtypes: expected a list or tuple of tensor names, got %s" % type(input_tensors))
    for name in input_tensors:
        graph.get_tensor_by_name(name).op._set_attr(KEEP, tf.AttrValue(i=1))


def set_graph_exec_config(
    fetch: Any,
    dynamic_input: bool = False,
    dynamic_graph_execute_mode: str = "dynamic_execute",
    dynamic_inputs_shape_range: str | None = None,
    is_train_graph: bool = False,
) -> Any:
    """Marks the ops of `fetch` with how the NPU runs their graph, and returns it; here shapes may vary freely.

    Args:
        fetch: Operation, Tensor, tensor name, or a list or tuple of them.
        dynamic_input: bool.
        dynamic_graph_execute_mode: "lazy_recompile" or "dynamic_execute".
        dynamic_inputs_shape_range: str or None.
        is_train_graph: bool.

    Raises:
        ConfigError: another mode or type of fetch.
    """
    modes = ("lazy_recompile", "dynamic_execute")
    if dynamic_graph_execute_mode not in modes:
        words = (" or ".join(modes), dynamic_graph_execute_mode, nearest(dynamic_graph_execute_mode, modes))
        raise ConfigError("set_graph_exec_config: dynamic_graph_execute_mode must be %s, got %r%s" % words)
    marks = {
        "_graph_dynamic_input": dynamic_input,
        "_graph_dynamic_graph_execute_mode": dynamic_graph_execute_mode,
        "_graph_dynamic_inputs_shape_range": dynamic_inputs_shape_range or "",
        "_is_train_graph": is_train_graph,
    }
    if isinstance(fetch, (list, tuple)):
        for argument in fetch:
            set_graph_exec_config(
                argument, dynamic_input, dynamic_graph_execute_mode, dynamic_inputs_shape_range, is_train_graph
            )
        return fetch
    fetch = tf.get_default_graph().get_tensor_by_name(fetch) if isinstance(fetch, str) else fetch
    _mark(fetch, marks)
    return fetch


def set_op_tensor_max_range(tensor: tf.Tensor, max_shape: str) -> None:
    """Marks a tensor's op with its largest shape, a str."""
    _mark(tensor, {"_op_max_shape": max_shape})


def set_op_input_tensor_multi_dims(tensor: tf.Tensor, input_shape: str, input_dims: str) -> None:
    """Marks a tensor's op with the sets of input shapes, two str."""
    _mark(tensor, {"_subgraph_multi_dims_input_shape": input_shape, "_subgraph_multi_dims_input_dims": input_dims})


def _mark(fetch: Any, marks: Mapping[str, Any]) -> None:
    operation = getattr(fetch, "op", fetch)
    if not isinstance(operation, tf.Operation):
        raise ConfigError("expected an Operation, a Tensor, a tensor name or a list of them, got %r" % (fetch,))
    for name, value in marks.items():
        operation._set_attr(name, _attr_value(value))
