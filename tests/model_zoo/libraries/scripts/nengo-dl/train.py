"""A spiking network in NengoDL 2: trained by its rate version, its parameters saved and loaded."""

import nengo
import nengo_dl
import numpy as np
import tensorflow as tf

random = np.random.RandomState(0)
x, y = random.rand(32, 1, 4), random.rand(32, 1, 1)
with nengo.Network(seed=0) as network:
    source = nengo.Node(np.zeros(4))
    neurons = nengo.Ensemble(16, 1, neuron_type=nengo.RectifiedLinear(), seed=0)
    nengo.Connection(source, neurons.neurons, transform=nengo_dl.dists.Glorot(), synapse=None)
    out = nengo.Node(size_in=1)
    nengo.Connection(neurons, out, synapse=None)
    probe = nengo.Probe(out)
with nengo_dl.Simulator(network, minibatch_size=8, seed=0, progress_bar=False) as simulator:
    simulator.train({source: x, probe: y}, tf.train.AdamOptimizer(0.01), n_epochs=3, objective={probe: "mse"})
    simulator.save_params("./params")
    wanted = simulator.loss({source: x, probe: y}, {probe: "mse"})
    simulator.load_params("./params")
    np.testing.assert_allclose(simulator.loss({source: x, probe: y}, {probe: "mse"}), wanted, atol=1e-2)
