"""Convolutions for which XLA has no fast way on CPUs: by channel, of volumes, and with kernels larger than the image.

These stand behind the last pools of a VGG, and in front of a DCGAN.
"""

import re

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

jax = pytest.importorskip("jax", reason="JAX is not installed (extra [pjrt])")
from step_runs import compared, program_of  # noqa: E402

from npu_shim.step import interpreter, platforms  # noqa: E402

RANDOM = np.random.RandomState(0)
OPERANDS = re.compile(r"stablehlo\.convolution.*: \(tensor<([x\d]+)xf32>, tensor<([x\d]+)xf32>\)")


def floats(*dims):
    return RANDOM.randn(*dims).astype(np.float32)


def plain(x, w, stride, padding, dilation):
    return tf.nn.conv2d(x, w, [1, stride, stride, 1], padding, dilations=[1, dilation, dilation, 1])


def depthwise(x, w, stride, padding, dilation):
    return tf.nn.depthwise_conv2d(x, w, [1, stride, stride, 1], padding, dilations=[dilation, dilation])


def volumes(x, w, stride, padding, dilation):
    return tf.nn.conv3d(x, w, [1, stride, stride, stride, 1], padding)


CASES = {  # function, image, kernel, stride, padding, dilation
    "2 by 2": (plain, (2, 2, 2, 3), (3, 3, 3, 4), 1, "SAME", 1),
    "1 by 1": (plain, (2, 1, 1, 3), (3, 3, 3, 4), 1, "SAME", 1),
    "of strides": (plain, (2, 8, 7, 3), (5, 5, 3, 4), 2, "SAME", 1),
    "of one row": (plain, (2, 1, 9, 3), (3, 2, 3, 4), 2, "SAME", 1),
    "padded by numbers": (plain, (2, 2, 3, 3), (4, 3, 3, 4), 1, [[0, 0], [2, 1], [0, 2], [0, 0]], 1),
    "of strides, padded by numbers": (plain, (2, 3, 2, 3), (4, 5, 3, 4), 3, [[0, 0], [1, 2], [3, 1], [0, 0]], 1),
    "dilated": (plain, (2, 2, 3, 3), (3, 3, 3, 4), 1, "SAME", 2),
    "as large": (plain, (2, 3, 3, 3), (3, 3, 3, 4), 1, "VALID", 1),
    "by channel, 2 by 2": (depthwise, (2, 2, 2, 3), (3, 3, 3, 2), 1, "SAME", 1),
    "by channel": (depthwise, (2, 7, 6, 3), (3, 2, 3, 1), 1, "VALID", 1),
    "by channel, of strides": (depthwise, (2, 7, 6, 3), (3, 3, 3, 2), 2, "SAME", 1),
    "by channel, dilated": (depthwise, (2, 9, 8, 3), (3, 3, 3, 2), 1, "SAME", 2),
    "by channel, of many elements": (depthwise, (2, 9, 9, 2), (9, 8, 2, 1), 1, "SAME", 1),
    "by channel, of no images": (depthwise, (0, 7, 6, 3), (3, 3, 3, 2), 1, "SAME", 1),
    "of no volumes": (volumes, (0, 5, 4, 6, 2), (2, 3, 3, 2, 3), 1, "SAME", 1),
    "of no small images": (plain, (0, 2, 2, 3), (3, 3, 3, 4), 1, "SAME", 1),
    "of small volumes": (volumes, (1, 2, 2, 3, 2), (3, 3, 3, 2, 3), 1, "SAME", 1),
    "of volumes": (volumes, (2, 5, 4, 6, 2), (2, 3, 3, 2, 3), 1, "VALID", 1),
    "of volumes, of strides": (volumes, (2, 5, 6, 7, 2), (3, 3, 2, 2, 3), 2, "SAME", 1),
}


@pytest.fixture(autouse=True)
def own_graph():
    with tf.Graph().as_default():
        yield


def built(name):
    """(Fetches, feeds) of a convolution and its gradients."""
    function, image, kernel, *how = CASES[name]
    x, w = tf.placeholder(tf.float32, image), tf.placeholder(tf.float32, kernel)
    y = function(x, w, *how)
    weights = tf.constant(floats(*y.shape.as_list()))
    return [y, *tf.gradients(tf.reduce_sum(y * weights), [x, w])], {x: floats(*image), w: floats(*kernel)}


@pytest.mark.parametrize("name", sorted(CASES))
def test_numbers_are_those_of_the_session(name):
    fetches, feeds = built(name)
    # TensorFlow gives a convolution of no images the number of channels of the images
    compared(fetches if CASES[name][1][0] else fetches[1:], feeds, tolerance=1e-5)


@pytest.mark.parametrize("platform", ["cpu", "cuda"])
def test_on_cpus_no_kernel_is_larger_than_what_it_goes_over(platform):
    """XLA's fast convolutions do not take such a kernel; on GPUs padding would be written out for nothing."""
    for name in ("2 by 2", "of strides", "padded by numbers"):
        with tf.Graph().as_default():
            fetches, feeds = built(name)
            step = interpreter.function(program_of(tf.get_default_graph(), fetches[:2], list(feeds)))
            shapes = {fed.name: value for fed, value in feeds.items()}
            with platforms.traced_for(platform), interpreter.traced_as_tensorflow():
                text = jax.jit(lambda given, step=step: step({}, given)).lower(shapes).as_text()
            operands = [[list(map(int, one.split("x"))) for one in pair] for pair in OPERANDS.findall(text)]
            assert len(operands) == 2
            fits = [k <= n for image, kernel in operands for n, k in zip(image[1:3], kernel)]
            assert all(fits) == (platform == "cpu"), (name, operands)
