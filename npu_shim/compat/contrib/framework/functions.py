"""Functions of tf.contrib.framework that tf-slim lacks, or that have other arguments today (as TensorFlow 1.15.5)."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf

from npu_shim.compat.names import names


def assert_scalar_int(tensor: Any, name: str | None = None) -> tf.Tensor:
    """Returns the tensor; TypeError if it is not an integer, ValueError if it is not a scalar."""
    with tf.name_scope(name, "assert_scalar_int", [tensor]):
        tensor = tf.convert_to_tensor(tensor)
        if tensor.dtype.base_dtype not in (tf.int32, tf.int64):
            raise ValueError("Expected int32 or int64 type for tensor %s, got %s." % (tensor.name, tensor.dtype))
        return tf.debugging.assert_scalar(tensor)


def reduce_sum_n(tensors: Any, name: str | None = None) -> tf.Tensor:
    """The sum of all elements of several tensors, a scalar."""
    if not tensors:
        raise ValueError("No tensors provided.")
    with tf.name_scope(name, "reduce_sum_n", tensors):
        return tf.add_n([tf.reduce_sum(t) for t in tensors])


def with_shape(expected_shape: Any, tensor: Any) -> tf.Tensor:
    """The tensor, with a check of its shape: at once where both are known, else when it runs.

    Args:
        expected_shape: list of int, TensorShape, or int [rank].
        tensor: Tensor.

    Raises:
        ValueError: the shape is another, or `expected_shape` is no vector of integers.
        InvalidArgumentError: the shape is another, when it runs.
    """
    tensor = tf.convert_to_tensor(tensor)
    if isinstance(expected_shape, tf.TensorShape):
        return tf.ensure_shape(tensor, expected_shape)
    wanted = tf.convert_to_tensor(expected_shape)
    if not wanted.dtype.is_integer and wanted.shape.num_elements() != 0:
        raise ValueError("Invalid dtype %s of the expected shape %s." % (wanted.dtype, expected_shape))
    if wanted.shape.ndims not in (None, 1):
        raise ValueError("Invalid rank %s of the expected shape %s." % (wanted.shape.ndims, expected_shape))
    if not isinstance(expected_shape, tf.Tensor):
        known = [int(size) for size in expected_shape]
        if not tensor.shape.is_compatible_with(known):
            raise ValueError("Wrong shape for %s: expected %s, got %s." % (tensor.name, known, tensor.shape))
        return tensor if tensor.shape.is_fully_defined() else tf.ensure_shape(tensor, known)
    # shapes of different ranks cannot be compared by elements
    words = [tf.strings.reduce_join(tf.as_string(shape), separator=" ") for shape in (wanted, tf.shape(tensor))]
    problem = "Wrong shape for %s [expected] [actual]." % tensor.name
    check = tf.debugging.Assert(tf.equal(*words), [problem, wanted, tf.shape(tensor)])
    with tf.control_dependencies([check]):
        return tf.identity(tensor)


def with_same_shape(expected_tensor: Any, tensor: Any) -> tf.Tensor:
    """The tensor, with a check that its shape is that of another."""
    expected = expected_tensor.shape
    return with_shape(expected.as_list() if expected.is_fully_defined() else tf.shape(expected_tensor), tensor)


def remove_squeezable_dimensions(predictions: Any, labels: Any, name: str | None = None) -> tuple[tf.Tensor, tf.Tensor]:
    """The (predictions, labels), without the last dimension of 1 that one has more than the other."""
    of_today = names.load("tensorflow.python.ops.confusion_matrix.remove_squeezable_dimensions")
    labels, predictions = of_today(labels, predictions, name=name)  # takes and gives them in the other order
    return predictions, labels


def init_from_checkpoint(checkpoint_dir: str, assignment_map: Any) -> None:
    """Replaces variables' initial values by those of a checkpoint."""
    return tf.train.init_from_checkpoint(checkpoint_dir, assignment_map)


def list_variables(checkpoint_dir: str) -> list[tuple[str, list[int]]]:
    """(Name, shape) of a checkpoint's variables, sorted."""
    return tf.train.list_variables(checkpoint_dir)


def load_checkpoint(filepattern: str) -> Any:
    """The reader of a checkpoint."""
    return tf.train.load_checkpoint(filepattern)


def load_variable(checkpoint_dir: str, name: str) -> Any:
    """A variable's value in a checkpoint, np.ndarray."""
    return tf.train.load_variable(checkpoint_dir, name)


def assign_from_checkpoint(
    model_path: str, var_list: Any, ignore_missing_vars: bool = False
) -> tuple[tf.Operation, dict[Any, Any]]:
    """The op that gives variables the values of a checkpoint, and what to feed it: the values are no constants.

    Args:
        model_path: str.
        var_list: list of variables, or dict of name in the checkpoint -> variable, or list of the parts of one.
        ignore_missing_vars: whether what the checkpoint lacks is left out.

    Raises:
        ValueError: the checkpoint has no such name, or another shape.
    """
    reader = tf.train.NewCheckpointReader(model_path)
    if not isinstance(var_list, dict):
        parts: dict[str, list[Any]] = {}
        for var in var_list:
            info = var._get_save_slice_info()
            parts.setdefault(info.full_name if info else var.op.name, []).append(var)
        var_list = parts
    feeds, writes = {}, []
    for name, given in var_list.items():
        if not reader.has_tensor(name):
            if ignore_missing_vars:
                tf.logging.warning("Variable %s missing in checkpoint %s", name, model_path)
                continue
            raise ValueError("Checkpoint is missing variable [%s]" % name)
        whole = reader.get_tensor(name)
        for var in given if isinstance(given, (list, tuple)) else [given]:
            value = _part(whole, var)
            if list(value.shape) != var.shape.as_list():
                problem = "Total size of new array must be unchanged for %s lh_shape: [%s], rh_shape: [%s]"
                raise ValueError(problem % (name, value.shape, var.shape))
            fed = tf.placeholder(var.dtype.base_dtype, var.shape, var.op.name.replace(":", "_"))
            writes.append(tf.assign(var, fed).op)
            feeds[fed] = value
    return tf.group(*writes), feeds


