"""What tf.contrib computes, as cases that run under TensorFlow 1.15 (the original) and under ours.

    python contrib_cases OUT.npz [NAME...]

writes the values of every case. Variables start from values that derive from their names and shapes, so equal values
mean equal variable names as well. A case is a function (tf, contrib) -> (nested) tensors; they are in the modules of
this folder by what they are about.
"""

import importlib
import zlib

import numpy as np

CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


def module(tf, path):
    """A module of tf.contrib that is not an attribute of its package in 1.15."""
    if tf.__version__.startswith("1."):
        return importlib.import_module("tensorflow.contrib." + path)
    from npu_shim.compat.names import faces

    return faces.find(path)


def values(name, *shape):
    """float32 values in [-1, 1) that derive from a name."""
    return np.random.RandomState(zlib.crc32(name.encode())).uniform(-1, 1, shape).astype(np.float32)


def run(tf, contrib, name):
    """{name/index: value} of one case; training ops are run three times."""
    out = {}
    with tf.Graph().as_default(), tf.Session() as session:
        tf.set_random_seed(1)
        fetches = CASES[name](tf, contrib)
        session.run([tf.global_variables_initializer(), tf.local_variables_initializer(), tf.tables_initializer()])
        for variable in tf.trainable_variables():
            variable.load(values(variable.op.name, *variable.shape.as_list()), session)
        session.run(tf.variables_initializer([v for v in tf.global_variables() if v not in tf.trainable_variables()]))
        for key in ("GLOBAL", "MODEL", "TRAINABLE"):
            variables = tf.get_collection(getattr(tf.GraphKeys, key + "_VARIABLES"))
            out["%s/%s" % (name, key.lower())] = np.array(sorted(v.op.name for v in variables), dtype="U")
        train = tf.get_collection("train_of_case")
        for _ in range(3 if train else 0):
            session.run(train)
        for index, value in enumerate(session.run(_flat(fetches))):
            value = np.asarray(value)
            out["%s/%d" % (name, index)] = value.astype("S") if value.dtype == object else value
    return out


def _flat(x):
    if isinstance(x, dict):
        return [y for key in sorted(x) for y in _flat(x[key])]
    return [y for part in x for y in _flat(part)] if isinstance(x, (list, tuple)) else [x]


from . import feature_columns, functions, hparams, optimizers, rnn, seq2seq  # noqa: E402, F401  # fill CASES
