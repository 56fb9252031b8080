"""Optimizers whose first step is built in a tf.function of a TensorFlow 1 graph: names, slots and values."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from npu_shim.loss_scale import (
    AccumulatingOptimizer,
    ExponentialUpdateLossScaleManager,
    FixedLossScaleManager,
    NPULossScaleOptimizer,
    automatic,
)

pytestmark = pytest.mark.usefixtures("without_automatic_scale")


def moving(optimizer):
    return NPULossScaleOptimizer(optimizer, ExponentialUpdateLossScaleManager(64.0, 1000, use_resource=True))


WRAPPERS = {
    "automatic": lambda optimizer: optimizer,
    "fixed": lambda optimizer: NPULossScaleOptimizer(optimizer, FixedLossScaleManager(64.0)),
    "moving": moving,
    "accumulating": lambda optimizer: AccumulatingOptimizer(optimizer, 1),
    "both": lambda optimizer: AccumulatingOptimizer(moving(optimizer), 1),
}
INNER = {
    "adam": lambda: tf.train.AdamOptimizer(0.1),  # has variables that belong to no weight
    "momentum": lambda: tf.train.MomentumOptimizer(0.1, 0.9),
}
OWN = ("loss_scale", "good_steps", "bad_steps", "accumulated")  # what the wrappers add


def in_function(step):
    return tf.function(step)()


def in_nested_function(step):
    def outer():
        with tf.name_scope("inner"):
            return tf.function(step)()

    with tf.name_scope("outer"):
        return tf.function(outer)()


def in_scope(step):
    with tf.name_scope("gan"):
        return step()


PLACES = {"function": in_function, "nested": in_nested_function, "scope": in_scope}


def trained(place, inner, wrap):
    """Returns dict of variable name to value after two steps, without what wrappers add."""
    with tf.Graph().as_default(), tf.Session() as session:
        w = tf.get_variable("w", initializer=[1.0, 2.0], use_resource=True)
        optimizer = wrap(INNER[inner]())

        def step():
            loss = tf.reduce_sum(w * w)
            with tf.control_dependencies([optimizer.apply_gradients([(tf.gradients(loss, w)[0], w)])]):
                return tf.identity(loss)

        train = PLACES[place](step)
        session.run(tf.global_variables_initializer())
        session.run(train)
        session.run(train)
        values = {variable.op.name: session.run(variable) for variable in tf.global_variables()}
        return {name: value for name, value in values.items() if not any(own in name for own in OWN)}


@pytest.mark.by_day(
    "automatic-nested-adam", "both-function-adam", "moving-scope-momentum", "accumulating-function-momentum",
    "fixed-nested-momentum",
)  # fmt: skip
@pytest.mark.parametrize("inner", sorted(INNER))
@pytest.mark.parametrize("place", sorted(PLACES))
@pytest.mark.parametrize("kind", sorted(WRAPPERS))
def test_variables_are_named_as_in_plain_tensorflow(kind, place, inner):
    plain = trained(place, inner, lambda optimizer: optimizer)
    if kind == "automatic":
        automatic.install(64)
    wrapped = trained(place, inner, WRAPPERS[kind])
    assert list(wrapped) == list(plain)
    for name, value in plain.items():
        np.testing.assert_array_equal(wrapped[name], value, err_msg=name)


def test_an_average_of_the_weights_is_named_as_in_plain_tensorflow():
    """`when_finite` builds in a branch, too."""

    def names(wrapped):
        with tf.Graph().as_default(), tf.Session() as session:
            w = tf.get_variable("w", initializer=[1.0, 2.0], use_resource=True)
            optimizer = WRAPPERS["fixed"](INNER["adam"]()) if wrapped else INNER["adam"]()
            average = tf.train.ExponentialMovingAverage(0.9)
            follow = lambda: average.apply([w])  # noqa: E731

            def step():
                train = optimizer.apply_gradients([(tf.gradients(tf.reduce_sum(w * w), w)[0], w)])
                with tf.control_dependencies([train]):
                    followed = optimizer.when_finite(follow) if wrapped else follow()
                with tf.control_dependencies([followed]):
                    return tf.constant(0)

            train = tf.function(step)()
            session.run(tf.global_variables_initializer())
            session.run(train)
            return [variable.op.name for variable in tf.global_variables()]

    assert names(True) == names(False)
