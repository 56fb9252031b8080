"""Every import of the bridge or of hccl brings NpuOptimizer to life, as loading an NPU's plugin does."""

import sys

import pytest
import sessions
import tensorflow.compat.v1 as tf

import npu_shim

FORMS = [
    "import npu_bridge",
    "from npu_bridge.npu_init import *",
    "from npu_bridge.estimator import npu_ops",
    "from npu_bridge.estimator.npu_unary_ops import npu_unary_ops",
    "from npu_bridge.estimator.npu.npu_config import NPURunConfig",
    "from npu_bridge.estimator.npu.npu_estimator import NPUEstimator",
    "from npu_bridge.estimator.npu.npu_optimizer import NPUDistributedOptimizer",
    "from npu_bridge.estimator.npu.npu_loss_scale_optimizer import NPULossScaleOptimizer",
    "from npu_bridge.estimator.npu.npu_loss_scale_optimizer import FixedLossScaleManager",
    "from npu_bridge.estimator.npu.npu_hook import NPUBroadcastGlobalVariablesHook",
    "from npu_bridge.estimator.npu.npu_dynamic_rnn import DynamicRNN",
    "from npu_bridge.estimator.npu import npu_plugin, util",
    "from npu_bridge.hccl import hccl_ops",
    "import hccl",
    "import hccl.manage.api",
    "from hccl.manage.api import get_rank_id, get_rank_size",
    "from hccl.split.api import set_split_strategy_by_idx",
]
FACES = ("npu_bridge", "hccl")


@pytest.fixture(params=FORMS)
def imported(request, monkeypatch):
    """The bridge is imported in one form, as the first thing a program does; sessions are TensorFlow's own before."""
    for name in [name for name in sys.modules if name.split(".")[0] in FACES]:
        monkeypatch.delitem(sys.modules, name)
    npu_shim.unpatch()
    exec(request.param, {})
    yield request.param
    npu_shim.unpatch()
    for name in [name for name in sys.modules if name.split(".")[0] in FACES]:
        monkeypatch.delitem(sys.modules, name)


def product(config):
    """1 + 2 + 3 + 2049 with inputs rounded to the dtype of the product: 2055 in float32, 2054 in float16."""
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [None, 4])
        y = tf.matmul(x, tf.ones([4, 4]))
        with tf.Session(config=config) as session:
            return session.run(y, {x: [[1, 2, 3, 2049.0]]})[0, 0]


def test_a_session_whose_config_names_it_runs_through_it(imported):
    assert product(sessions.config(precision_mode="allow_mix_precision")) == 2054.0
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"no_such_mode.*precision"):
        product(sessions.config(precision_mode="no_such_mode"))


def test_only_npu_init_adds_it_to_the_others(imported):
    assert product(tf.ConfigProto()) == (2054.0 if "npu_init" in imported else 2055.0)
