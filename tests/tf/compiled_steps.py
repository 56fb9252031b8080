"""Compiled steps beside a session that starts from the same variables: results, their shapes, the state afterwards."""

import numpy as np
import tensorflow.compat.v1 as tf

import npu_shim


def assert_as_in_a_session(graph, fetches, batches, init=(), rtol=1e-5, atol=1e-6, **options):
    """Runs a step and a session on some batches, and compares them; returns the step.

    Args:
        graph: tf.Graph.
        fetches: list.
        batches: dicts of the names of tensors to values; or of tensors.
        init: operations that give the variables their values.
        rtol, atol: tolerances; 0 for both asks for the same bits.
        options: of compile_step.
    """
    variables = [*graph.get_collection(tf.GraphKeys.GLOBAL_VARIABLES), *graph.get_collection("local_variables")]
    with tf.Session(graph=graph) as session:
        session.run(init)
        step = npu_shim.compile_step(session, fetches, list(batches[0]), **options)
        for number, batch in enumerate(batches):
            for fetch, actual, wanted in zip(fetches, step(batch), session.run(fetches, batch)):
                said = "%s of step %d" % (getattr(fetch, "name", fetch), number)
                assert np.shape(actual) == np.shape(wanted), said
                if wanted is not None:
                    compared(actual, wanted, rtol, atol, said)
        wanted = session.run({variable.op.name: variable for variable in variables})
    for name, value in step.state().items():
        if name in wanted:
            compared(value, wanted[name], rtol, atol, name)
    return step


def compared(actual, wanted, rtol, atol, said):
    """Compares two arrays, of a dtype that NumPy may not know."""
    assert np.asarray(actual).dtype == np.asarray(wanted).dtype, said
    if np.asarray(wanted).dtype.kind not in "biufc":
        actual, wanted = np.float64(actual), np.float64(wanted)
    np.testing.assert_allclose(actual, wanted, rtol, atol, err_msg=said)
