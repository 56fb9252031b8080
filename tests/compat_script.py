"""What scripts of TensorFlow 1.15 import, run by `npu-shim run` (or plain Python on 1.15): prints {check: problem}."""

import contextlib
import copy
import importlib
import importlib.util
import io
import json
import os
import pickle
import re
import sys
import traceback
import unittest
import unittest.mock

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context
from tensorflow.python.framework import ops

CHECKS = {}
ON_1: bool = not hasattr(tf, "_real")  # where `tensorflow` is TensorFlow 1's own
IMPORTS = """
from tensorflow.contrib.compiler import xla
import tensorflow.contrib.compiler.xla as x; x.compile
from tensorflow.contrib.compiler import jit; jit.experimental_jit_scope
import tensorflow as tf; tf.contrib.compiler.jit.experimental_jit_scope, tf.contrib.compiler.xla.compile
from tensorflow.contrib.framework.python.ops import audio_ops; audio_ops.mfcc, audio_ops.decode_wav
from tensorflow.contrib.learn import monitors; monitors.replace_monitors_with_hooks
from tensorflow.contrib.training import FeedingQueueRunner
from tensorflow.contrib.tfprof import ProfileContext, model_analyzer
from tensorflow.python.profiler import profile_context; profile_context.ProfileContext
from tensorflow.contrib.learn.python.learn import monitored_session as m; m.Scaffold, m.SessionCreator
from tensorflow.contrib.learn.python.learn.basic_session_run_hooks import LoggingTensorHook, StopAtStepHook
from tensorflow.contrib.learn.python.learn.session_run_hook import SessionRunHook, SessionRunArgs
from tensorflow.contrib.learn.python.learn.summary_writer_cache import SummaryWriterCache; SummaryWriterCache.get
from tensorflow.contrib.learn.python.learn import monitors; monitors.replace_monitors_with_hooks
from tensorflow.contrib.slim import variable_scope; variable_scope.get_variable, variable_scope.variable_scope
import tensorflow.contrib.slim as s; s.nn_ops.conv2d, s.nest.flatten, s.tensor_shape.TensorShape, s.string_ops
from tensorflow.contrib.graph_editor import select, reroute, util; select.get_forward_walk_ops, reroute.swap_ts
from tensorflow.contrib.predictor import predictor_factories; predictor_factories.from_saved_model
from tensorflow.contrib.data.python.ops.threadpool import PrivateThreadPool, override_threadpool
from tensorflow.contrib.saved_model.python.saved_model import reader
from tensorflow.contrib.util import loader; loader.load_op_library
from tensorflow.python import graph_util, keras, ops, summary; graph_util.extract_sub_graph, summary.FileWriter
from tensorflow.python.training.tracking import base; base.Trackable
from tensorflow.python.training.tracking import graph_view, tracking, util; util.CheckpointV1, tracking.AutoTrackable
from tensorflow.python.training.tracking.tracking import TrackableAsset, TrackableResource
from tensorflow.python.feature_column import dense_features; dense_features.DenseFeatures
from tensorflow.python.feature_column import feature_column_v2 as fc; fc.FeatureColumn, fc.LinearModel
from tensorflow.python.feature_column import sequence_feature_column as sfc; sfc.SequenceFeatures
from tensorflow.python.framework import ops; assert ops.RegisterShape("Op")(len) is len
from tensorflow.python.ops import nn_impl; nn_impl.l2_normalize_v2
from tensorflow.python.layers import utils; utils.get_reachable_from_inputs
from tensorflow.core.protobuf import config_pb2; config_pb2.RPCOptions(use_rpc_for_inprocess_master=True)
from tensorflow.contrib.opt.python.training import matrix_functions, sign_decay; sign_decay.get_linear_decay_fn(3)
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
import tensorflow as tf; tf.mul, tf.sub, tf.neg, tf.pack, tf.unpack, tf.select, tf.complex_abs, tf.listdiff, tf.inv
import tensorflow as tf; tf.merge_summary, tf.merge_all_summaries, tf.train.SummaryWriter, tf.histogram_summary
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


for statement in lines(IMPORTS) + ([] if ON_1 else lines(OLDER)):
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
            assert ON_1 or "did you mean" in str(reason), reason
        else:
            raise AssertionError(statement)


@check
def modules_of_contrib_can_be_looked_for():
    for name in ("tensorflow.contrib", "tensorflow.contrib.rnn", "tensorflow.contrib.layers.python.layers.layers"):
        importlib.import_module(name)
        assert importlib.util.find_spec(name) is not None


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
def a_resource_variable_has_an_initialized_value():
    with tf.Graph().as_default(), tf.Session() as session:
        first = tf.get_variable("first", initializer=[1.0, 2.0], use_resource=True)
        second = tf.get_variable("second", initializer=first.initialized_value() * 2.0)
        session.run(second.initializer)  # before the first has a value
        assert session.run(second).tolist() == [2.0, 4.0]


@check
def an_identity_that_is_no_bucket_is_an_error():
    def layer(ids, default):
        column = tf.feature_column.categorical_column_with_identity("id", 3, default)
        return tf.feature_column.input_layer({"id": ids}, [tf.feature_column.indicator_column(column)])

    with tf.Graph().as_default(), tf.Session() as session:
        ids = tf.placeholder(tf.int64, [None, 1])
        checked, other = layer(ids, None), layer(ids, 0)
        assert session.run(checked, {ids: [[2]]}).tolist() == [[0, 0, 1]]
        assert session.run(other, {ids: [[3], [7]]}).tolist() == [[1, 0, 0], [1, 0, 0]]
        for wrong in (3, -2):  # -1 is no value
            try:
                session.run(checked, {ids: [[wrong]]})
            except tf.errors.InvalidArgumentError:
                continue
            raise AssertionError("%d is a bucket" % wrong)


@check
def whole_numbers_of_any_kind_are_dimensions():
    with tf.Graph().as_default():
        four = (8 / 2, np.float32(4), np.float64(4), np.array(4.0), "4", tf.Dimension(4.0))
        for size in four:
            assert tf.placeholder(tf.float32, [None, size]).shape.as_list() == [None, 4], size
            assert tf.TensorShape([size]).as_list() == [4] and tf.Dimension(8) // size == 2
        assert tf.get_variable("v", [2.0, 3 / 1]).shape.as_list() == [2, 3]
        assert tf.Dimension(4) == 4.0 and tf.Dimension(4) * 2.0 == 8 and 2.0 + tf.Dimension(4) == 6
        cells = [kind(8 / 2) for kind in (tf.nn.rnn_cell.LSTMCell, tf.nn.rnn_cell.GRUCell)]
        outputs = [
            tf.nn.dynamic_rnn(cell, tf.zeros([2, 3, 5]), dtype=tf.float32, scope=str(cell)[-9:-1])[0] for cell in cells
        ]
        assert [output.shape.as_list() for output in outputs] == [[2, 3, 4]] * 2
        assert tf.FIFOQueue(3, [tf.float32], [[4 / 2]]).dequeue().shape.as_list() == [2]


@check
def shapes_with_an_open_dimension_are_taken_for_equal_by_nobody():
    with tf.Graph().as_default():
        x, y = tf.placeholder(tf.float32, [None, 3]), tf.placeholder(tf.float32, [None, 3])
        for other in (y.shape, y.get_shape(), [None, 3], (None, 3)):
            assert (x.shape == other) is False and (x.shape != other) is True, other
        assert x.shape not in [y.shape] and x.shape.is_compatible_with(y.shape)
        whole, unknown = tf.zeros([2, 3]).shape, tf.placeholder(tf.float32).shape
        for same, other in ((x.shape, x.shape), (whole, [2, 3]), (whole, tf.TensorShape((2, 3))), (unknown, None)):
            assert (same == other) is True, other
        assert (whole != [2, 3]) is False and (whole != [3, 2]) is True and (x.shape == [None, 4]) is False
        # TensorFlow itself goes on as it does: a loop whose variable keeps its shape
        assert tf.while_loop(lambda t: True, lambda t: t * 2, [x]).shape.as_list() == [None, 3]
        assert tf.data.Dataset.from_tensors(1.0).batch(2).concatenate(tf.data.Dataset.from_tensors(1.0).batch(2))


@check
def what_a_table_exports_has_its_static_shape():
    with tf.Graph().as_default():
        lookup, words = tf.contrib.lookup, tf.constant(["a", "b"])
        start = lookup.KeyValueTensorInitializer(words, tf.constant([5, 7], tf.int64))
        tables = [
            lookup.MutableDenseHashTable(tf.string, tf.float32, [0.0, 0.0], empty_key="", deleted_key="-"),
            lookup.MutableHashTable(tf.int64, tf.int64, 0),
            lookup.HashTable(start, -1),
        ]
        shapes = [[part.shape.as_list() for part in table.export()] for table in tables]
        assert shapes == [[[None], [None, 2]], [[None], [None]], [[None], [None]]], shapes
        assert tf.contrib.seq2seq.FinalBeamSearchDecoderOutput.__name__ == "FinalBeamSearchDecoderOutput"


@check
def a_fraction_is_no_dimension():
    with tf.Graph().as_default():
        for make in (
            tf.Dimension,
            lambda size: tf.placeholder(tf.float32, [size]),
            lambda size: tf.TensorShape([size]),
        ):
            for wrong, error in (
                (1.5, ValueError),
                (np.float32(0.5), ValueError),
                (-2.0, ValueError),
                (tf.int32, TypeError),
            ):
                try:
                    make(wrong)
                except error as reason:
                    assert wrong is tf.int32 or "Ambiguous dimension: " in str(reason) or ">= 0" in str(reason), reason
                else:
                    raise AssertionError(wrong)


@check
def a_transposed_convolution_has_the_constant_sizes_of_its_output_shape():
    with tf.Graph().as_default():
        x, kernel = tf.placeholder(tf.float32, [None, 2, 2, 4]), tf.zeros([3, 3, 5, 4])
        up = tf.nn.conv2d_transpose(x, kernel, [8, 4, 4, 5], [1, 2, 2, 1])
        assert tf.reshape(up, up.get_shape()).shape.as_list() == [8, 4, 4, 5]
        assert tf.nn.conv2d_backprop_input([8, 4, 4, 5], kernel, x, [1, 2, 2, 1], "SAME").shape.as_list() == [
            8,
            4,
            4,
            5,
        ]
        sizes = tf.stack([tf.shape(x)[0], 4, 4, 5])
        assert tf.nn.conv2d_transpose(x, kernel, sizes, [1, 2, 2, 1]).shape.as_list() == [None, 4, 4, 5]
        line = tf.nn.conv1d_transpose(x[:, 0], kernel[0], [8, 4, 5], 2)
        assert line.shape.as_list() == [8, 4, 5]
        slope = tf.gradients(up, x)[0]
        assert slope.shape.as_list() in ([8, 2, 2, 4], [None, 2, 2, 4])


@check
def a_flipped_image_of_unknown_rank_is_an_image():
    with tf.Graph().as_default():
        image = tf.placeholder(tf.float32)
        for flip in (tf.image.flip_left_right, tf.image.random_flip_up_down, tf.image.rot90, tf.image.transpose_image):
            assert flip(image).shape.as_list() == [None] * 3
            assert tf.image.resize_images(flip(image), [4, 4]).shape.as_list() == [4, 4, None]
            assert flip(tf.zeros([2, 3, 3, 1])).shape.as_list() == [2, 3, 3, 1]


@check
def records_of_unknown_rank_are_a_batch():
    features = {
        "listed": tf.io.VarLenFeature(tf.int64),
        "fixed": tf.io.FixedLenFeature((3,), tf.float32),
        "sequence": tf.io.FixedLenSequenceFeature((), tf.int64, allow_missing=True),
    }
    with tf.Graph().as_default():
        records = tf.placeholder(tf.string, name="input_example_tensor")
        for parse in (tf.parse_example, tf.io.parse_example):
            parsed = parse(serialized=records, features=features)
            shapes = [parsed[name].shape.as_list() for name in sorted(features)]
            assert shapes == [[None, 3], [None, None], [None, None]]
        assert tf.layers.dense(parsed["fixed"], 2).shape.as_list() == [None, 2]
        assert records.shape.rank is None
        parts = {"a": tf.io.FixedLenSequenceFeature([], tf.float32)}
        lists = tf.io.parse_sequence_example(records, sequence_features=parts)[1]
        assert lists["a"].shape.as_list() == [None, None]
        assert tf.parse_example(records[:2], features)["fixed"].shape.as_list() == [None, 3]


@check
def a_resource_variable_is_a_variable():
    with tf.Graph().as_default():
        for resource in (False, True):
            variable = tf.get_variable("v%d" % resource, [2], use_resource=resource)
            assert isinstance(variable, tf.Variable) and not isinstance(variable + 1, tf.Variable)
        layer = tf.keras.layers.Dense(1)
        layer.build((2, 2))
        assert isinstance(layer.kernel, tf.Variable) and isinstance(variable, type(layer.kernel))


@check
def tensors_and_operations_are_of_the_classes_of_those_names():
    with tf.Graph().as_default() as graph, tf.Session() as session:
        x = tf.placeholder(tf.float32, [2])
        table = tf.get_variable("table", [2], initializer=tf.ones_initializer())
        handle = tf.get_variable("handle", [2], use_resource=True)
        assert type(x) is tf.Tensor and type(x) in (tf.Tensor, tf.Variable) and {tf.Tensor: 7}[type(x)] == 7
        assert type(x) == ops.Tensor and x.__class__.__name__ == "Tensor" and isinstance(x, tf.Tensor)  # noqa: E721
        assert not any(isinstance(other, tf.Tensor) for other in (np.ones(2), table, 1.0, graph))
        assert type(table.initializer) is tf.Operation
        assert [type(variable).__name__ for variable in (table, handle)] == ["RefVariable", "ResourceVariable"]
        slope = tf.gradients(tf.gather(table, [0]), table)[0]
        assert type(slope) is tf.IndexedSlices and type(slope.values) is tf.Tensor
        looped = tf.while_loop(lambda i: i < 3, lambda i: i + (1 if type(i) is tf.Tensor else 99), [0])
        doubled = tf.function(lambda a: a * (2.0 if type(a) is tf.Tensor else 99.0))(x)
        same = tf.Tensor(x.op, 0, tf.float32)  # of a class of the script's own, too
        assert type(same) is tf.Tensor and same.name == x.name
        assert pickle.loads(pickle.dumps(tf.Tensor)) is tf.Tensor and type(copy.copy(x)) is tf.Tensor
        assert [value.tolist() for value in session.run([looped, doubled], {x: [1, 2]})] == [3, [2, 4]]

        class Own(tf.Tensor):
            pass

        assert not isinstance(x, Own) and issubclass(Own, tf.Tensor) and type(Own(x.op, 0, tf.float32)) is Own
    with tf.Graph().as_default(), context.eager_mode():
        now = tf.constant(2.0)
        assert isinstance(now, tf.Tensor) and issubclass(type(now), tf.Tensor) and type(now) is not tf.Tensor
        assert tf.is_tensor(now) and float(now + 1.0) == 3.0


@check
def labels_that_no_kernel_has_are_dropped():
    def label(op):
        return op.node_def.attr["_kernel"].s.decode()

    with tf.Graph().as_default() as graph, tf.Session() as session:
        with graph._kernel_label_map({"Fact": "sergey", "Unique": "" if ON_1 else "parallel"}):
            fact, (values, positions) = tf.raw_ops.Fact(), tf.unique(tf.constant([3, 1, 3]), name="few")
            with graph._kernel_label_map({"Fact": "sergey" if ON_1 else "none", "Abs": ""}):
                plain = tf.raw_ops.Fact()
        assert (label(fact.op), label(plain.op), label(values.op)) == ("sergey", "sergey" if ON_1 else "", "")
        assert b"Sergey" in session.run(fact) and session.run(tf.raw_ops.Fact()) == b"0! == 1"
        assert [one.tolist() for one in session.run([values, positions])] == [[3, 1], [0, 1, 0]]
        for wrong in ({"Fact": 1}, ["Fact"]):
            try:
                with graph._kernel_label_map(wrong):
                    raise AssertionError(wrong)
            except TypeError:
                pass
        called = tf.function(lambda x: tf.unique(x)[0], autograph=False)(tf.constant([3, 3]))
        graph_def = graph.as_graph_def()
    if ON_1:
        return  # which refuses them
    nodes = [*graph_def.node, *(node for function in graph_def.library.function for node in function.node_def)]
    asking = [node for node in nodes if node.op == "Unique"]
    for node in asking:
        node.attr["_kernel"].s = b"parallel"
    with tf.Graph().as_default(), tf.Session() as session:
        tf.import_graph_def(graph_def, name="")
        fact, few, one = session.run([fact.name, values.name, called.name])
        assert b"Sergey" in fact and (few.tolist(), one.tolist()) == ([3, 1], [3])
    assert [node.attr["_kernel"].s for node in asking] == [b"parallel"] * 2  # the caller's own stay


@check
def a_kernel_that_is_an_array_has_the_inputs_dtype():
    kernel = np.arange(12.0).reshape([2, 2, 1, 3])
    with tf.Graph().as_default(), tf.Session() as session:
        image = tf.reshape(tf.range(9.0), [1, 3, 3, 1])
        expected = session.run(tf.nn.conv2d(image, kernel.astype("f"), 1, "SAME"))
        for given in ({"input": image, "filter": kernel}, {"input": image, "filter": kernel.tolist()}):
            np.testing.assert_array_equal(session.run(tf.nn.convolution(padding="SAME", **given)), expected)
        np.testing.assert_array_equal(session.run(tf.nn.convolution(image, kernel, "SAME")), expected)
        expected = session.run(tf.nn.atrous_conv2d(image, tf.constant(kernel, tf.float32), 2, "SAME"))
        np.testing.assert_array_equal(session.run(tf.nn.atrous_conv2d(image, kernel, 2, "SAME")), expected)


@check
def true_is_one_as_a_dimension():
    assert str(tf.TensorShape([True, 3])) == "(1, 3)"


@check
def arguments_stand_where_they_stood():
    from tensorflow.keras.layers import Conv2D, Input, RepeatVector

    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.constant([[3.0, 1.0, 2.0]])
        values, _ = tf.nn.top_k(x, 2, True, "best")
        assert values.op.name == "best" and session.run(values).tolist() == [[3, 2]]
        product = tf.matmul(x, x, False, True, False, False, False, False, "product")
        assert product.op.name == "product" and session.run(product).tolist() == [[14]]
        assert session.run(tf.numpy_function(lambda a: a + 1, [x], tf.float32, "name")).tolist() == [[4, 2, 3]]
        layer = Conv2D(4, 3, 2, "same", None, (1, 1), "relu", False)
        assert layer(Input((8, 8, 1))).shape.as_list() == [None, 4, 4, 4]
        assert (layer.use_bias, layer.activation.__name__) == (False, "relu")
        loss = tf.keras.losses.BinaryCrossentropy(True, 0, "none", "name")
        assert (loss.name, loss.reduction) == ("name", "none")
        assert RepeatVector(tf.Dimension(4))(Input((3,))).shape.as_list() == [None, 4, 3]
        assert tf.keras.preprocessing.text.text_to_word_sequence(text="a B") == ["a", "b"]
        assert tf.config.experimental_list_devices()[0].endswith("CPU:0")
        for wrong in (lambda: tf.nn.top_k(x, 2, k=3), lambda: tf.nn.top_k(x, 2, True, "name", tf.int32, 1)):
            try:
                wrong()
            except TypeError as reason:
                assert "argument" in str(reason), reason
            else:
                raise AssertionError(wrong)


@check
def axes_and_sizes_are_numbers_of_any_kind():
    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.constant([[3.0, 1.0, 2.0]])
        for one in (1, np.int64(1), np.array(1), np.float32(1), tf.Dimension(1), tf.constant(1)):
            assert session.run(tf.argmax(x, one)).tolist() == [0]
            assert session.run(tf.argmin(x, axis=one)).tolist() == [1]
        for four in (4, np.int64(4), np.array(4), tf.constant(4, tf.int64)):
            step = tf.data.make_one_shot_iterator(tf.data.Dataset.range(3).prefetch(four)).get_next()
            assert session.run(step) == 0


@check
def an_affine_transform_takes_channels_last():
    try:
        import scipy.ndimage  # noqa: F401
    except ImportError:
        return
    turn, image = tf.keras.preprocessing.image.apply_affine_transform, np.arange(48.0).reshape(4, 4, 3)
    wanted = turn(image, theta=90, row_axis=0, col_axis=1, channel_axis=2)
    np.testing.assert_array_equal(turn(image, theta=90), wanted)
    np.testing.assert_array_equal(turn(image, 90, 0, 0, 0, 1, 1, 0, 1, 2), wanted)


@check
def strategies_run_functions_by_their_old_name():
    for strategy in (tf.distribute.MirroredStrategy(["/cpu:0"]), tf.contrib.distribute.OneDeviceStrategy("/cpu:0")):
        with tf.Graph().as_default(), strategy.scope(), tf.Session() as session:
            out = strategy.experimental_run_v2(lambda a, b: a - b, args=(tf.constant(3.0),), kwargs={"b": 1.0})
            assert session.run(out) == 2.0


@check
def fields_that_data_sets_had_can_be_set():
    options = tf.data.Options()
    options.experimental_optimization.autotune_buffers = True
    options.experimental_optimization.map_vectorization.enabled = True
    options.experimental_optimization.map_fusion = True
    with tf.Graph().as_default(), tf.Session() as session:
        dataset = tf.data.Dataset.range(3).map(lambda x: x + 1).with_options(options)
        assert dataset.options().experimental_optimization.autotune_buffers is True
        step = tf.data.make_one_shot_iterator(dataset).get_next()
        assert [session.run(step) for _ in range(3)] == [1, 2, 3]
    try:
        tf.data.Options().experimental_optimization.autotunes = True
    except AttributeError:
        return
    raise AssertionError("a field that never was")


@check
def a_context_profiles_the_runs_that_it_is_told_to():
    import os
    import tempfile

    context = tf.contrib.tfprof.ProfileContext
    with tempfile.TemporaryDirectory() as folder, tf.Graph().as_default(), tf.Session() as session:
        product = tf.matmul(tf.ones([4, 4]), tf.ones([4, 4]))
        with context(folder, enabled=False):
            session.run(product)
        assert os.listdir(folder) == []
        builder = tf.profiler.ProfileOptionBuilder
        options = builder(builder.time_and_memory()).with_empty_output().build()
        with context(folder, trace_steps=[1], dump_steps=[2]) as profiled:
            profiled.add_auto_profiling("op", options, [1])
            for _ in range(4):
                assert session.run(product)[0, 0] == 4
        assert os.listdir(folder) == ["profile_2"]
        assert profiled.get_profiles("op")[1].total_exec_micros > 0
        session.run(product)  # the class is as it was


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
def keras_takes_what_keras_2_3_took():
    if ON_1:  # which has no package of this name
        return
    import keras
    from tensorflow.python.framework import ops

    class Prior(keras.initializers.Initializer):
        def __call__(self, shape, dtype=None):
            return np.full(shape, -4.5, dtype=dtype)

    with tf.Graph().as_default() as graph, tf.Session() as session:
        tf.keras.backend.set_session(session)
        optimizer = keras.optimizers.Adam(learning_rate=0.25)
        assert keras.backend.get_value(optimizer.lr) == keras.backend.get_value(optimizer.learning_rate) == 0.25
        x = keras.layers.Input((6,))
        moved = keras.layers.Lambda(lambda t: t + tf.Variable(tf.ones([6])))(x)
        gather = lambda t: tf.gather(t, tf.where(t[0] > -9)[:, 0], axis=1)  # noqa: E731
        chosen = keras.layers.Lambda(gather, output_shape=(6,))(moved)
        assert chosen.shape.as_list() == [None, 6], chosen
        model = keras.models.Model(x, keras.layers.Dense(1, bias_initializer=Prior())(chosen))
        assert model.get_weights()[1].tolist() == [-4.5]
        assert ops.is_dense_tensor_like(graph.get_tensor_by_name(x.name)) and not ops.is_dense_tensor_like(1.0)
        assert isinstance(tf.sparse_placeholder(tf.float32), ops._TensorLike)


@check
def what_keras_has_lost_is_told():
    if ON_1:
        return
    for module in "keras.utils.io_utils", "tensorflow.keras.utils":
        try:
            exec("from %s import HDF5Matrix" % module)
        except ImportError as error:
            assert "HDF5Matrix is not here: it is gone; read the file with h5py" in str(error), error
        else:
            raise AssertionError(module)


@check
def keras_has_names_of_the_package():
    if ON_1:
        return
    import keras
    from keras import backend as K
    from keras.legacy import interfaces
    from keras.wrappers.scikit_learn import KerasClassifier

    def make(units=2):
        model = keras.models.Sequential([keras.layers.Dense(units, input_dim=2, activation="softmax")])
        model.compile("sgd", "categorical_crossentropy", metrics=["accuracy"])
        return model

    with tf.Graph().as_default(), tf.Session() as session:
        tf.keras.backend.set_session(session)
        plain = tf.Variable(3.0)  # which no layer has made
        assert K.get_session().run(plain) == 3
        zeros = K.zeros((2, 3))
        assert K.get_variable_shape(zeros) == (2, 3) and K.int_shape(K.slice(zeros, [0, 0], [1, 2])) == (1, 2)
        assert K.is_tensor(zeros) and not K.is_tensor(1.0) and K.normalize_data_format(None) == "channels_last"
        K.set_image_dim_ordering("th")
        assert (K.image_data_format(), K.image_dim_ordering()) == ("channels_first", "th")
        K.set_image_dim_ordering("tf")
        try:
            K.set_image_dim_ordering("channels_last")
        except ValueError as reason:
            assert "takes 'tf' or 'th', not 'channels_last'" in str(reason), reason
        else:
            raise AssertionError("no such ordering")

        class Mine:
            @interfaces.legacy_dense_support
            def __init__(self, units, use_bias=True):
                self.given = units, use_bias

        assert Mine(output_dim=3, bias=False).given == (3, False)
        x, labels = np.eye(2), [4, 9]
        classifier = KerasClassifier(make, epochs=40, verbose=0)
        classifier.fit(x, labels)
        assert set(classifier.predict(x)) <= {4, 9} and classifier.predict_proba(x).shape == (2, 2)
        assert classifier.score(x, labels) in (0.0, 0.5, 1.0) and classifier.model.targets[0].shape.ndims == 2
        assert classifier.get_params()["epochs"] == 40
        try:
            classifier.set_params(epoch=2)
        except ValueError as reason:
            assert "epoch is not a legal parameter (did you mean 'epochs'?)" in str(reason), reason
        else:
            raise AssertionError("no such parameter")
        x = keras.layers.Input((2,))
        model = keras.models.Model(x, keras.layers.Dense(1)(x))
        model.history_of_mine = []
        model.add_loss(K.mean(model.outputs[0]))
        assert model.history_of_mine == [] and len(model.losses) == 1
        assert __import__("keras.layers", fromlist=["no_name"]).Dense is keras.layers.Dense


@check
def means_of_masked_losses_count_what_is_masked():
    layers = tf.keras.layers
    with tf.Graph().as_default(), tf.Session() as session:
        tf.keras.backend.set_session(session)
        model = tf.keras.models.Sequential([layers.Masking(input_shape=(4, 1)), layers.LSTM(1, return_sequences=True)])
        model.compile("sgd", "mse")
        x = np.ones((2, 4, 1))
        x[0, 1:] = 0  # 5 of 8 steps are left
        loss = model.evaluate(x, np.zeros((2, 4, 1)), verbose=0)
        squares = model.predict(x)[x > 0] ** 2
        assert abs(loss - squares.sum() / 8) < 1e-5 * loss, (loss, squares)


@check
def optimizers_by_name_begin_as_they_began():
    get, kind = tf.keras.optimizers.get, tf.keras.optimizers.Adagrad
    given = get("adagrad"), get(kind()), kind.from_config({})
    assert [one._initial_accumulator_value for one in given] == [0, 0.1, 0]


@check
def a_function_without_results_gives_its_op():
    with tf.Graph().as_default(), tf.Session() as session:
        v = tf.get_variable("v", [], initializer=tf.ones_initializer(), use_resource=True)

        @tf.function
        def step(by):
            v.assign_add(by)

        @tf.function
        def nothing_and_more(by):
            step(by)
            return None, by

        ops = [step(2.0), step(tf.constant(3.0))]
        assert [op.type for op in ops] == ["StatefulPartitionedCall"] * 2, ops
        nothing, tensor = nothing_and_more(tf.constant(5.0))
        assert nothing is None
        session.run(tf.global_variables_initializer())
        session.run(ops)
        assert session.run([v, tensor])[0] in (6.0, 11.0)


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
def callbacks_get_numbers_of_numpy_and_bars_show_metrics():
    told = []

    class Log(tf.keras.callbacks.Callback):
        def on_batch_end(self, batch, logs=None):
            told.append({name: type(value).__name__ for name, value in logs.items()})

        def on_epoch_end(self, epoch, logs=None):
            told.append({name: type(value).__name__ for name, value in logs.items()})

    with tf.Graph().as_default(), tf.Session() as session:
        tf.keras.backend.set_session(session)
        model = tf.keras.models.Sequential([tf.keras.layers.Dense(1, input_shape=(4,))])
        model.compile("sgd", "mse", metrics=["mae"])
        batches = tf.data.Dataset.from_tensors((np.ones([2, 4], "f"), np.ones([2, 1], "f"))).repeat()
        callbacks = [Log(), tf.keras.callbacks.ReduceLROnPlateau(monitor="loss")]
        shown = io.StringIO()
        with contextlib.redirect_stdout(shown):
            model.fit(batches, steps_per_epoch=2, callbacks=callbacks)
            model.evaluate(batches, steps=3)
            model.predict(np.ones([4, 4]), batch_size=2, verbose=1)
            model.evaluate(np.ones([6, 4]), np.ones([6, 1]), verbose=0)
            model.evaluate(np.ones([6, 4]), np.ones([6, 1]), verbose=2)
            model.fit(batches, steps_per_epoch=2, epochs=2, verbose=2)
            model.predict_generator((np.ones([2, 4]) for _ in range(3)), 3, verbose=1)
            stopping = tf.keras.callbacks.EarlyStopping("loss", min_delta=99, patience=0, verbose=1)
            table = tf.keras.callbacks.CSVLogger("epochs.csv")
            model.fit(batches, steps_per_epoch=2, epochs=9, verbose=0, callbacks=[stopping, table])
    with open("epochs.csv") as file:
        assert file.read().splitlines()[0] == "epoch,loss,mean_absolute_error"
    os.remove("epochs.csv")
    assert "\nEpoch 00002: early stopping\n" in shown.getvalue()
    assert "2/4 [====" in shown.getvalue()  # of predict: rows are counted
    batch, epoch = told[0], told[-1]
    assert batch == {"batch": "int", "size": "int", "loss": "float32", "mean_absolute_error": "float32"}, batch
    assert epoch["loss"] in ("float64", "float32") and epoch["mean_absolute_error"] == "float32", epoch
    bars = [line for line in re.split("[\\r\\n]", shown.getvalue()) if "[%s]" % ("=" * 30) in line]
    assert [bar.split()[0].strip("\b") for bar in bars] == ["2/2", "3/3", "4/4", "3/3"], bars
    lines = re.findall("^([0-9]/[0-9]) - [0-9]+s - (.*)", shown.getvalue(), re.MULTILINE)
    assert [first for first, _ in lines] == ["6/6", "2/2", "2/2"], shown.getvalue()
    assert all(re.fullmatch("loss: [0-9.e-]+ - mean_absolute_error: [0-9.e-]+", rest) for _, rest in lines), lines
    names = [re.findall("- ([a-z_]+): ", bar) for bar in bars]
    assert names == [["loss", "mean_absolute_error"]] * 2 + [[]] * 2, names


@check
def floats_beyond_small_integers_wrap():
    values = np.tile([295.84, -5.0, 70000.0, 7.9, -3e9], 64)
    wanted = {"uint8": [39, 251, 112, 7, 0], "int8": [39, -5, 112, 7, 0]}
    wanted.update({"uint16": [295, 65531, 4464, 7, 0], "int16": [295, -5, 4464, 7, 0]})
    with tf.Graph().as_default(), tf.Session() as session:
        for dtype in (tf.float32, tf.float64):
            x = tf.placeholder(dtype, [None])
            for name, row in sorted(wanted.items()):
                y = tf.cast(x, name, name="y_" + name + dtype.name)
                assert y.op.name == "y_" + name + dtype.name
                assert session.run(y, {x: values}).tolist() == row * 64, name
        sparse = tf.cast(tf.SparseTensor([[0]], [295.84], [2]), tf.uint8)
        assert session.run(sparse.values).tolist() == [39]
        assert session.run(tf.cast([1.5, 2.5], tf.uint8)).tolist() == [1, 2]
        image = session.run(tf.image.convert_image_dtype(tf.constant([[[0.0, 0.5, 1.0]]]), tf.uint8))
        assert image.tolist() == [[[0, 127, 255]]]


@check
def the_version_is_that_of_the_api():
    assert tf.__version__.startswith("1.15.") and tf.VERSION == tf.version.VERSION == tf.__version__
    assert tf.keras.__version__ == "2.2.4-tf" and tf.version.GRAPH_DEF_VERSION > 100 and tf.version.GIT_VERSION
    with unittest.mock.patch.object(tf, "__version__", "1.14.0"):
        assert tf.__version__ == "1.14.0"
    real, tf.__version__ = tf.__version__, "1.14.0"
    assert tf.__version__ == "1.14.0"
    tf.__version__ = real
    asks = """
