"""Functions of tf.contrib.lookup that combine a table with a lookup."""

import tensorflow.compat.v1 as tf

from npu_shim.compat import names


def string_to_index_table_from_tensor(mapping, num_oov_buckets=0, default_value=-1, hasher_spec=None, name=None):
    """A table from the strings of a tensor to their positions."""
    keys = tf.convert_to_tensor(mapping)
    size = tf.shape(keys, out_type=tf.int64)[0]
    start = tf.lookup.KeyValueTensorInitializer(keys, tf.range(size))
    return _with_buckets(tf.lookup.StaticHashTable(start, default_value, name=name), num_oov_buckets)


def string_to_index_table_from_file(
    vocabulary_file=None, num_oov_buckets=0, vocab_size=None, default_value=-1, hasher_spec=None, name=None
):
    """A table from the lines of a file to their numbers."""
    if not vocabulary_file:
        raise ValueError("vocabulary_file must be specified.")
    index = tf.lookup.TextFileIndex
    start = tf.lookup.TextFileInitializer(
        vocabulary_file, tf.string, index.WHOLE_LINE, tf.int64, index.LINE_NUMBER, vocab_size
    )
    return _with_buckets(tf.lookup.StaticHashTable(start, default_value, name=name), num_oov_buckets)


def _with_buckets(table, count):
    if not count:
        return table
    return names.load("tensorflow.python.ops.lookup_ops.IdTableWithHashBuckets")(table, num_oov_buckets=count)


def string_to_index(tensor, mapping, default_value=-1, name=None):
    """The positions of strings in `mapping`."""
    return string_to_index_table_from_tensor(mapping, default_value=default_value).lookup(tensor)


def index_to_string(tensor, mapping, default_value="UNK", name=None):
    """The strings of `mapping` at positions."""
    values = tf.convert_to_tensor(mapping)
    size = tf.shape(values, out_type=tf.int64)[0]
    start = tf.lookup.KeyValueTensorInitializer(tf.range(size), values)
    return tf.lookup.StaticHashTable(start, default_value).lookup(tf.cast(tensor, tf.int64))
