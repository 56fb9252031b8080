"""Names that the package keras had until 2.3 beside tf.keras: of its backend, and of modules that its layers import."""

from __future__ import annotations

import inspect
from typing import Any, Callable, Sequence

import tensorflow.compat.v1 as tf

from npu_shim.compat import callers
from npu_shim.rewriter.errors import closest

ORDERINGS = {"tf": "channels_last", "th": "channels_first"}  # Keras 1's names of layouts


def is_tensor(x: Any) -> bool:
    """Whether x is a tensor, sparse or not, or a variable."""
    return isinstance(x, (tf.Tensor, tf.SparseTensor, tf.Variable))


def is_variable(x: Any) -> bool:
    """Whether x is a variable."""
    return isinstance(x, tf.Variable)


def get_variable_shape(x: Any) -> Any:
    """The static shape of a tensor or variable, a tuple with None for open sizes."""
    return tf.keras.backend.int_shape(x)


def slice(x: Any, start: Any, size: Any) -> Any:
    """A part of a tensor; `start` and `size` have an entry for each dimension, -1 in `size` is all that is left."""
    return tf.slice(x, start, size)


def size(x: Any, name: str | None = None) -> Any:
    """The number of a tensor's elements, int32 []."""
    return tf.size(x, name)


def set_image_dim_ordering(dim_ordering: str) -> None:
    """Sets the layout of images by Keras 1's name; ValueError for one that is neither "tf" nor "th"."""
    if dim_ordering not in ORDERINGS:
        near = closest(dim_ordering, sorted(ORDERINGS)) or "tf"
        text = "keras.backend.set_image_dim_ordering takes 'tf' or 'th', not %r (did you mean %r?)"
        raise ValueError(callers.message(text % (dim_ordering, near)))
    tf.keras.backend.set_image_data_format(ORDERINGS[dim_ordering])


def image_dim_ordering() -> str:
    """The layout of images by Keras 1's name."""
    layout = tf.keras.backend.image_data_format()
    return next(name for name, value in ORDERINGS.items() if value == layout)


def has_arg(fn: Callable[..., Any], name: str, accept_all: bool = False) -> bool:
    """Whether a function takes an argument by name; with `accept_all` in its **kwargs, too."""
    parameters = inspect.signature(fn).parameters
    if name in parameters:
        return parameters[name].kind in (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return accept_all and any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values())


def to_list(x: Any, allow_tuple: bool = False) -> list[Any]:
    """A list as it is; of anything else a list of it, or of a tuple's elements with `allow_tuple`."""
    return x if isinstance(x, list) else list(x) if allow_tuple and isinstance(x, tuple) else [x]


def unpack_singleton(x: Any) -> Any:
    """The sole element of a list or tuple, or what is given."""
    return x[0] if isinstance(x, (list, tuple)) and len(x) == 1 else x


def is_all_none(x: Any) -> bool:
    """Whether all elements of a list or tuple are None, or x is."""
    return all(one is None for one in to_list(x, allow_tuple=True))


def object_list_uid(object_list: Any) -> str:
    """The ids of objects in a text."""
    return ", ".join(str(abs(id(one))) for one in to_list(object_list))


def transpose_shape(shape: Sequence[Any], target_format: str, spatial_axes: Sequence[int]) -> tuple[Any, ...]:
    """A shape with channels last in another layout.

    Args:
        shape: sizes, channels last.
        target_format: "channels_last" or "channels_first".
        spatial_axes: the axes of the image.

    Raises:
        ValueError: the layout is neither.
    """
    if target_format == "channels_last":
        return tuple(shape)
    if target_format != "channels_first":
        text = "transpose_shape takes 'channels_first' or 'channels_last', not %r"
        raise ValueError(callers.message(text % target_format))
    return (*shape[: spatial_axes[0]], shape[-1], *(shape[axis] for axis in spatial_axes))
