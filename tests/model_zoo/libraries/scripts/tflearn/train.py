"""A small convolutional network with TFLearn: layers, regression, DNN; saved, and loaded after more training."""

import numpy as np
import tflearn

random = np.random.RandomState(0)
x = random.rand(64, 8, 8, 1).astype(np.float32)
y = np.eye(2)[(x.mean((1, 2, 3)) > 0.5).astype(int)]

net = tflearn.input_data([None, 8, 8, 1], name="input")
net = tflearn.conv_2d(net, 8, 3, activation="relu", regularizer="L2")
net = tflearn.max_pool_2d(net, 2)
net = tflearn.batch_normalization(net)
net = tflearn.fully_connected(net, 16, activation="tanh")
net = tflearn.fully_connected(net, 2, activation="softmax")
net = tflearn.regression(net, optimizer="adam", learning_rate=0.01, loss="categorical_crossentropy", name="target")
model = tflearn.DNN(net, tensorboard_verbose=0)
model.fit({"input": x}, {"target": y}, n_epoch=3, batch_size=16, show_metric=True, shuffle=False, run_id="digits")

model.save("model.tflearn")
wanted = np.array(model.predict({"input": x}))
model.fit({"input": x}, {"target": y}, n_epoch=1, batch_size=16)
model.load("model.tflearn")
np.testing.assert_allclose(model.predict({"input": x}), wanted, atol=1e-2)
