"""What scripts of TensorFlow 1.15 import, run by `npu-shim run` (or plain Python on 1.15): prints {check: problem}."""

import importlib
import json
import sys
import traceback

import numpy as np
import tensorflow as tf

CHECKS = {}
IMPORTS = """
from tensorflow.contrib.compiler import xla
import tensorflow.contrib.compiler.xla as x; x.compile
from tensorflow.contrib.compiler import jit; jit.experimental_jit_scope
import tensorflow as tf; tf.contrib.compiler.jit.experimental_jit_scope, tf.contrib.compiler.xla.compile
from tensorflow.contrib.framework.python.ops import audio_ops; audio_ops.mfcc, audio_ops.decode_wav
from tensorflow.contrib.learn import monitors; monitors.replace_monitors_with_hooks
from tensorflow.contrib.training import FeedingQueueRunner
from tensorflow.contrib.tfprof import model_analyzer
from tensorflow.contrib.saved_model.python.saved_model import reader
from tensorflow.contrib.util import loader; loader.load_op_library
from tensorflow.python import graph_util, keras, ops, summary; graph_util.extract_sub_graph, summary.FileWriter
from tensorflow.python.training.tracking import base; base.Trackable
from tensorflow_core.python.tools import freeze_graph; freeze_graph.freeze_graph
from tensorflow_core.python.keras.layers import Dense
from tensorflow.python.keras.engine import network; network.Network
from tensorflow.python.keras.layers.merge import concatenate
from tensorflow.python.keras.layers.recurrent import LSTM
from tensorflow.python.keras.optimizers import Adam; Adam(lr=0.1)
from tensorflow.python.keras.datasets import cifar, cifar10
from tensorflow.python.keras.utils import CustomObjectScope, multi_gpu_model, to_categorical
from tensorflow.python.keras.utils.generic_utils import CustomObjectScope, deserialize_keras_object
"""
# of 1.15 with the vendor's additions, older than 1.15, or of the package `keras`
OLDER = """
from tensorflow.contrib.keras.python.keras.layers import Conv3D, concatenate
from tensorflow.contrib.saved_model.python.saved_model import signature_def_utils
from tensorflow.python.keras._impl.keras.layers import Activation
from tensorflow.contrib.offline_train.python.npu.npu_config import NPURunConfig
from tensorflow_core.contrib.mixed_precision.python.loss_scale_manager import ExponentialUpdateLossScaleManager
from tensorflow.contrib.hccl.python.ops import hccl_ops
from keras import backend as K, optimizers; K.set_session, K.get_session, K.learning_phase, optimizers.Adam(lr=0.1)
from keras.layers.normalization import BatchNormalization
from keras.layers.core import Dense, Flatten
from keras.layers.merge import add
from keras.utils import np_utils, vis_utils; np_utils.to_categorical
from keras.backend.tensorflow_backend import set_session
from keras.engine.topology import Layer
from keras.models import *; Sequential, Model, load_model
from keras.optimizers import adam_v2
"""


def check(function):
    CHECKS[function.__name__] = function
    return function


def lines(text):
    return [line for line in text.splitlines() if line]


for statement in lines(IMPORTS) + ([] if tf.__version__.startswith("1.") else lines(OLDER)):
    CHECKS[statement] = lambda statement=statement: exec(statement, {})


def golden():
    with open(sys.argv[1]) as f:
        return json.load(f)


def problem_of(module, name):
    """None where the name is there, or its module or the name says where it went."""
    try:
        getattr(importlib.import_module(module), name) if name else importlib.import_module(module)
    except (AttributeError, ImportError) as reason:
        return None if "is not here: " in str(reason) else "%s.%s: %s" % (module, name, reason)
    return None


@check
def every_name_of_tensorflow_python():
    names = " ".join(golden()["tensorflow.python"]).split()
    problems = [p for p in (problem_of("tensorflow.python", name) for name in names) if p]
    assert not problems, problems


@check
def every_module_of_tensorflow_python():
    modules = " ".join(golden()["modules"]).split()
    problems = [p for p in (problem_of(module, "") for module in modules if "tpu" not in module) if p]
    assert not problems, problems


