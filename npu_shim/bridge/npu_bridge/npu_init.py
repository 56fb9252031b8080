"""`from npu_bridge.npu_init import *`: every name the vendor's exports, and what its import does.

Sessions go through NpuOptimizer from now on (`npu_shim.unpatch()` takes that back). Under TensorFlow 2 the
exported `tf` is TensorFlow 1's API and its behaviour is turned on: graphs, no eager execution, reference variables.
"""

import os

from tensorflow.core.protobuf import config_pb2, rewriter_config_pb2
from tensorflow.core.protobuf.rewriter_config_pb2 import RewriterConfig

from hccl.manage.api import *
from hccl.split.api import set_split_strategy_by_idx, set_split_strategy_by_size
from npu_bridge import embedding as npu_embedding
from npu_bridge import scoped_graph_manager
from npu_bridge.estimator import npu_ops
from npu_bridge.estimator.npu import (
    keras_to_npu,
    npu_plugin,
    npu_rnn,
    npu_scope,
    npu_strategy,
    util,
)
from npu_bridge.estimator.npu.npu_callbacks import NPUBroadcastGlobalVariablesCallback
from npu_bridge.estimator.npu.npu_config import (
    DumpConfig,
    DynamicInputConfig,
    MemoryConfig,
    NPURunConfig,
    ProfilingConfig,
)
from npu_bridge.estimator.npu.npu_estimator import NPUEstimator, NPUEstimatorSpec
from npu_bridge.estimator.npu.npu_hook import (
    NPUBroadcastGlobalVariablesHook,
    NPUCheckpointSaverHook,
    NPUOutputTensorHook,
    SetIterationsVarHook,
    TellMeStepOrLossHook,
)
from npu_bridge.estimator.npu.npu_loss_scale_manager import (
    ExponentialUpdateLossScaleManager,
    FixedLossScaleManager,
)
from npu_bridge.estimator.npu.npu_loss_scale_optimizer import NPULossScaleOptimizer
from npu_bridge.estimator.npu.npu_optimizer import (
    KerasDistributeOptimizer,
    NPUDistributedOptimizer,
    NPUOptimizer,
    npu_allreduce,
    npu_distributed_optimizer_wrapper,
)
from npu_bridge.estimator.npu_unary_ops import npu_unary_ops
from npu_bridge.hccl import hccl_ops
from npu_bridge.npu_cpu import npu_cpu_ops
from npu_bridge.profiler import profiler
from npu_shim.bridge.ops.keras_names import backend
from npu_shim.bridge.ops.resources import (
    close_session,
    decorator_tf_session,
    get_npu_local_rank_id,
    get_npu_local_rank_size,
    get_npu_rank_id,
    get_npu_rank_size,
    init_resource,
    npu_clear_session,
    npu_session_config_init,
    set_keras_session_npu_config,
    shutdown_resource,
)
from npu_shim.bridge.ops.resources import tensorflow1 as _tensorflow1
from npu_shim.bridge.ops.resources import use_tensorflow1 as _use_tensorflow1
from npu_shim.distributed.collectives.hccl import npu_tf_optimizer
from npu_shim.estimator.hooks import NpuEmptyHook, npu_hooks_append
from npu_shim.estimator.keras import npu_callbacks_append, npu_keras_optimizer
from npu_shim.options.entrances.config_proto import (
    npu_config_proto,
    npu_graph_options,
    npu_optimizer_options,
    npu_run_config_init,
)
from npu_shim.rewriter import tf_internals as _tf_internals
from npu_shim.session.interception import patch as _session

tf = _tensorflow1()
session = _tf_internals.client_session()
session_run_hook = _tf_internals.session_run_hook()
experimental_options = {
    "disable_model_pruning": False,
    "function_optimization": RewriterConfig.ON,
    "constant_folding": RewriterConfig.ON,
    "shape_optimization": RewriterConfig.ON,
    "arithmetic_optimization": RewriterConfig.ON,
    "loop_optimization": RewriterConfig.ON,
    "dependency_optimization": RewriterConfig.ON,
    "layout_optimizer": RewriterConfig.ON,
}

_session.patch()
_use_tensorflow1()
