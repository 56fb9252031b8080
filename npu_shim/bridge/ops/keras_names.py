"""What the bridge has of Keras; without Keras, functions that say so when they are called."""

import tensorflow.compat.v1 as tf

from npu_shim.bridge.ops.unsupported import without_equivalent

try:
    PReLU = tf.keras.layers.PReLU
    backend = tf.keras.backend
except (ImportError, AttributeError):
    PReLU = without_equivalent("PReLU")
    backend = without_equivalent("backend")
