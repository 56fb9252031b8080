"""Initializers of tf.contrib.framework that take parts of a checkpoint by vocabularies (as of TensorFlow 1.15.5)."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf

from npu_shim.compat.names import names

REMAPPING = "tensorflow.python.training.checkpoint_ops._load_and_remap_matrix_initializer"


def load_linear_multiclass_bias_initializer(
    ckpt_path: str, bias_tensor_name: str, new_class_vocab_size: int, old_class_vocab_file: Any,
    new_class_vocab_file: Any, num_class_oov_buckets: int = 0, initializer: Any = None, max_rows_in_memory: int = -1,
) -> Any:  # fmt: skip
    """An initializer of biases [classes, 1]: each class has that of the checkpoint, new ones what `initializer` says.

    Args:
        ckpt_path: str.
        bias_tensor_name: str, in the checkpoint.
        new_class_vocab_size: int.
        old_class_vocab_file: path of the classes of the checkpoint, a line each.
        new_class_vocab_file: path of the classes of now.
        num_class_oov_buckets: int, rows behind those of the classes.
        initializer: of new classes, zeros by default.
        max_rows_in_memory: int, all rows by default.
    """
    return names.load(REMAPPING)(
        ckpt_path=ckpt_path, old_tensor_name=bias_tensor_name, new_row_vocab_size=new_class_vocab_size,
        new_col_vocab_size=1, old_row_vocab_file=old_class_vocab_file, new_row_vocab_file=new_class_vocab_file,
        num_row_oov_buckets=num_class_oov_buckets, initializer=initializer or tf.zeros_initializer(),
        max_rows_in_memory=max_rows_in_memory,
    )  # fmt: skip


def load_variable_slot_initializer(
    ckpt_path: str, old_tensor_name: str, primary_partition_info: Any, new_row_vocab_size: int,
    new_col_vocab_size: int, old_row_vocab_file: Any = None, new_row_vocab_file: Any = None,
    old_col_vocab_file: Any = None, new_col_vocab_file: Any = None, num_row_oov_buckets: int = 0,
    num_col_oov_buckets: int = 0, initializer: Any = None, max_rows_in_memory: int = -1,
) -> Any:  # fmt: skip
    """As load_and_remap_matrix_initializer, for a slot of the part of a variable that `primary_partition_info` says.

    Slots are made without their variable's partition: what the initializer is called with is left out.
    """
    remapped = names.load(REMAPPING)(
        ckpt_path=ckpt_path, old_tensor_name=old_tensor_name, new_row_vocab_size=new_row_vocab_size,
        new_col_vocab_size=new_col_vocab_size, old_row_vocab_file=old_row_vocab_file,
        new_row_vocab_file=new_row_vocab_file, old_col_vocab_file=old_col_vocab_file,
        new_col_vocab_file=new_col_vocab_file, num_row_oov_buckets=num_row_oov_buckets,
        num_col_oov_buckets=num_col_oov_buckets, initializer=initializer, max_rows_in_memory=max_rows_in_memory,
    )  # fmt: skip

    def slot(shape: Any, dtype: Any = tf.float32, partition_info: Any = None) -> tf.Tensor:
        """The rows of the slot."""
        del partition_info
        return remapped(shape, dtype, partition_info=primary_partition_info)

    return slot
