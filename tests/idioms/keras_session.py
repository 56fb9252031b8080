"""Keras in a session of the script's own: set_session, compile, train_on_batch, weights read with sess.run."""

import sys

import numpy as np
import tensorflow as tf
from tensorflow.keras import backend as K
from tensorflow.keras.layers import Activation, BatchNormalization, Conv2D, Dense, Flatten, Input, MaxPooling2D

from npu_bridge.npu_init import *

# mixed precision; with the argument float32 the script computes what it says, in TensorFlow's own dtypes
FLOAT32 = sys.argv[1:] == ["float32"]
BATCH, CLASSES, STEPS = 32, 5, 6

config = tf.ConfigProto()
custom_op = config.graph_options.rewrite_options.custom_optimizers.add()
custom_op.name = "NpuOptimizer"
custom_op.parameter_map["precision_mode"].s = b"must_keep_origin_dtype" if FLOAT32 else b"allow_mix_precision"
custom_op.parameter_map["npu_shim_profile"].s = b"gpu" if FLOAT32 else b"ascend910"
sess = tf.Session(config=config)
K.set_session(sess)


def weights(seed):
    return tf.keras.initializers.glorot_uniform(seed=seed)


inputs = Input(shape=(12, 12, 1))
h = Conv2D(8, 3, padding="same", kernel_initializer=weights(1))(inputs)
h = Activation("relu")(BatchNormalization()(h))
h = MaxPooling2D()(h)
h = Conv2D(16, 3, activation="relu", kernel_initializer=weights(2))(h)
h = Flatten()(h)
outputs = Dense(CLASSES, activation="softmax", kernel_initializer=weights(3))(h)
model = tf.keras.models.Model(inputs, outputs)
optimizer = npu_keras_optimizer(tf.keras.optimizers.SGD(lr=0.05, momentum=0.9))
model.compile(optimizer=optimizer, loss="categorical_crossentropy", metrics=["accuracy"])

rng = np.random.RandomState(0)
patterns = rng.rand(CLASSES, 12, 12, 1)
for i in range(STEPS):
    labels = rng.randint(0, CLASSES, BATCH)
    images = patterns[labels] + 0.1 * rng.randn(BATCH, 12, 12, 1)
    value, accuracy = model.train_on_batch(images, tf.keras.utils.to_categorical(labels, CLASSES))
    print("loss %d %.6f" % (i, value))
probabilities = sess.run(model.output, {model.input: images, K.learning_phase(): 0})
assert np.allclose(probabilities, model.predict(images), atol=1e-2)
