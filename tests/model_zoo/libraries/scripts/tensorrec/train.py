"""Matrix factorization with TensorRec on made-up interactions; saved and loaded."""

import numpy as np
import scipy.sparse
import tensorrec

random = np.random.RandomState(0)
interactions = scipy.sparse.coo_matrix((random.rand(20, 30) < 0.2).astype(np.float32))
users, items = scipy.sparse.identity(20, np.float32, "coo"), scipy.sparse.identity(30, np.float32, "coo")
model = tensorrec.TensorRec(n_components=4, loss_graph=tensorrec.loss_graphs.RMSELossGraph())
model.fit(interactions, users, items, epochs=6, verbose=True)
wanted = model.predict(users, items)
model.save_model("tensorrec")
again = tensorrec.TensorRec.load_model("tensorrec")
np.testing.assert_allclose(again.predict(users, items), wanted, atol=1e-2)
