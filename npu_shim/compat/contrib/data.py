"""Functions of tf.contrib.data without a counterpart in tf.data."""

from __future__ import annotations

from typing import Any, Callable

import tensorflow.compat.v1 as tf

from npu_shim.compat.contrib.framework.functions import shapes_like


def batch_and_drop_remainder(batch_size: Any) -> Callable[[Any], Any]:
    """A transformation: Dataset.batch without the last, smaller batch."""
    return lambda dataset: dataset.batch(batch_size, drop_remainder=True)


def padded_batch_and_drop_remainder(
    batch_size: Any, padded_shapes: Any, padding_values: Any = None
) -> Callable[[Any], Any]:
    """A transformation: Dataset.padded_batch without the last, smaller batch."""
    return lambda dataset: dataset.padded_batch(batch_size, padded_shapes, padding_values, drop_remainder=True)


def sloppy_interleave(map_func: Any, cycle_length: int, block_length: int = 1) -> Callable[[Any], Any]:
    """A transformation: tf.data.experimental.parallel_interleave, in any order."""
    return tf.data.experimental.parallel_interleave(map_func, cycle_length, block_length, sloppy=True)


def sliding_window_batch(
    window_size: int, stride: int | None = None, window_shift: int | None = None, window_stride: int = 1
) -> Callable[[Any], Any]:
    """A transformation: windows over the dataset as batches.

    Args:
        window_size: int, elements in a window.
        stride: int, an older name of `window_shift`.
        window_shift: int, from one window to the next; 1 by default.
        window_stride: int, from one element of a window to the next.
    """
    shift = window_shift if window_shift is not None else (stride if stride is not None else 1)

    def windows(dataset):
        # by hand, so that elements may be structures
        def as_batch(*window):
            parts = window[0] if len(window) == 1 else window
            return (
                tf.data.Dataset.zip(parts).batch(window_size) if tf.nest.is_nested(parts) else parts.batch(window_size)
            )

        return dataset.window(window_size, shift, window_stride, drop_remainder=True).flat_map(as_batch)

    return windows


def assert_element_shape(expected_shapes: Any) -> Callable[[Any], Any]:
    """A transformation: checks the elements' (nested) shapes and makes them static."""

    def checked(dataset):
        def check(*elements):
            element = elements[0] if len(elements) == 1 else elements
            checked = map(tf.ensure_shape, tf.nest.flatten(element), shapes_like(element, expected_shapes))
            return tf.nest.pack_sequence_as(element, list(checked))

        return dataset.map(check)

    return checked


def reduce_dataset(dataset: Any, reducer: Any) -> Any:
    """Reduces a whole dataset by a tf.data.experimental.Reducer."""
    state = dataset.reduce(reducer.init_func(tf.constant(0, tf.int64)), reducer.reduce_func)
    return reducer.finalize_func(state)


def read_batch_features(
    file_pattern: Any,
    batch_size: Any,
    features: Any,
    reader: Any = tf.data.TFRecordDataset,
    reader_args: Any = None,
    randomize_input: bool = True,
    num_epochs: int | None = None,
    capacity: int = 10000,
) -> Any:  # fmt: skip
    """Batches of parsed tf.train.Examples as a dict; see tf.data.experimental.make_batched_features_dataset."""
    dataset = tf.data.experimental.make_batched_features_dataset(
        file_pattern, batch_size, features, reader=reader, reader_args=reader_args, num_epochs=num_epochs,
        shuffle=randomize_input, shuffle_buffer_size=capacity,
    )  # fmt: skip
    return tf.data.make_one_shot_iterator(dataset).get_next()