def _part(whole, var):
    """What a part of a partitioned variable has of the whole."""
    info = var._get_save_slice_info()
    if info is None:
        return whole
    return whole[tuple(slice(start, start + size) for start, size in zip(info.var_offset, info.var_shape))]


def get_graph_from_inputs(op_input_list: Any, graph: Any = None) -> tf.Graph:
    """The graph of a list's first tensor or operation; the default graph for an empty list.

    Raises:
        ValueError: they are not all from one graph.
    """
    graphs = [x.graph for x in tf.nest.flatten(op_input_list) if hasattr(x, "graph")]
    for other in graphs:
        graph = graph or other
        if other is not graph:
            raise ValueError("Inputs must be from the same graph.")
    return graph or tf.get_default_graph()


def get_placeholders(graph: Any) -> list[tf.Tensor]:
    """The outputs of all Placeholder ops of a graph."""
    return [op.outputs[0] for op in graph.get_operations() if op.type == "Placeholder"]


def zero_initializer(ref: Any, use_locking: bool = True, name: str = "zero_initializer") -> Any:
    """Sets a variable without a value to zeros; returns it.

    Raises:
        InvalidArgumentError: when it runs: the variable has a value.
    """
    empty = tf.logical_not(tf.is_variable_initialized(ref))
    with tf.control_dependencies([tf.debugging.Assert(empty, ["input is already initialized"])]):
        zeros = tf.zeros(ref.shape, ref.dtype.base_dtype)
        return tf.assign(ref, zeros, use_locking=use_locking, name=name)


def print_op(
    input_: Any, data: Any = None, message: str | None = None, first_n: int | None = None, summarize: int = 20,
    print_tensor_name: bool = True, print_tensor_type: bool = True, print_shape: bool = True,
    summarize_indicator_vector: bool = True, name: str | None = None,
) -> Any:  # fmt: skip
    """The tensor, which is printed whenever it is computed.

    Args:
        input_: Tensor, SparseTensor or TensorArray.
        data: list of tensors to print, its own values if None.
        message: str, in front.
        first_n: int, how many times.
        summarize: int, how many elements.
        print_tensor_name: bool, with whether the type and the shape are printed.
        print_tensor_type: bool.
        print_shape: bool.
        summarize_indicator_vector: whether the place of the first True of booleans is printed.
        name: of the op.
    """
    if isinstance(input_, tf.SparseTensor):
        shown, told = input_.values, ["Sparse indices:", input_.indices]
        again = lambda t: tf.SparseTensor(tf.identity(input_.indices), t, input_.dense_shape)  # noqa: E731
    elif isinstance(input_, tf.TensorArray):
        shown, told = input_.flow, ["TensorArray of size", input_.size()]
        again = input_.from_flow if hasattr(input_, "from_flow") else lambda t: input_
    else:
        shown, told = tf.convert_to_tensor(input_), []
        again = lambda t: t  # noqa: E731
    parts = [message or ""]
    parts += ["Name:", shown.name] if print_tensor_name else []
    parts += ["Type:", shown.dtype.name] if print_tensor_type else []
    parts += ["Shape:", tf.shape(shown)] if print_shape else []
    if summarize_indicator_vector and shown.dtype == tf.bool and shown.shape.ndims == 1:
        parts += ["First True at:", tf.argmax(tf.cast(shown, tf.int32), 0)]
    values = list(data) if data is not None else [*told, "Values:", shown]
    return again(tf.Print(shown, [*parts, *values], first_n=first_n, summarize=summarize, name=name))


def py_func(
    func: Any,
    args: Any = (),
    kwargs: Any = None,
    output_types: Any = None,
    output_shapes: Any = None,
    stateful: bool = True,
    name: str | None = None,
) -> Any:
    """tf.py_func with keyword arguments, nested results, and static shapes.

    Args:
        func: a function of numpy arrays.
        args: tuple of tensors, its positional arguments.
        kwargs: dict of tensors, its keyword arguments.
        output_types: (nested) dtypes of what it returns.
        output_shapes: (nested) shapes.
        stateful: bool.
        name: of the op.

    Returns:
        (Nested) tensors.
    """
    types = tf.nest.flatten(output_types)
    given = (tuple(args), kwargs or {})

    def run(*flat):
        positional, named = tf.nest.pack_sequence_as(given, flat)
        return tf.nest.flatten(func(*positional, **named))

    outputs = tf.py_func(run, tf.nest.flatten(given), types, stateful, name)
    outputs = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
    if output_shapes is not None:
        for output, shape in zip(outputs, shapes_like(output_types, output_shapes)):
            output.set_shape(shape)
    return tf.nest.pack_sequence_as(output_types, outputs)


def shapes_like(types: Any, shapes: Any) -> list[Any]:
    """Returns the list of shapes in the order of nested `types`; a shape itself may be a list."""
    if isinstance(types, dict):
        return [s for key in sorted(types) for s in shapes_like(types[key], shapes[key])]
    if isinstance(types, (list, tuple)):
        return [s for t, shape in zip(types, shapes) for s in shapes_like(t, shape)]
    return [shapes]
