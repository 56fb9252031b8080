"""Runs a graph as a step of `npu_shim.step`, beside a session."""

import jax
import numpy as np
import tensorflow.compat.v1 as tf

from npu_shim.engine.device import programs
from npu_shim.rewriter.analysis import order
from npu_shim.rewriter.ir import graphdef
from npu_shim.step import counters, interpreter, packing, unpacking


def program_of(graph, fetches, feeds=()):
    """The Program of a tf.Graph: fetches are tensors and operations, feeds are placeholders."""
    module = graphdef.read(graph.as_graph_def())
    names = [fetch.name for fetch in fetches]
    texts = [name.replace(":0", "") if ":" in name else "^" + name for name in names]
    module.graph.results = {name: module.graph.value(text) for name, text in zip(names, texts)}
    wanted = [value.node for value in module.graph.results.values()]
    module.graph.keep(order.ancestors([*wanted, *(module.graph[fed.op.name] for fed in feeds)]))
    return unpacking.unpacked(packing.packed(module, {fed.op.name: fed.name for fed in feeds}))


class Step:
    """A compiled step and its state, run by run."""

    def __init__(self, graph, fetches, state=(), feeds=(), known=()):
        self.program = program_of(graph, fetches, list(feeds))
        self.state, self.names = dict(state), [fetch.name for fetch in fetches]
        if self.program.draws:
            self.state[counters.state_name(self.program.draws)] = counters.initial_state(self.program.draws)
        self._known = {fed.name: np.asarray(value) for fed, value in dict(known).items()}
        self._step = None

    def __call__(self, feeds=()):
        """The fetches, None for an operation."""
        given = {fed.name: np.asarray(value) for fed, value in dict(feeds).items() if fed.name not in self._known}
        with interpreter.traced_as_tensorflow():
            if self._step is None:
                step = interpreter.function(self.program)
                lowered = jax.jit(lambda state, fed: step(state, {**fed, **self._known})).lower(self.state, given)
                self._step = lowered.compile({"xla_backend_optimization_level": 0})
            new, fetched = self._step(self.state, given)
        self.state.update(new)
        results = programs.results_of(fetched)
        return [np.asarray(results[name]) if name in results else None for name in self.names]


def compared(fetches, feeds=None, known=None, tolerance=1e-6, runs=1):
    """Runs a session and a step on the same state; compares what they fetch in each run, and the state at the end."""
    feeds, known = feeds or {}, known or {}
    graph = tf.get_default_graph()
    variables = tf.global_variables()
    with tf.Session(graph=graph) as session:
        session.run(tf.global_variables_initializer())
        before = session.run(variables)
        state = {variable.op.name: value for variable, value in zip(variables, before)}
        step = Step(graph, fetches, state, [*feeds, *known], known)
        for _ in range(runs):
            wanted = session.run(fetches, {**feeds, **known})
            for fetch, got, want in zip(fetches, step(feeds), wanted):
                if want is not None:
                    assert got.dtype == want.dtype, fetch
                    np.testing.assert_allclose(got, want, tolerance, tolerance, err_msg=fetch.name)
        for variable, want in zip(variables, session.run(variables)):
            np.testing.assert_allclose(step.state[variable.op.name], want, tolerance, tolerance)


def fed(value):
    """A placeholder, and what is fed to it."""
    value = np.asarray(value)
    return tf.placeholder(value.dtype, value.shape), value
