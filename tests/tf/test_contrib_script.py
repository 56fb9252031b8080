"""A script's own imports of tf.contrib and of moved names, and slim's training loop, through `npu-shim run`."""

import os
import subprocess
import sys

import pytest

from npu_shim.compat.names import exports, names

pytestmark = [
    pytest.mark.skipif(names.tensorflow_1(), reason="TensorFlow 1 has the real tf.contrib"),
    pytest.mark.skipif(exports.file_of("tf_slim") is None, reason="tf-slim is not installed: npu-shim[contrib]"),
]

SCRIPT = """
import sys
import numpy as np
import tensorflow as tf
import tensorflow.contrib as tc
import tensorflow.contrib.slim as slim
import tensorflow.contrib.slim.nets
from tensorflow.contrib import layers, rnn
from tensorflow.contrib.framework import nest
from tensorflow.contrib.framework.python.ops import add_arg_scope, arg_scope, variables
from tensorflow.contrib.layers.python.layers import initializers, utils
from tensorflow.contrib.opt import *
from tensorflow.contrib.rnn import LSTMCell, LayerNormBasicLSTMCell
from tensorflow.contrib.rnn.python.ops import core_rnn_cell
from tensorflow.contrib.seq2seq.python.ops.attention_wrapper import BahdanauAttention, _BaseAttentionMechanism
from tensorflow.contrib.slim.nets import resnet_v1
from tensorflow.contrib.slim.python.slim.nets import vgg
from tensorflow.contrib.training.python.training.hparam import HParams
from tensorflow.examples.tutorials.mnist import input_data
from tensorflow.python import pywrap_tensorflow
from tensorflow.python.framework.ops import Tensor
from tensorflow.python.layers import base, core
from tensorflow.python.ops import control_flow_ops, rnn_cell_impl

assert tf.contrib.rnn is rnn and tc.slim is slim and slim.nets.vgg is vgg
assert LSTMCell is tf.nn.rnn_cell.LSTMCell and core_rnn_cell.LSTMCell is LSTMCell
assert issubclass(BahdanauAttention, _BaseAttentionMechanism)
assert AdamWOptimizer is tf.contrib.opt.AdamWOptimizer
assert arg_scope is tf.contrib.framework.arg_scope and nest.flatten([1, [2]]) == [1, 2]
assert isinstance(tf.contrib.layers.xavier_initializer()([2, 2]), Tensor)
assert tf.pywrap_tensorflow.NewCheckpointReader is pywrap_tensorflow.NewCheckpointReader
assert rnn_cell_impl._linear and control_flow_ops.while_loop

for statement in ("tf.contrib.rnn.LSTMCel", "from tensorflow.contrib import seq2sq", "import tensorflow.contrib.rn",
                  "tf.contrib.eager.seterr", "tf.nn_", "from tensorflow.contrib.rnn import LSTMCel"):
    try:
        exec(compile(statement, "user.py", "exec"))
    except (AttributeError, ImportError) as error:
        print(type(error).__name__, error)

tf.set_random_seed(1)
x = tf.constant(np.random.RandomState(0).rand(8, 8, 8, 3), tf.float32)
with slim.arg_scope([slim.conv2d], normalizer_fn=slim.batch_norm, weights_regularizer=slim.l2_regularizer(1e-3)):
    net = slim.conv2d(x, 8, 3, stride=2)
logits = slim.fully_connected(slim.flatten(net), 3, activation_fn=None)
tf.losses.sparse_softmax_cross_entropy([0, 1, 2, 0, 1, 2, 0, 1], logits)
train = slim.learning.create_train_op(slim.losses.get_total_loss(), tf.train.AdamOptimizer(0.01))
print("loss", slim.learning.train(train, sys.argv[1], number_of_steps=30, log_every_n_steps=100))
print(dict(tf.train.list_variables(sys.argv[1]))["Conv/BatchNorm/moving_mean"])
with tf.Graph().as_default(), tf.Session() as session:
    slim.conv2d(tf.zeros([1, 8, 8, 3]), 8, 3, normalizer_fn=slim.batch_norm)
    slim.assign_from_checkpoint_fn(tf.train.latest_checkpoint(sys.argv[1]), slim.get_model_variables())(session)
"""
WANTED = """
AttributeError npu_shim: tf.contrib.rnn.LSTMCel is not here (did you mean 'tf.contrib.rnn.LSTMCell'?) [user.py, line 1]
ImportError npu_shim: tf.contrib.seq2sq is not here (did you mean 'tf.contrib.seq2seq'?) [user.py, line 1]
ImportError npu_shim: tf.contrib.rn is not here (did you mean 'tf.contrib.rnn'?) [user.py, line 1]
AttributeError npu_shim: tf.contrib.eager.seterr is not here: use tf.debugging.enable_check_numerics [user.py, line 1]
AttributeError npu_shim: tf.nn_ is not here (did you mean 'tf.nn'?) [user.py, line 1]
ImportError npu_shim: tf.contrib.rnn.LSTMCel is not here (did you mean 'tf.contrib.rnn.LSTMCell'?) [user.py, line 1]
"""


def test_a_script_of_tensorflow_1(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "npu_shim", "run", str(script), str(tmp_path / "model")],
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}, cwd=str(tmp_path), stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for line in WANTED.strip().splitlines():
        assert line in done.stdout
    loss = float(next(line for line in done.stdout.splitlines() if line.startswith("loss")).split()[1])
    assert loss < 1.0
    assert "[8]" in done.stdout