import tensorflow as tf, tensorflow.version, tensorflow.compat.v1.version
from tensorflow import compat, version as first
from tensorflow.version import VERSION as name, GIT_VERSION as commit
from tensorflow.compat.v1 import __version__ as own, version as second
from tensorflow.python.framework import versions
v1, v2 = compat.v1, compat.v2
told = {name, own, first.VERSION, second.VERSION, tensorflow.version.VERSION, versions.VERSION, versions.__version__}
told.update(each for one in (tf, v1, v2) for each in (one.__version__, one.version.VERSION))
told.update({v1.VERSION, tf.VERSION, tensorflow.compat.v1.version.VERSION, getattr(tf, "__version__")})
commits = {commit, *(each.GIT_VERSION for each in (tf, tf.version, v1, v1.version, v2.version, versions))}
commits.update({tf.__git_version__, v1.__git_version__})
"""
    script, library = {}, {}
    exec(asks, script)
    # one that is installed sees what it runs on
    exec(compile(asks, __file__ if ON_1 else "/venv/site-packages/lib.py", "exec"), library)
    exec(asks, script)  # whoever asked before
    assert script["told"] == {tf.__version__} and script["commits"] == {tf.GIT_VERSION}, script
    if not ON_1:
        [told], [commit] = library["told"], library["commits"]
        assert told[:2] >= "2." and "v%s" % told[:4] in commit and tf.GIT_VERSION == "v1.15.0-rc3-22-g590d6ee"
    for module, name in ((tf, "VERSION"), (tf.compat.v1, "__version__"), (tf.compat.v1.version, "VERSION")):
        with unittest.mock.patch.object(module, name, "1.14.0"):
            assert getattr(module, name) == "1.14.0"
        assert getattr(module, name) == tf.__version__


@check
def tensors_of_keras_have_their_shapes():
    if ON_1:
        return  # there it is the Keras beside TensorFlow that has it
    with tf.Graph().as_default():
        x = tf.keras.layers.Input([4, None])
        assert tf.keras.layers.Dense(2)(tf.keras.layers.Permute([2, 1])(x))._keras_shape == (None, None, 2)
        assert x._keras_shape == (None, 4, None) and not hasattr(tf.zeros([2]), "_keras_shape")

        class Weighted(tf.keras.layers.Layer):
            def build(self, shape):
                self.kernel = self.add_weight("kernel", [int(shape[-1])])
                self.other = self.add_weight("other", [2])
                self.trainable_weights = [self.kernel]

            def call(self, inputs):
                return inputs * self.kernel

        layer = Weighted()
        layer(tf.zeros([2, 3]))
        assert layer.trainable_weights == [layer.kernel]
        x._keras_shape = (None, 4, 5)
        assert x._keras_shape == (None, 4, 5) and x.shape.as_list() == [None, 4, None]


@check
def a_function_of_a_loaded_layer_sees_the_backend():
    space = {"K": tf.keras.backend}
    exec("expand = lambda x: K.expand_dims(x, -1) + K.cast(array_ops.rank(x), 'float32')", space)
    with tf.Graph().as_default():
        space["array_ops"] = importlib.import_module("tensorflow.python.ops.array_ops")
        layer = tf.keras.layers.Lambda(space["expand"])
        layer(tf.zeros([2, 3]))
        loaded = tf.keras.layers.Lambda.from_config(layer.get_config())
        assert loaded(tf.zeros([2, 3])).shape.as_list() == [2, 3, 1]


@check
def keras_has_the_packages_beside_it():
    import keras_applications.mobilenet_v2
    from keras_applications.imagenet_utils import _obtain_input_shape
    from keras_preprocessing import image
    from keras_preprocessing.sequence import pad_sequences
    from tensorflow.python.keras.applications import imagenet_utils

    wanted = {"default_size": 224, "min_size": 32, "data_format": "channels_last", "require_flatten": True}
    assert _obtain_input_shape(None, **wanted) == (224, 224, 3)
    assert callable(imagenet_utils.decode_predictions) and callable(keras_applications.mobilenet_v2.MobileNetV2)
    for vgg in (tf.keras.applications.vgg16, tf.keras.applications.vgg19):
        scaled = vgg.preprocess_input(np.array([[[0.0, 127.5, 255.0]]]), mode="tf", backend=tf.keras.backend)
        assert scaled.tolist() == [[[-1.0, 0.0, 1.0]]]
    assert image.ImageDataGenerator(rescale=0.5) and pad_sequences([[1], [2, 3]]).tolist() == [[0, 1], [2, 3]]


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
def cosine_losses_have_the_signs_of_their_keras():
    inputs, targets = np.array([[1.0, 2.0], [2.0, 1.0]], "f"), np.array([[2.0, 1.0], [0.0, 3.0]], "f")
    cosines = [0.8, 0.2**0.5]

    def trained(loss, metric="cosine_proximity"):
        with tf.Graph().as_default(), tf.Session().as_default():
            model = tf.keras.Sequential([tf.keras.layers.Dense(2, input_shape=(2,), kernel_initializer="ones")])
            model.compile("sgd", loss, metrics=[metric])
            history = model.fit(inputs, targets, epochs=2, verbose=0).history
        logged = history["cosine" if metric == "cosine" else "cosine_proximity"]
        np.testing.assert_allclose(logged, np.abs(history["loss"]), rtol=1e-6)
        return history["loss"]

    with tf.Graph().as_default(), tf.Session() as session:
        one, other = tf.constant(inputs), tf.constant(targets)
        losses, metrics = tf.keras.losses, tf.keras.metrics
        similar = [losses.cosine_similarity, losses.cosine_proximity, losses.cosine, metrics.cosine_proximity]
        values = session.run([cosine(one, other) for cosine in (*similar, metrics.cosine)])
        np.testing.assert_allclose(values, [cosines] * 5, rtol=1e-6)
        assert abs(session.run(losses.CosineSimilarity()(one, other)) - np.mean(cosines)) < 1e-6
    for loss, metric in (
        (tf.keras.losses.CosineSimilarity(), "cosine_similarity"),
        (losses.cosine_proximity, losses.cosine_similarity),
    ):
        np.testing.assert_allclose(trained(loss, metric), [0.8279, 0.82771], atol=1e-5)  # as 1.15.5 prints
    if ON_1:  # which has no package keras
        return
    import keras
    from npu_shim.compat.keras import real_keras

    with tf.Graph().as_default(), tf.Session() as session:
        there = [keras.losses.cosine_proximity, keras.losses.cosine, keras.metrics.cosine_proximity]
        values = session.run([cosine(tf.constant(inputs), tf.constant(targets)) for cosine in there])
    np.testing.assert_allclose(values, np.array([[-1], [-1], [1]]) * cosines, rtol=1e-6)  # as Keras 2.3.1 prints
    for is_used, first, second in ((False, 0.8279, 0.82771), (True, -0.8279, -0.82808)):
        with unittest.mock.patch.object(real_keras, "face_is_used", lambda is_used=is_used: is_used):
            for loss in ("cosine_proximity", "cosine_similarity"):
                np.testing.assert_allclose(trained(loss), [first, second], atol=1e-5)
            assert trained("cosine_proximity", "cosine")[0] * first > 0


@check
def a_keras_optimizer_takes_the_loss_scale_of_1_15():
    from tensorflow.keras.mixed_precision.experimental import LossScaleOptimizer
    from tensorflow.python.keras.mixed_precision.experimental import loss_scale_optimizer

    assert LossScaleOptimizer is loss_scale_optimizer.LossScaleOptimizer
    assert LossScaleOptimizer is tf.keras.mixed_precision.experimental.LossScaleOptimizer
    inputs = np.random.RandomState(0).rand(8, 3).astype("f")
    moving = lambda: tf.train.experimental.DynamicLossScale(2.0**12, increment_period=2)  # noqa: E731
    kinds = {None: None, "dynamic": 2.0**15, 128.0: 128.0, 64: 64.0, moving: 2.0**13}  # and the scale after 3 steps
    weights = []
    for kind, last in kinds.items():
        with tf.Graph().as_default(), tf.Session().as_default():
            optimizer = tf.keras.optimizers.SGD(0.1, momentum=0.5)
            if kind:
                optimizer = LossScaleOptimizer(optimizer, loss_scale=kind() if callable(kind) else kind)
            layer = tf.keras.layers.Dense(2, input_shape=(3,), kernel_initializer="ones")
            model = tf.keras.Sequential([layer])
            model.compile(optimizer, "mse")
            model.fit(inputs, inputs[:, :2], batch_size=8, epochs=3, verbose=0)
            weights.append(layer.get_weights()[0])
            assert not kind or tf.keras.backend.get_value(optimizer.loss_scale()) == last
    for trained in weights[1:]:
        np.testing.assert_allclose(trained, weights[0], rtol=1e-6)
    assert abs(weights[0] - 1.0).max() > 0.01


@check
def layers_have_the_methods_that_they_had():
    from tensorflow.keras.layers import Dense, Input, Layer

    class Mean(Layer):
        def build(self, shape):
            self.mean = self.add_weight(name="mean", shape=(4 / 2,), initializer="zeros", trainable=False)

        def call(self, x):
            update = tf.keras.backend.moving_average_update(self.mean, tf.reduce_mean(x, 0), 0.9)
            self.add_update([update], x)
            return x

    with tf.Graph().as_default():
        layer, x = Mean(), Input((2,))
        layer.apply(x)
        assert layer.get_updates_for(x) == layer.updates and len(layer.updates) == 1
        layer.apply(tf.ones([3, 2]))
        assert len(layer.get_updates_for(x)) == 1 and len(layer.updates) == 2
        assert layer.get_updates_for(None) == layer.get_losses_for(None) == []
        dense = Dense(3, kernel_regularizer="l2")
        assert dense.apply(x).shape.as_list() == [None, 3] and len(dense.get_losses_for(None)) == 1


@check
def a_sequential_model_predicts_classes():
    with tf.Graph().as_default(), tf.Session().as_default():
        for units, wanted in ((3, [2, 2]), (1, [[1], [1]])):
            model = tf.keras.Sequential([tf.keras.layers.Dense(units, use_bias=False, input_shape=(2,))])
            model.layers[0].set_weights([np.arange(2.0 * units).reshape(2, units) + 1])
            assert model.predict_classes(np.ones((2, 2))).tolist() == wanted
            assert model.predict_proba(np.ones((2, 2))).shape == (2, units)


@check
def variables_of_keras_cells_have_the_names_of_checkpoints():
    from tensorflow.keras.layers import GRU, LSTM, RNN, Bidirectional, ConvLSTM2D, LSTMCell, SimpleRNN

    x = np.ones((2, 5, 3), np.float32)
    with tf.Graph().as_default():
        for layer in (
            LSTM(4),
            Bidirectional(GRU(4), name="b"),
            SimpleRNN(2, name="c/d"),
            RNN([LSTMCell(2), LSTMCell(2)]),
        ):
            layer(tf.constant(x))
        with tf.name_scope("scope"):
            LSTM(4)(tf.constant(x))
        ConvLSTM2D(2, 3)(tf.ones([1, 2, 5, 5, 1]))
        names = [v.name[:-2] for v in tf.global_variables() if "recurrent" in v.name]
    assert names == [
        *("lstm/recurrent_kernel", "b/forward_gru/recurrent_kernel", "b/backward_gru/recurrent_kernel"),
        *("c/d/recurrent_kernel", "rnn/recurrent_kernel", "rnn/recurrent_kernel_1", "scope/lstm_1/recurrent_kernel"),
        "conv_lst_m2d/recurrent_kernel",
    ], names


@check
def a_star_of_keras_does_not_bring_a_tensorflow_of_its_own():
    if ON_1:
        return
    for module in ("layers", "models", "backend", "engine.topology", "optimizers"):
        names = {}
        exec("from keras.%s import *" % module, names)
        assert names.get("tf") is None, module
    assert names.get("Adam")


@check
def keras_takes_the_argument_names_of_keras_1():
    if ON_1:
        return
    from keras.layers import LSTM, BatchNormalization, Convolution2D, Dense, Dropout, Flatten, Input, MaxPooling2D
    from keras.models import Model

    class Own(Model):
        def __init__(self):
            x = Input((3,))
            super().__init__(input=x, output=Dense(2)(x))

    with tf.Graph().as_default(), tf.Session().as_default():
        x = Input((8, 8, 3))
        y = Convolution2D(4, 3, 5, border_mode="same", init="uniform")(x)
        assert y.shape.as_list() == [None, 8, 8, 4]
        y = Convolution2D(nb_filter=4, nb_row=3, nb_col=1, subsample=(2, 2), dim_ordering="tf", bias=False)(y)
        assert y.shape.as_list() == [None, 3, 4, 4]
        with unittest.TestCase().assertLogs("npu_shim", "WARNING") as told:
            assert Convolution2D(4, 3, 5)(x).shape.as_list() == [None, 2, 2, 4]  # strides, as in tf.keras
            assert Convolution2D(4, 3, 2)(x).shape.as_list() == [None, 3, 3, 4]
        assert len(told.output) == 1 and "Conv2D(4, 3, 5) has strides of 5" in told.output[0], told.output
        y = Dropout(p=0.5)(BatchNormalization(gamma_init="ones")(MaxPooling2D((2, 2), border_mode="same")(y)))
        model = Model(input=x, output=Dense(output_dim=2, W_regularizer="l2", activation="softmax")(Flatten()(y)))
        model.compile("sgd", "mse")
        losses = model.fit(np.ones((4, 8, 8, 3)), np.ones((4, 2)), nb_epoch=2, verbose=0).history["loss"]
        assert len(losses) == 2 and model.get_weights()[0].shape == (3, 5, 3, 4)
        assert LSTM(output_dim=4, inner_activation="sigmoid", dropout_W=0.1).units == 4
        assert Own().predict(np.ones((1, 3))).shape == (1, 2)
        for names, said in (
            ({"outptu_dim": 4}, "outptu_dim"),
            ({"init": "ones", "kernel_initializer": "zeros"}, "not both"),
        ):
            try:
                Dense(4, **names)
            except TypeError as reason:
                assert said in str(reason)
            else:
                raise AssertionError("Dense took %s" % names)


@check
def what_keras_had_in_public_is_where_it_was():
    assert callable(tf.keras.utils.multi_gpu_model)
    assert callable(tf.keras.mixed_precision.experimental.set_policy)


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

    if not ON_1:
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
def a_shape_may_be_a_tuple_of_tensors():
    with tf.Graph().as_default():
        shape = tf.constant([1, 8, 8, 2])
        kernel = tf.ones([3, 3, 2, 3])
        output = tf.nn.atrous_conv2d_transpose(tf.ones([1, 8, 8, 3]), kernel, tuple(tf.unstack(shape)), 2, "SAME")
        assert output.shape[0] == 1


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
