"""Steps that write a few rows of a table of some MB: the new table takes the old one's memory, the numbers stay."""

import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf

from npu_shim.engine import sessions as engine
from npu_shim.options import engine as options

pytestmark = [*sessions.NEEDS_ENGINE, pytest.mark.usefixtures("patched", "own_graph")]
ROWS = 200_000  # of 8 numbers: 6.4 MB
OPTIMIZERS = {
    "GradientDescent": lambda: tf.train.GradientDescentOptimizer(0.5),
    "Adagrad": lambda: tf.train.AdagradOptimizer(0.5),
    "Adam": lambda: tf.train.AdamOptimizer(0.1),
}


def built(rows, optimizer="Adagrad", resource=True):
    """(Placeholder of ids, table, loss, operation that trains)."""
    ids = tf.placeholder(tf.int32, [None])
    initial = np.random.RandomState(0).randn(rows, 8).astype("f")
    table = tf.get_variable("table", initializer=initial, use_resource=resource)
    products = tf.matmul(tf.nn.embedding_lookup(table, ids), initial[:8])
    loss = tf.reduce_mean(tf.square(products - 1))
    return ids, table, loss, OPTIMIZERS[optimizer]().minimize(loss)


def batches(count, rows):
    random = np.random.RandomState(1)
    return [random.randint(0, rows, 64) for _ in range(count)]


def device_of(session):
    return vars(session)[engine.ENGINE].device


@pytest.mark.parametrize("resource", [True, False], ids=["resource", "reference"])
@pytest.mark.parametrize("optimizer", sorted(OPTIMIZERS))
def test_losses_and_tables_are_those_of_the_session(optimizer, resource):
    ids, table, loss, train = built(ROWS, optimizer, resource)

    def trained(kind):
        losses = []
        with sessions.opened(kind) as session:
            for number, batch in enumerate(batches(8, ROWS)):
                losses.append(session.run([loss, train], {ids: batch})[0])
                if number == 3:  # what is read stays as it was read
                    seen = session.run(table)
            return losses, seen, session.run(table)

    for value, wanted in zip(trained("pjrt"), trained("session")):
        np.testing.assert_allclose(value, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.skipif(not options.has_jax(), reason="no JAX in this process, where arrays are seen")
def test_a_large_table_gives_its_memory_to_the_next_and_a_small_one_does_not():
    for rows, is_given in ((ROWS, True), (100, False)):
        with tf.Graph().as_default():
            ids, _, loss, train = built(rows)
            with sessions.opened() as session:
                session.run([loss, train], {ids: [1, 2, 2]})
                before = dict(device_of(session)._values)
                session.run([loss, train], {ids: [1, 2, 3]})
                assert {name: value.is_deleted() for name, value in before.items()} == dict.fromkeys(before, is_given)


@pytest.mark.skipif(not options.has_jax(), reason="no JAX in this process, where the step fails")
def test_an_error_says_that_a_table_is_lost_with_the_step_that_took_its_memory():
    ids, _, loss, train = built(ROWS)
    with sessions.opened() as session:
        session.run([loss, train], {ids: [1, 2, 3]})
        device = device_of(session)
        (number,) = device._programs
        loaded = device._programs[number]

        def failing(replaced, *others):
            loaded.call(replaced, *others)
            raise RuntimeError("RESOURCE_EXHAUSTED: out of memory")

        device._programs[number] = loaded._replace(call=failing)
        with pytest.raises(tf.errors.InternalError, match=r"the values on the device are lost .*restore a checkpoint"):
            session.run([loss, train], {ids: [1, 2, 3]})
        session.run(tf.global_variables_initializer())
        assert np.isfinite(session.run([loss, train], {ids: [1, 2, 3]})[0])
