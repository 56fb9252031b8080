"""tf.contrib.learn.python.learn.learn_io: input functions of generators (as of TensorFlow 1.15.5)."""

from __future__ import annotations

import types
from typing import Any, Callable

import numpy as np
import tensorflow.compat.v1 as tf


def generator_input_fn(
    x: Any, target_key: Any = None, batch_size: int = 128, num_epochs: int | None = 1, shuffle: bool = True,
    queue_capacity: int = 1000, num_threads: int = 1, pad_value: Any = None,
) -> Callable[[], Any]:  # fmt: skip
    """An input function for an Estimator: batches of the dicts of arrays that a generator yields.

    Args:
        x: function without arguments that returns a generator of dicts, each a sample.
        target_key: name of the target, or list of names; None for no targets.
        batch_size: int.
        num_epochs: int, or None for no end.
        shuffle: bool.
        queue_capacity: int, samples among which is shuffled.
        num_threads: no effect here.
        pad_value: what arrays of other sizes are filled up with; None refuses them.

    Returns:
        function: () -> dict of tensors [batch, ...], or (that, the target or a dict of targets).

    Raises:
        TypeError: `x` is no function, `target_key` no name; when called, `x()` is no generator of dicts.
        KeyError: when called: a sample has no such target.
    """
    del num_threads
    if not callable(x):
        raise TypeError("x must be a function that returns a generator; got %s" % type(x).__name__)
    targets = [target_key] if isinstance(target_key, str) else target_key
    if targets is not None and not (isinstance(targets, list) and all(isinstance(key, str) for key in targets)):
        raise TypeError("target_key must be a str or a list of str; got %r" % (target_key,))

    def input_fn() -> Any:
        first = _first(x)
        missing = [key for key in targets or () if key not in first]
        if missing:
            raise KeyError("target_key not yielded by generator: %s" % ", ".join(missing))
        kinds = {key: np.asarray(value) for key, value in first.items()}
        shapes = {key: [None if pad_value is not None else n for n in value.shape] for key, value in kinds.items()}
        dtypes = {key: tf.as_dtype(value.dtype) for key, value in kinds.items()}
        samples = tf.data.Dataset.from_generator(x, dtypes, shapes)
        samples = samples.shuffle(queue_capacity) if shuffle else samples
        samples = samples.repeat(num_epochs)
        if pad_value is None:
            samples = samples.batch(batch_size)
        else:
            fill = {key: tf.cast(pad_value, dtype) for key, dtype in dtypes.items()}
            samples = samples.padded_batch(batch_size, shapes, fill)
        features = tf.data.make_one_shot_iterator(samples).get_next()
        if targets is None:
            return features
        taken = {key: features.pop(key) for key in targets}
        return features, taken if isinstance(target_key, list) else taken[target_key]

    return input_fn


def _first(x):
    generator = x()
    if not isinstance(generator, types.GeneratorType):
        raise TypeError("x() must be a generator; got %s" % type(generator).__name__)
    sample = next(generator)
    if not isinstance(sample, dict):
        raise TypeError("x() must yield dicts; got %s" % type(sample).__name__)
    return sample
