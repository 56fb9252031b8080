"""A Keras model whose session is configured for an NPU: npu-shim run examples/keras_fit.py DIGITS"""

import sys

import numpy as np
import tensorflow as tf
from npu_bridge.npu_init import *

data = np.load(sys.argv[1])
images = data["images"].reshape(-1, 8, 8, 1).astype(np.float32) / 16.0
labels = data["labels"].astype(np.int32)
train, test = slice(0, 1500), slice(1500, None)

config = tf.ConfigProto()
custom_op = config.graph_options.rewrite_options.custom_optimizers.add()
custom_op.name = "NpuOptimizer"
custom_op.parameter_map["precision_mode"].s = tf.compat.as_bytes("allow_mix_precision")
tf.keras.backend.set_session(tf.Session(config=config))

tf.set_random_seed(1)
model = tf.keras.models.Sequential([
    tf.keras.layers.Conv2D(32, 3, padding="same", activation="relu", input_shape=(8, 8, 1)),
    tf.keras.layers.MaxPooling2D(),
    tf.keras.layers.Flatten(),
    tf.keras.layers.Dense(64, activation="relu"),
    tf.keras.layers.Dense(10, activation="softmax"),
])  # fmt: skip
optimizer = NPULossScaleOptimizer(tf.train.AdamOptimizer(2e-3), FixedLossScaleManager(loss_scale=1024))
model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])
model.fit(images[train], labels[train], batch_size=64, epochs=12, verbose=0)
_, accuracy = model.evaluate(images[test], labels[test], verbose=0)
print("weights stay", model.get_weights()[0].dtype)
print("accuracy", accuracy)
