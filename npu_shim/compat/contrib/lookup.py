"""tf.contrib.lookup, where its arguments are others than those of today's tables (behaviour of TensorFlow 1.15.5)."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf

from npu_shim.compat.names import names

_tables = names.load("tensorflow.python.ops.lookup_ops")


class HashTable(_tables.StaticHashTableV1):
    """A table that an initializer fills, unknown keys get a default value.

    Args:
        initializer: what fills it, a KeyValueTensorInitializer or TextFileInitializer.
        default_value: of unknown keys.
        shared_name: tables of one shared name are one table in all sessions of a server.
        name: of the op.
    """

    def __init__(self, initializer: Any, default_value: Any, shared_name: Any = None, name: str | None = None) -> None:
        self._given_name = shared_name
        super().__init__(initializer, default_value, name)

    def _create_resource(self):
        if self._given_name:
            self._shared_name = self._given_name
        return super()._create_resource()

    @property
    def init(self) -> Any:
        """The op that fills the table; as `initializer`."""
        return self.initializer


def index_table_from_tensor(
    mapping: Any,
    num_oov_buckets: int = 0,
    default_value: Any = -1,
    hasher_spec: Any = None,
    dtype: Any = tf.string,
    name: str | None = None,
) -> Any:
    """A table from the elements of a tensor to their positions."""
    spec = hasher_spec or _tables.FastHashSpec
    return _tables.index_table_from_tensor(mapping, num_oov_buckets, default_value, spec, dtype, name)


def index_to_string_table_from_tensor(mapping: Any, default_value: str = "UNK", name: str | None = None) -> Any:
    """A table from positions to the strings of a tensor."""
    return _tables.index_to_string_table_from_tensor(mapping, default_value, name)


def string_to_index_table_from_tensor(
    mapping: Any, num_oov_buckets: int = 0, default_value: Any = -1, hasher_spec: Any = None, name: str | None = None
) -> Any:
    """A table from the strings of a tensor to their positions; ValueError for another dtype."""
    keys = tf.convert_to_tensor(mapping)
    if keys.dtype.base_dtype != tf.string:
        raise ValueError("string_to_index_table_from_tensor requires string.")
    return index_table_from_tensor(keys, num_oov_buckets, default_value, hasher_spec, name=name)


def string_to_index_table_from_file(
    vocabulary_file: str | None = None,
    num_oov_buckets: int = 0,
    vocab_size: int | None = None,
    default_value: Any = -1,
    hasher_spec: Any = None,
    name: str | None = None,
) -> Any:
    """A table from the lines of a file to their numbers."""
    spec = hasher_spec or _tables.FastHashSpec
    return _tables.index_table_from_file(
        vocabulary_file, num_oov_buckets, vocab_size, default_value, spec, tf.string, name
    )


def string_to_index(tensor: Any, mapping: Any, default_value: Any = -1, name: str | None = None) -> tf.Tensor:
    """The positions of strings in `mapping`."""
    return index_table_from_tensor(mapping, default_value=default_value, name=name).lookup(tensor)


def index_to_string(tensor: Any, mapping: Any, default_value: str = "UNK", name: str | None = None) -> tf.Tensor:
    """The strings of `mapping` at positions."""
    return index_to_string_table_from_tensor(mapping, default_value, name).lookup(tensor)
