"""A network fitted to a function with DeepXDE; its parameters saved and restored."""

import deepxde as dde
import numpy as np

np.random.seed(0)
geometry = dde.geometry.Interval(-1, 1)
data = dde.data.Func(geometry, lambda x: x * np.sin(5 * x), 16, 16)
network = dde.maps.FNN([1, 16, 16, 1], "tanh", "Glorot uniform")
model = dde.Model(data, network)
model.compile("adam", lr=0.001, metrics=["l2 relative error"])
model.train(epochs=8, display_every=4, model_save_path="./model")
