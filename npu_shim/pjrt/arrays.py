"""Arrays by name in an .npz file: the same values give the same bytes, and the file appears whole or not at all.

Arrays of dtypes that numpy lacks (bfloat16) are stored as their bits, under the name followed by a bar and the dtype.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import json
import os
import zipfile
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Callable, Iterable, Mapping

import numpy as np

from npu_shim.pjrt import atomic_write
from npu_shim.rewriter.errors import ConfigError

NARROW = ("float16", "bfloat16")
BITS = {"bfloat16": np.dtype(np.uint16)}
SLICES = "npu_shim/slices"  # the member that names the parts of partitioned variables, see `Manifest.slices`
CORES, PART = 8, 1 << 21  # of a copy: how many at most, and bytes for each of them at least
ALIGNMENT = 64  # bytes: what XLA takes from memory without a copy starts at a multiple
EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest date of a zip file: the files hold no real time


def as_dtype(what: str, value: Any, dtype: Any) -> Any:
    """Converts an array_like to `dtype`: floating-point values may lose precision, integers must fit.

    Args:
        what: names the value in errors: "feed 'x:0'".
        value: array_like; an array stays one of its library (numpy's, JAX's).
        dtype: numpy dtype.

    Raises:
        ConfigError: the value is of another kind, or has an integer that the dtype cannot hold.
    """
    typed = hasattr(value, "dtype") and isinstance(value.dtype, np.dtype)
    array = value if typed else np.asarray(value)
    if array.dtype == dtype:
        return array
    whole = dtype.kind in "iu" and array.dtype.kind in ("iu" if typed else "iufb")
    if not whole and not np.can_cast(array.dtype, dtype, "same_kind"):
        raise ConfigError("%s is %s, expected %s" % (what, array.dtype, dtype.name))
    converted = array.astype(dtype)
    if whole and not (converted == array).all():
        wrong = np.asarray(array)[np.asarray(converted != array)]
        raise ConfigError("%s has %s, which %s cannot hold" % (what, wrong.flat[0], dtype.name))
    return converted


def copied(what: str, value: Any) -> Any:
    """Returns a new array of an array_like. Raises ConfigError, which names `what`, for rows of several lengths."""
    try:
        return np.array(value)
    except ValueError as reason:
        raise ConfigError("%s is not an array: %s" % (what, reason)) from reason


class Uncast:
    """An array that is cast on its way to its place, by `copy`; np.asarray makes the array that it stands for.

    Args:
        value: np.ndarray of numbers.
        dtype: numpy dtype, of numbers too, that it is cast to.
    """

    def __init__(self, value: Any, dtype: Any) -> None:
        self.value, self.dtype = value, np.dtype(dtype)
        self.shape, self.ndim, self.size = value.shape, value.ndim, value.size
        self.nbytes = value.size * self.dtype.itemsize

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        with np.errstate(over="ignore"):
            return self.value.astype(self.dtype).astype(dtype or self.dtype, copy=False)


def copy(value: Any, place: Any, casting: Any = "equiv") -> None:
    """Copies an array to a place of its shape, a large one by several cores; what a dtype cannot hold is infinite.

    Args:
        value: np.ndarray, or Uncast.
        place: np.ndarray.
        casting: as of np.copyto.

    Raises:
        TypeError: the dtype of `place` is another one than `casting` allows.
    """
    through = value.dtype
    value = value.value if isinstance(value, Uncast) else value
    if place.flags.c_contiguous and value.flags.c_contiguous:  # a single row is divided as well
        value, place = value.reshape(-1), place.reshape(-1)
    count = place.nbytes // PART if place.ndim else 0
    rows = -(-len(place) // count) if count > 1 else 0  # of a part
    parts = iter(range(0, len(place), rows)) if rows else iter(())  # each is taken by one thread

    def work() -> None:
        for first in parts:
            _copy_part(value[first : first + rows], place[first : first + rows], through, casting)

    if not rows:
        _copy_part(value, place, through, casting)
        return
    helping = _helping(work, min(os.cpu_count() or 1, CORES, count) - 1)
    work()
    for helper in helping:
        if not helper.cancel():  # one that has not begun has nothing left to do: cores may be busy with other things
            helper.result()


def _copy_part(value: Any, place: Any, through: Any, casting: Any) -> None:
    """Copies an array that is cast to the dtype `through` first."""
    with np.errstate(over="ignore"):
        if value.dtype != through and place.dtype == through:
            np.copyto(place, value, "unsafe")
        else:
            np.copyto(place, value.astype(through, copy=False), casting)


def _helping(work: Callable[[], None], count: int) -> list[Future[None]]:
    """Has so many other threads do some work at once, fewer where there are no more."""
    helping: list[Future[None]] = []
    with contextlib.suppress(RuntimeError):  # the interpreter ends, or the process may have no more threads
        helping.extend(_helpers().submit(work) for _ in range(count))
    return helping


@functools.lru_cache(maxsize=None)
def _helpers() -> ThreadPoolExecutor:
    """Threads that are kept: starting one can take as long as its part of a copy. In a forked process none begins."""
    return ThreadPoolExecutor(CORES - 1, "npu_shim_copy")


def write(path: str, values: Iterable[tuple[str, Any]]) -> None:
    """Writes arrays, one in memory at a time.

    Args:
        path: of the file, replaced if it exists.
        values: iterable of (name, array).

    Raises:
        ConfigError: it cannot be written; no partial file stays.
    """
    with atomic_write.file(path) as f, zipfile.ZipFile(f, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for name, value in values:
            value = np.asarray(value)
            if value.dtype.name in BITS:
                name, value = "%s|%s" % (name, value.dtype.name), value.view(BITS[value.dtype.name])
            with archive.open(zipfile.ZipInfo(name + ".npy", EPOCH), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, value, allow_pickle=False)


def slices_member(slices: Mapping[str, Any] | None) -> list[tuple[str, Any]]:
    """Returns what `write` takes besides variables: [(SLICES, array)], or nothing without partitioned variables."""
    return [(SLICES, np.array(json.dumps(slices, sort_keys=True)))] if slices else []


def read(path: str) -> dict[str, Any]:
    """Returns dict of name to array. Raises ConfigError when the file cannot be read."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            return dict(_named(key, archive[key]) for key in archive.files)
    except (OSError, ValueError, zipfile.BadZipFile, AttributeError, TypeError) as reason:
        raise ConfigError("'%s' has no arrays that can be read (%s)" % (path, reason)) from reason


