"""Optimizers as scripts write their own."""

import tensorflow.compat.v1 as tf


class AdamWeightDecay(tf.train.Optimizer):
    """Written as BERT's: its variables are made by get_variable in apply_gradients, global_step is not its business."""

    def __init__(self, learning_rate):
        super().__init__(False, "AdamWeightDecay")
        self.learning_rate = learning_rate

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        assignments = []
        for gradient, variable in grads_and_vars:
            if gradient is None:
                continue
            name = variable.op.name
            m, v = (
                tf.get_variable(
                    name + suffix, shape=variable.shape, initializer=tf.zeros_initializer(), trainable=False
                )
                for suffix in ("/adam_m", "/adam_v")
            )
            dense = tf.convert_to_tensor(gradient)
            next_m, next_v = 0.9 * m + 0.1 * dense, 0.999 * v + 0.001 * tf.square(dense)
            update = next_m / (tf.sqrt(next_v) + 1e-6) + 0.01 * variable
            assignments += [variable.assign(variable - self.learning_rate * update), m.assign(next_m), v.assign(next_v)]
        return tf.group(*assignments, name=name)
