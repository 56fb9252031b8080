"""Gaussian processes with GPflow 1: SciPy's optimizer and Adam, in float64; saved and loaded."""

import gpflow
import numpy as np

random = np.random.RandomState(0)
x = random.rand(24, 1)
y = np.sin(6 * x) + 0.1 * random.randn(24, 1)
model = gpflow.models.GPR(x, y, kern=gpflow.kernels.RBF(1, lengthscales=0.3))
gpflow.train.ScipyOptimizer().minimize(model, maxiter=5)
sparse = gpflow.models.SVGP(x, y, gpflow.kernels.Matern52(1), gpflow.likelihoods.Gaussian(), x[:6].copy())
gpflow.train.AdamOptimizer(0.05).minimize(sparse, maxiter=8)

mean, variance = model.predict_y(x)
gpflow.saver.Saver().save("gpr.gpflow", model)
gpflow.reset_default_graph_and_session()
again = gpflow.saver.Saver().load("gpr.gpflow")
np.testing.assert_allclose(again.predict_y(x)[0], mean, atol=1e-6)
