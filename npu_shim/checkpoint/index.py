"""Reads from the `.index` file of a V2 checkpoint how tensors are partitioned, which TensorFlow's reader does not tell.

Format: a LevelDB table without compression (TensorFlow 1.2 and later), name -> BundleEntryProto.
"""

from __future__ import annotations

import os
import struct
from typing import Any, Sequence

MAGIC = 0xDB4775248B80FB57
FOOTER = 48


def slices(prefix: str) -> dict[str, Any]:
    """Returns the parts in which partitioned tensors are stored.

    Args:
        prefix: str, of a V2 checkpoint; for any other the result is empty.

    Returns:
        dict of name to a list of (start, size): two lists of int, one number a dimension.
    """
    from tensorflow.core.protobuf import tensor_bundle_pb2

    slices = {}
    for key, value in _entries(prefix + ".index"):
        if key and not key.startswith(b"\0"):  # b"" is the header, b"\0..." a part under a key of its own
            entry = tensor_bundle_pb2.BundleEntryProto.FromString(value)
            if entry.slices:
                shape = [d.size for d in entry.shape.dim]
                slices[key.decode()] = [_bounds(part, shape) for part in entry.slices]
    return slices


def bounds(spec: str) -> tuple[list[int], list[int]]:
    """Returns (start, size) of a part that is written as TensorFlow does: 'SIZE SIZE START,LENGTH:START,LENGTH'.

    >>> bounds("5 2 2,2:-")
    ([2, 0], [2, 2])
    """
    *shape, extents = spec.split()
    pairs = zip(extents.split(":"), shape)
    starts, sizes = zip(*(map(int, ("0," + size if extent == "-" else extent).split(",")) for extent, size in pairs))
    return list(starts), list(sizes)


def spec(shape: Sequence[int], part: tuple[Sequence[int], Sequence[int]]) -> str:
    """Returns a part, (start, size), of a tensor of a shape, written as TensorFlow does; `bounds` reads it.

    >>> spec([5, 2], ([2, 0], [2, 2]))
    '5 2 2,2:0,2'
    """
    return " ".join(map(str, shape)) + " " + ":".join("%d,%d" % pair for pair in zip(*part))


def region(start: Sequence[int], size: Sequence[int]) -> tuple[slice, ...]:
    """Returns the slices of a part in the whole tensor."""
    return tuple(slice(first, first + count) for first, count in zip(start, size))


def _bounds(part, shape):
    pairs = list(zip(part.extent, shape))
    start = [extent.start for extent, _ in pairs]
    return start, [extent.length if extent.HasField("length") else size for extent, size in pairs]


def _entries(path):
    """Yields (key, value), both bytes, in the order of the file; nothing if it is not such a table."""
    if not os.path.exists(path):
        return
    with open(path, "rb") as file:
        table = file.read()
    if len(table) < FOOTER or struct.unpack("<Q", table[-8:])[0] != MAGIC:
        return
    _, at = _handle(table, len(table) - FOOTER)
    index, _ = _handle(table, at)
    for _, value in _block(table, *index):
        handle, _ = _handle(value, 0)
        yield from _block(table, *handle)


def _block(table, offset, size):
    """Yields the entries of one block: each key shares its beginning with the key before it."""
    if table[offset + size] != 0:
        raise OSError("npu_shim: the checkpoint's index is compressed, which TensorFlow does not write")
    block = table[offset:offset + size]
    end = size - 4 - 4 * struct.unpack("<I", block[-4:])[0]  # the restart points and their number come last
    key, at = b"", 0
    while at < end:
        shared, at = _varint(block, at)
        own, at = _varint(block, at)
        length, at = _varint(block, at)
        key = key[:shared] + block[at:at + own]
        yield key, block[at + own:at + own + length]
        at += own + length


def _handle(data, at):
    offset, at = _varint(data, at)
    size, at = _varint(data, at)
    return (offset, size), at


def _varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if data[at - 1] < 0x80:
            return value, at
