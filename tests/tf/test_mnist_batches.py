"""The order of MNIST's batches for a seed: on TensorFlow 1 that of its own data set, which ours has to follow."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf


def data_set(seed=None, count=20):
    if tf.__version__.startswith("1."):
        from tensorflow.contrib.learn.python.learn.datasets.mnist import DataSet
    else:
        from npu_shim.compat.modules.mnist import DataSet
    images = np.arange(count, dtype=np.uint8).reshape(count, 1, 1, 1)
    return DataSet(images, np.arange(count), seed=seed, dtype=tf.uint8)


def orders(generator, epochs=2, count=20):
    """The numbers of the examples in the order in which they come."""
    images, orders = np.arange(count), []
    for _ in range(epochs):
        order = np.arange(count)
        generator.shuffle(order)
        images = images[order]
        orders += images.tolist()
    return orders


def labels(data, batches=5, size=8):
    return [label for _ in range(batches) for label in data.next_batch(size)[1].tolist()]


@pytest.mark.parametrize("how", ["own seed", "graph's seed", "seeded later"])
def test_batches_come_in_the_order_of_the_seed_that_the_script_has_set(how):
    with tf.Graph().as_default():
        if how == "graph's seed":
            tf.set_random_seed(11)
        data = data_set(11 if how == "own seed" else None)
        if how == "seeded later":
            np.random.seed(11)
        assert labels(data) == orders(np.random.RandomState(11))


def test_without_any_seed_they_come_in_another_order_each_time():
    with tf.Graph().as_default():
        np.random.seed(11)
        assert labels(data_set(count=200), 1, 200) != orders(np.random.RandomState(11), 1, 200)