def _named(key: str, value: Any) -> tuple[str, Any]:
    name, _, dtype = key.rpartition("|")
    return (name, value.view(dtype_of(dtype))) if dtype in BITS else (key, value)


def laid_out(buffer: Any, tensors: Iterable[Any], start: int = 0) -> dict[str, Any]:
    """Returns arrays in memory that exists, one after the other, at multiples of ALIGNMENT from its beginning.

    Args:
        buffer: the memory, at least `start` + `size_of(tensors)` bytes.
        tensors: objects with a name, a dtype (its name) and a shape.
        start: bytes in front of the first array.

    Returns:
        dict of name to np.ndarray.
    """
    arrays = {}
    for tensor in tensors:
        shape, dtype, size = tuple(tensor.shape), dtype_of(tensor.dtype), size_of([tensor])
        # an array without elements may lie behind the end of the memory
        arrays[tensor.name] = np.ndarray(shape, dtype, buffer, start) if size else np.zeros(shape, dtype)
        start += size
    return arrays


def size_of(tensors: Iterable[Any]) -> int:
    """Returns how many bytes `laid_out` needs for tensors."""
    sizes = (int(np.prod(tensor.shape, dtype=np.int64)) * int(dtype_of(tensor.dtype).itemsize) for tensor in tensors)
    return sum(-(-size // ALIGNMENT) * ALIGNMENT for size in sizes)


def narrow() -> list[str]:
    """Names of the floating-point dtypes of 16 bits that arrays have here."""
    return [name for name in NARROW if name not in BITS or importlib.util.find_spec("ml_dtypes")]


def dtype_of(name: str) -> Any:
    """Returns the numpy dtype of that name; bfloat16 needs ml_dtypes, which comes with TensorFlow 2 and with JAX."""
    if name in BITS:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, name))
    return np.dtype(name)
