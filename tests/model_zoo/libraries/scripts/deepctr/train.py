"""DeepFM of DeepCTR on made-up clicks, by Keras's compile and fit; its weights saved and loaded."""

import numpy as np
from deepctr.feature_column import DenseFeat, SparseFeat, get_feature_names
from deepctr.models import DeepFM

random = np.random.RandomState(0)
columns = [SparseFeat("user", 10, embedding_dim=4), SparseFeat("item", 20, embedding_dim=4), DenseFeat("age", 1)]
names = get_feature_names(columns)
x = {"user": random.randint(0, 10, 128), "item": random.randint(0, 20, 128), "age": random.rand(128).astype("float32")}
x = {name: x[name] for name in names}
y = (x["user"] > 4).astype("float32")


def network():
    return DeepFM(columns, columns, task="binary", dnn_hidden_units=(16, 8))


model = network()
model.compile("adam", "binary_crossentropy", metrics=["binary_crossentropy"])
model.fit(x, y, batch_size=32, epochs=3, shuffle=False, verbose=2)
model.save_weights("deepfm.h5")
again = network()
again.load_weights("deepfm.h5")
np.testing.assert_allclose(again.predict(x, 32), model.predict(x, 32), atol=1e-2)