@check
def every_name_that_keras_defined():
    every = [(module, name) for module, names in golden()["keras"].items() for name in names.split()]
    problems = [p for p in (problem_of(*one) for one in every) if p]
    assert not problems, problems


@check
def a_name_that_never_was_is_an_error_with_the_nearest():
    for statement in ("from tensorflow.python.keras.layers import Dens", "import tensorflow.python.keras.layrs"):
        try:
            exec(statement, {})
        except ImportError as reason:
            assert tf.__version__.startswith("1.") or "did you mean" in str(reason), reason
        else:
            raise AssertionError(statement)


@check
def infer_is_a_mode():
    keys = tf.contrib.learn.ModeKeys
    assert (keys.TRAIN, keys.EVAL, keys.INFER) == ("train", "eval", "infer")


@check
def operations_have_the_private_name_that_recomputation_uses():
    with tf.Graph().as_default():
        x = tf.constant(1.0)
        assert x.op._outputs[0] is x


@check
def feeding_queue_runner_feeds():
    with tf.Graph().as_default():
        value = tf.placeholder(tf.int32, [])
        queue = tf.FIFOQueue(10, [tf.int32])
        numbers = iter(range(5))
        feed = lambda: {value.name: next(numbers)}  # noqa: E731
        runner = tf.contrib.training.FeedingQueueRunner(queue, [queue.enqueue(value)], feed_fns=[feed])
        out = queue.dequeue()
        with tf.Session() as session:
            threads = runner.create_threads(session, start=True)
            assert [int(session.run(out)) for _ in range(3)] == [0, 1, 2]
            session.run(queue.close(cancel_pending_enqueues=True))
        assert len(threads) >= 1


@check
def a_dataset_has_its_own_threads():
    from tensorflow.python.data.experimental.ops import threadpool

    pool = threadpool.PrivateThreadPool(3, display_name="input", max_intra_op_parallelism=1)
    dataset = tf.data.Dataset.range(5).map(lambda x: x * 2, num_parallel_calls=2)
    dataset = threadpool.override_threadpool(dataset, pool)
    with tf.Session() as session:
        iterator = tf.data.make_initializable_iterator(dataset)
        session.run(iterator.initializer)
        step = iterator.get_next()
        assert [session.run(step) for _ in range(5)] == [0, 2, 4, 6, 8]


@check
def one_keras_shares_layers_and_the_session():
    from tensorflow.python.keras import backend as K
    from tensorflow.python.keras.layers import BatchNormalization, Dense

    with tf.Graph().as_default():
        session = tf.Session()
        K.set_session(session)
        assert tf.keras.backend.get_session() is session
        x = tf.keras.layers.Input((4,))
        y = tf.keras.layers.Dense(2)(BatchNormalization()(Dense(3)(x)))
        model = tf.keras.models.Model(x, y)
        model.compile("sgd", "mse")
        history = model.fit(np.ones((8, 4)), np.ones((8, 2)), verbose=0, epochs=2).history["loss"]
        assert history[1] < history[0] and K.get_session() is session
        assert issubclass(Dense, tf.keras.layers.Layer) and BatchNormalization is tf.keras.layers.BatchNormalization


@check
def layers_and_cells_are_one_class_by_either_path():
    from tensorflow.python.layers import base, core
    from tensorflow.python.layers.convolutional import Conv2D, Convolution2D
    from tensorflow.python.ops import rnn_cell, rnn_cell_impl

    assert Conv2D is tf.layers.Conv2D is Convolution2D
    assert core.Dense is tf.layers.Dense
    assert issubclass(tf.layers.Dense, base.Layer)
    assert rnn_cell_impl.RNNCell is tf.nn.rnn_cell.RNNCell is rnn_cell.RNNCell
    assert issubclass(rnn_cell_impl.LayerRNNCell, tf.nn.rnn_cell.RNNCell)
    assert issubclass(tf.nn.rnn_cell.LSTMCell, rnn_cell_impl.LayerRNNCell)

    class Sum(rnn_cell_impl.RNNCell):
        state_size = output_size = 2

        def call(self, inputs, state):
            return inputs + state, inputs + state

    with tf.Graph().as_default(), tf.Session() as session:
        cell = tf.nn.rnn_cell.MultiRNNCell([Sum(), Sum()])
        out, _ = tf.nn.dynamic_rnn(cell, tf.ones([1, 3, 2]), dtype=tf.float32)
        assert session.run(out).tolist() == [[[1, 1], [3, 3], [6, 6]]]


