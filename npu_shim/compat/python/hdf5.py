"""h5py as scripts know it, of version 2: the mode of a file, a dataset's value, and texts, which version 3 changed.

    h5py.File(name)              opened to read and write, made where it is not there; since 3.0 opened to read
    dataset.value                all of a dataset; use dataset[()]
    attrs["keras_version"]       bytes, if the file says ASCII; since 3.0 a str
    attrs["names"] = [b"a"]      an array of bytes of one length; since 3.0 of any length, which reads as str
    dataset[0]                   a str, if the file says UTF-8; since 3.0 bytes

A text that has changed is a str that decodes to itself here, so that the code of either time can read it.
"""

from __future__ import annotations

import inspect
import os
from typing import Any, Callable


class Text(str):
    """A str that is also used as the bytes of its UTF-8 form."""

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """The str itself: it has been decoded."""
        return str(self)

    def __eq__(self, other: object) -> bool:
        return str(self) == (other.decode("utf-8", "replace") if isinstance(other, bytes) else other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__


def appends(init: Callable[..., Any], say: Callable[[str], None]) -> Callable[..., Any]:
    """File.__init__ without a mode: reads and writes, or makes the file, as until h5py 3.0."""
    if inspect.signature(init).parameters["mode"].default is None:  # h5py 2
        return init

    def opened(self: Any, name: Any, *args: Any, **kwargs: Any) -> None:
        is_named = isinstance(name, (str, bytes, os.PathLike))  # not what a file in memory is opened by
        if args or kwargs.get("mode") is not None or not is_named:
            init(self, name, *args, **kwargs)
            return
        say("h5py.File without a mode, which is 'r' since h5py 3.0, opens a file to append here")
        init(self, name, **{**kwargs, "mode": _mode(name)})

    return opened


def _mode(name: Any) -> str:
    if not os.path.exists(name):
        return "w-"
    return "r+" if os.access(name, os.W_OK) else "r"


def keeps_lengths(array: Callable[..., Any], say: Callable[[str], None]) -> Callable[..., Any]:
    """array_for_new_object, where lists of bytes are NumPy's array of them, as until h5py 3.0."""
    import numpy as np

    def array_for_new_object(data: Any, specified_dtype: Any = None) -> Any:
        if isinstance(data, (list, tuple)) and data and specified_dtype is None:
            given = np.asarray(data, order="C") if isinstance(data[0], (bytes, list, tuple)) else None
            if given is not None and given.dtype.kind == "S":
                return given
        return array(data, specified_dtype)

    return array_for_new_object


def whole(dataset: Any) -> Any:
    """All of a dataset: an array, or a scalar."""
    return dataset[()]


def decodes_attributes(getitem: Callable[..., Any], say: Callable[[str], None]) -> Callable[..., Any]:
    """AttributeManager.__getitem__, where what the file calls ASCII was bytes until h5py 3.0."""
    import h5py

    def read(self: Any, name: Any) -> Any:
        value = getitem(self, name)
        if isinstance(value, str) or _has_objects(value):
            return _as_texts(value, str, h5py.check_string_dtype(self.get_id(name).dtype), "ascii")
        return value

    return read


def decodes_datasets(getitem: Callable[..., Any], say: Callable[[str], None]) -> Callable[..., Any]:
    """Dataset.__getitem__, where what the file calls UTF-8 was str until h5py 3.0."""
    import h5py

    def read(self: Any, *args: Any, **kwargs: Any) -> Any:
        value = getitem(self, *args, **kwargs)
        if isinstance(value, bytes) or _has_objects(value):
            return _as_texts(value, bytes, h5py.check_string_dtype(self.dtype), "utf-8")
        return value

    return read


def _has_objects(value: Any) -> bool:
    return bool(getattr(getattr(value, "dtype", None), "hasobject", False))


def _as_texts(value: Any, kind: type, described: Any, encoding: str) -> Any:
    """The values of a kind as Text, where the file says that they are of any length and in this encoding."""
    if described is None or described.length is not None or described.encoding != encoding:
        return value
    if isinstance(value, kind):
        return _text(value)
    flat = value.reshape(-1)
    for place, one in enumerate(flat):
        flat[place] = _text(one) if isinstance(one, kind) else one
    return flat.reshape(value.shape)


def _text(value: Any) -> Text:
    return Text(value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value)
