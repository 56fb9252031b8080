"""What dropout keeps: TensorFlow draws the bits that numpy draws, at the rate that is asked for."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from npu_shim.pjrt.attention import draws
from npu_shim.xla.passes.attention import draws as tf_draws


def drawn(seed, shape, rate):
    with tf.Graph().as_default(), tf.Session() as session:
        return session.run(tf_draws.kept(tf.constant(np.array(seed, np.int32)), shape, rate))


@pytest.mark.parametrize("seed", [(0, 0), (12345, 678), (-1, -(2**31)), (2**31 - 1, 5)])
@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (2, 3, 5, 7), (1, 2, 33, 130)])
def test_tensorflow_draws_what_numpy_draws(seed, shape):
    np.testing.assert_array_equal(drawn(seed, shape, 0.3), draws.kept(seed, shape, 0.3))


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.5, 0.9])
def test_the_rate_holds_over_a_million_draws(rate):
    kept = draws.kept((1, 2), (4, 4, 256, 256), rate)  # 1,048,576
    off = 6 * (rate * (1 - rate) / kept.size) ** 0.5 + 2.0**-17
    assert abs(kept.mean() - (1 - rate)) <= off
    for axis in range(4):  # no head, batch, query or key is treated otherwise
        others = tuple(number for number in range(4) if number != axis)
        parts = kept.mean(axis=others)
        assert abs(parts - (1 - rate)).max() <= off * parts.size**0.5


def test_draws_of_neighbours_seeds_and_steps_have_nothing_to_do_with_each_other():
    one = draws.kept((1, 2), (2, 2, 256, 256), 0.5)
    others = [draws.kept(seed, one.shape, 0.5) for seed in ((1, 3), (2, 2), (2, 1))]
    shifted = [np.roll(one, by, axis) for axis in range(4) for by in (1,)] + [np.roll(one, by, 3) for by in (2, 3, 4)]
    for other in others + shifted:
        assert abs((one == other).mean() - 0.5) <= 6 * 0.5 / one.size**0.5
