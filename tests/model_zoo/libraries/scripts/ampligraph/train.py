"""ComplEx of AmpliGraph 1 on made-up triples; saved and loaded."""

import numpy as np
from ampligraph.latent_features import ComplEx
from ampligraph.utils import restore_model, save_model

random = np.random.RandomState(0)
triples = np.array([["e%d" % a, "r%d" % r, "e%d" % b] for a, r, b in random.randint(0, 6, (60, 3))])
model = ComplEx(batches_count=4, epochs=3, k=8, eta=2, seed=0, optimizer="adam", optimizer_params={"lr": 1e-2})
model.fit(triples)
wanted = model.predict(triples[:5])
save_model(model, "complex.pkl")
np.testing.assert_allclose(restore_model("complex.pkl").predict(triples[:5]), wanted, atol=1e-2)
