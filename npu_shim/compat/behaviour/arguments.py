"""Lets functions take their arguments in the places, and by the names, that they had in TensorFlow 1.15.

A row is a function, or a class, and its 1.15 parameters in their order; `old=new` is one that has another name today.
`scripts/compare_versions` lists where parameters stand elsewhere; what nobody gives by place is in its kept.json.
"""

from __future__ import annotations

import functools
from typing import Any, Callable, Mapping

_MATMUL = "a b transpose_a transpose_b adjoint_a adjoint_b a_is_sparse b_is_sparse name"
_TOP_K = "input k sorted name"
_REGULARIZED = "kernel_regularizer bias_regularizer activity_regularizer kernel_constraint bias_constraint"
_INITIALIZED = "activation use_bias kernel_initializer bias_initializer " + _REGULARIZED
_CONV = "filters kernel_size strides padding data_format dilation_rate " + _INITIALIZED

TENSORFLOW: Mapping[str, str] = {
    **dict.fromkeys(("matmul", "linalg.matmul"), _MATMUL),
    **dict.fromkeys(("nn.top_k", "math.top_k"), _TOP_K),
    "numpy_function": "func inp Tout name",
    "scatter_nd": "indices updates shape name",
    "image.adjust_jpeg_quality": "image jpeg_quality name",
    **dict.fromkeys(("tensor_scatter_add", "tensor_scatter_nd_add"), "tensor indices updates name"),
    **dict.fromkeys(("tensor_scatter_sub", "tensor_scatter_nd_sub"), "tensor indices updates name"),
    "config.experimental.set_virtual_device_configuration": "device virtual_devices=logical_devices",
}
LAYERS: Mapping[str, str] = {
    **dict.fromkeys(("Conv1D", "Convolution1D", "Conv2D", "Convolution2D", "Conv3D", "Convolution3D"), _CONV),
    "Conv3DTranspose": "filters kernel_size strides padding output_padding data_format " + _INITIALIZED,
}
LOSSES: Mapping[str, str] = {
    **dict.fromkeys(("BinaryCrossentropy", "CategoricalCrossentropy"), "from_logits label_smoothing reduction name"),
    "SparseCategoricalCrossentropy": "from_logits reduction name",
}
TEXT: Mapping[str, str] = {
    "one_hot": "text=input_text n filters lower split",
    "text_to_word_sequence": "text=input_text filters lower split",
}


# functions, and their arguments that 1.15 took as any kind of number: NumPy's, a Dimension
NUMBERS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("argmax", "argmin", "math.argmax", "math.argmin"), ("axis", "dimension")),
    "data.Dataset.prefetch": ("buffer_size",),
}


def install_shapes(module: Any) -> None:
    """Lets tf.nn.atrous_conv2d_transpose take a tuple of tensors as its output's shape, as 1.15 did."""
    original = module.nn.atrous_conv2d_transpose

    @functools.wraps(original)
    def atrous_conv2d_transpose(value: Any, filters: Any, output_shape: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(output_shape, tuple) and any(map(module.is_tensor, output_shape)):
            output_shape = module.stack(list(output_shape))
        return original(value, filters, output_shape, *args, **kwargs)

    module.nn.atrous_conv2d_transpose = atrous_conv2d_transpose


def install_numbers(module: Any, whole: Callable[[Any], int]) -> None:
    """Wraps the functions of NUMBERS; `whole` makes an int of what is not one, and no tensor."""
    for path, names in NUMBERS.items():
        above, _, name = path.rpartition(".")
        owner = functools.reduce(getattr, above.split("."), module) if above else module
        setattr(owner, name, counted(getattr(owner, name), names, whole))


def counted(function: Callable[..., Any], names: tuple[str, ...], whole: Callable[[Any], int]) -> Callable[..., Any]:
    """A function whose second argument, or one of the names, may be any kind of number."""

    def plain(value: Any) -> Any:
        number = value is not None and not isinstance(value, int) and not hasattr(value, "op")
        return whole(value) if number else value

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        kwargs = {name: plain(value) if name in names else value for name, value in kwargs.items()}
        return function(*args[:1], *map(plain, args[1:2]), *args[2:], **kwargs)

    return call


def install(module: Any, rows: Mapping[str, str]) -> None:
    """Wraps the functions of a module, and the constructors of its classes, that a table names."""
    done = set()
    for path, parameters in rows.items():
        above, _, name = path.rpartition(".")
        owner = functools.reduce(getattr, above.split("."), module) if above else module
        value = getattr(owner, name, None)
        if value is None or id(value) in done:
            continue
        if isinstance(value, type):
            done.add(id(value))
            value.__init__ = placed(value.__init__, "self " + parameters)  # type: ignore[misc]
        else:
            setattr(owner, name, placed(value, parameters))


def placed(function: Callable[..., Any], parameters: str) -> Callable[..., Any]:
    """A function that gives every argument after the first by its name of today.

    Args:
        function: the function.
        parameters: str, its parameters of 1.15 in their order, separated by spaces; `old=new` for another name.
    """
    pairs = [word.partition("=") for word in parameters.split()]
    today = [new or old for old, _, new in pairs]
    renamed = {old: new for old, _, new in pairs if new}

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if len(args) > len(today):
            return function(*args, **kwargs)  # it says how many it takes
        kwargs = {renamed.get(name, name): value for name, value in kwargs.items()}
        twice = [name for name in today[1 : len(args)] if name in kwargs]
        if twice:
            raise TypeError("%s() got multiple values for argument '%s'" % (function.__name__, twice[0]))
        return function(*args[:1], **dict(zip(today[1:], args[1:])), **kwargs)

    if renamed:
        del vars(call)["__wrapped__"]  # its signature would refuse the old name
    return call