@check
def keras_optimizers_of_1_15_train():
    from tensorflow.python.keras.models import Sequential
    from tensorflow.python.keras.layers import Dense
    from tensorflow.python.keras.optimizers import SGD

    with tf.Graph().as_default(), tf.Session().as_default():
        model = Sequential([Dense(1, input_shape=(4,))])
        model.compile(SGD(lr=0.05, momentum=0.9), "mse")
        history = model.fit(np.ones((8, 4)), np.ones((8, 1)), verbose=0, epochs=3).history["loss"]
        assert history[-1] < history[0]


@check
def a_model_may_end_in_its_own_scalar_loss():
    from tensorflow.keras import backend as K
    from tensorflow.keras.layers import Dense, Input, Lambda

    with tf.Graph().as_default(), tf.Session().as_default():
        x, t = Input((4,)), Input((1,))
        y = Dense(1, use_bias=False, kernel_initializer="ones")(x)
        loss = Lambda(lambda a: K.mean(K.square(a[0] - a[1])), output_shape=(1,), name="yolo_loss")([y, t])
        model = tf.keras.models.Model([x, t], loss)
        model.compile(tf.keras.optimizers.SGD(lr=0.05), loss={"yolo_loss": lambda y_true, y_pred: y_pred})
        data = [np.ones((8, 4)), np.ones((8, 1))]
        history = model.fit(data, np.zeros(8), batch_size=4, epochs=2, verbose=0).history["loss"]
        # y = 4, then each step takes 0.05 * 2 * (y - 1) off each of four weights
        np.testing.assert_allclose(history, [(9 + 3.24) / 2, (1.1664 + 0.419904) / 2], rtol=1e-5)


@check
def the_list_of_a_models_layers_can_be_changed():
    from tensorflow.keras.layers import Dense, Input

    with tf.Graph().as_default():
        x = Input((4,))
        model = tf.keras.models.Model(x, Dense(1)(x))
        layers = model._layers.copy()
        assert layers == model.layers
        model._layers.clear()
        assert model.layers == []
        model._layers.extend(layers)
        assert model.layers == layers

    class Own(tf.keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self._layers = ["a script's own"]

    if not tf.__version__.startswith("1."):
        assert Own()._layers == ["a script's own"]


@check
def what_a_script_sets_reaches_keras():
    import tensorflow.python.keras.backend as K

    before = tf.keras.backend.epsilon()
    K.set_epsilon(1e-3)
    assert tf.keras.backend.epsilon() == 1e-3
    K.set_epsilon(before)
    old, K.mean = K.mean, "mine"
    try:
        from tensorflow.python.keras import backend

        assert backend.mean == "mine"
    finally:
        K.mean = old


@check
def the_precision_mode_reaches_the_session_of_keras():
    import npu_bridge.npu_init  # noqa: F401
    from tensorflow.python.keras import backend as K

    with tf.Graph().as_default():
        config = tf.ConfigProto()
        custom = config.graph_options.rewrite_options.custom_optimizers.add()
        custom.name = "NpuOptimizer"
        custom.parameter_map["precision_mode"].s = b"force_fp16"
        K.set_session(tf.Session(config=config))
        model = tf.keras.models.Sequential([tf.keras.layers.Dense(1, use_bias=False, input_shape=(1,))])
        model.layers[0].set_weights([np.ones((1, 1))])
        assert model.predict(np.full((1, 1), 2055.0))[0, 0] == 2056.0  # the nearest float16


@check
def a_test_of_its_own_can_fail():
    assert problem_of("tensorflow.python.keras.layers", "Dens") and problem_of("tensorflow.python.grap_util", "")


if __name__ == "__main__":
    results = {}
    for name, function in CHECKS.items():
        try:
            function()
            results[name] = None
        except Exception:
            results[name] = traceback.format_exc()[-3000:]
    print("RESULTS " + json.dumps(results))
