"""Average pools of an interpreted step: how many elements each window has is known, whatever its padding. Needs JAX."""

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="JAX is not installed (extra [pjrt])")

from npu_shim.step.rules import convolutions  # noqa: E402

WINDOWS = [  # size, stride and padding of both sides of an image
    ((2, 2), (2, 2), "SAME"),
    ((3, 2), (1, 2), "SAME"),
    ((3, 3), (2, 1), "VALID"),
    ((1, 4), (3, 3), "SAME"),
]


def attributes(size, stride, padding):
    return {"ksize": [1, *size, 1], "strides": [1, *stride, 1], "padding": padding}


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("shape", [(2, 5, 6, 3), (1, 4, 4, 1), (0, 7, 5, 2)])
def test_the_elements_of_each_window_are_those_of_a_sum_over_ones(window, shape):
    attrs = attributes(*window)
    ones = jax.lax.reduce_window(
        np.ones(shape, np.float32), np.float32(0), jax.lax.add, attrs["ksize"], attrs["strides"], attrs["padding"]
    )
    counted = convolutions._in_windows(attrs, shape, np.float32)
    assert isinstance(counted, np.ndarray)
    assert counted.dtype == np.float32
    np.testing.assert_array_equal(np.broadcast_to(counted, ones.shape), ones)


@pytest.mark.parametrize("window", WINDOWS)
def test_a_program_sums_windows_of_images_alone(window):
    attrs, image = attributes(*window), np.ones((2, 5, 6, 3), np.float32)
    pool = lambda x: convolutions.average_pool(attrs, x)  # noqa: E731
    gradient = lambda g: convolutions.average_pool_grad(attrs, np.array(image.shape), g)  # noqa: E731
    assert str(jax.make_jaxpr(pool)(image)).count("reduce_window_sum[") == 1
    assert str(jax.make_jaxpr(gradient)(np.asarray(pool(image)))).count("reduce_window_sum[") == 1
