"""What the vendor's modules import, and so expose: scripts take names from there that were never meant as its surface.

`from npu_bridge.estimator.npu.npu_loss_scale_optimizer import FixedLossScaleManager` works on an NPU, and
`from npu_bridge.estimator.npu.npu_estimator import *` brings `time` and `os`. Source: Ascend adapter of 2021-02 and of
2023-12 (r1.15), whose imports are put together here.
"""

from __future__ import annotations

import importlib
from typing import Any

from npu_shim.bridge.ops import resources
from npu_shim.rewriter.tf_internals import python_module

BRIDGE = "npu_bridge."
NPU = BRIDGE + "estimator.npu."

# a module of the bridge -> the names it exposes, each a key of MEANINGS
EXPOSED = {
    "estimator.npu_ops": (
        "array_ops context device dtypes gen_npu_ops helper NPUBasics numbers ops os random_seed resource_loader "
        "tensor_shape tf threading"
    ),
    "estimator.npu_unary_ops": "helper ops resource_loader",
    "estimator.npu_aicore_ops": "helper ops resource_loader",
    "estimator.npu.keras_to_npu": (
        "checkpoint_management gfile logging math_ops monitored_session NPUEstimator NPUEstimatorSpec NPURunConfig ops "
        "os random_seed re saver_lib session signature_constants six tempfile tensor_util training_util"
    ),
    "estimator.npu.npu_callbacks": "control_flow_ops hccl_ops os state_ops util_lib",
    "estimator.npu.npu_common": "json logging os util_lib",
    "estimator.npu.npu_config": (
        "Enum config_pb2 gfile json os ParameterServerStrategy re RewriterConfig server_lib util"
    ),
    "estimator.npu.npu_dynamic_rnn": "array_ops dtypes helper init_ops math os tensor_shape tf",
    "estimator.npu.npu_estimator": (
        "array_ops collections config_pb2 constant_op control_flow_ops copy function_utils json logging NPUBasics "
        "NPUBroadcastGlobalVariablesHook NPUCheckpointSaverHook NPUOutputTensorHook NPURunConfig NPUSaver "
        "NPUShutDownHook npu_ops ops os Queue random rewriter_config_pb2 session_run_hook SetIterationsVarHook signal "
        "six string sys tf tf_inspect threading time util util_lib xrange basic_session_run_hooks contrib_summary "
        "hccl_ops"
    ),
    "estimator.npu.npu_hook": (
        "basic_session_run_hooks config_pb2 contrib_summary hccl_ops logging npu_ops os Queue session_run_hook tf "
        "threading time util util_lib"
    ),
    "estimator.npu.npu_loss_scale_manager": (
        "abc control_flow_ops dtypes gen_control_flow_ops gen_math_ops ops six state_ops variable_scope"
    ),
    "estimator.npu.npu_loss_scale_optimizer": (
        "context control_flow_ops FixedLossScaleManager gen_control_flow_ops gen_math_ops hccl_ops helper math_ops "
        "npu_ops npu_plugin optimizer os tf"
    ),
    "estimator.npu.npu_optimizer": (
        "context control_flow_ops gen_control_flow_ops gen_math_ops hccl_ops helper logging math_ops NPUBasics npu_ops "
        "npu_scope optimizer os tf util"
    ),
    "estimator.npu.npu_plugin": "get_local_rank_size get_rank_id init_ops json logging npu_scope os tf_adapter util "
    "variable_scope",
    "estimator.npu.npu_rnn": "tf",
    "estimator.npu.npu_saver": (
        "array_ops BulkSaverBuilder context hccl_ops logging ops saveable_object_util Saver saver_pb2 tf util variables"
    ),
    "estimator.npu.npu_scope": "attr_value_pb2 compat contextlib NpuExecutePlacement ops util",
    "estimator.npu.npu_strategy": "distribute_lib get_rank_id get_rank_size one_device_strategy os tf util_lib",
    "estimator.npu.util": (
        "attr_value_pb2 compat dtypes ExperimentalConfig GraphMemoryOptimizeConfig init_ops ops os "
        "resource_variable_ops six tf training_util variable_pb2 variable_scope"
    ),
    "hccl.hccl_ops": "helper load_library ops resource_loader",
    "image.image_ops": "helper load_library resource_loader",
    "npu_cpu.lru_cache": "helper load_library ops resource_loader tf",
    "npu_cpu.npu_cpu_ops": "helper load_library ops resource_loader",
    "tbe.npu_cube_ops": "context helper nn_ops ops",
    "tbe.npu_vector_ops": "context helper ops prelu",
}


def _within(prefix, names):
    return {name: prefix + name for name in names.split()}


# name -> where it is: a module, or "module:name in it"; "." is tensorflow.python. `tf` is not here, see `_meaning`
MEANINGS = {
    **_within("", "abc collections contextlib copy json math numbers os random re signal six string"),
    **_within("", "sys tempfile threading time"),
    **_within(".framework.", "constant_op device dtypes load_library ops random_seed tensor_shape tensor_util"),
    **_within(".ops.", "array_ops control_flow_ops gen_control_flow_ops gen_math_ops init_ops math_ops nn_ops"),
    **_within(".ops.", "resource_variable_ops state_ops variable_scope variables"),
    **_within(".training.", "basic_session_run_hooks checkpoint_management monitored_session optimizer server_lib"),
    **_within(".training.", "session_run_hook training_util"),
    **_within(".distribute.", "distribute_lib one_device_strategy"),
    **_within(".platform.", "gfile resource_loader"),
    **_within(".util.", "compat function_utils tf_inspect"),
    **_within("tensorflow.core.framework.", "attr_value_pb2 variable_pb2"),
    **_within("tensorflow.core.protobuf.", "config_pb2 rewriter_config_pb2 saver_pb2"),
    **_within(NPU + "npu_hook:", "NPUBroadcastGlobalVariablesHook NPUCheckpointSaverHook NPUOutputTensorHook"),
    **_within(NPU + "npu_hook:", "NPUShutDownHook SetIterationsVarHook"),
    **_within(NPU + "npu_config:", "ExperimentalConfig GraphMemoryOptimizeConfig NpuExecutePlacement NPURunConfig"),
    **_within(NPU + "npu_estimator:", "NPUEstimator NPUEstimatorSpec"),
    **_within(NPU, "npu_plugin npu_scope util"),
    **_within("hccl.manage.api:", "get_local_rank_size get_rank_id get_rank_size"),
    "BulkSaverBuilder": NPU + "npu_saver:NPUBulkSaverBuilder",
    "Enum": "enum:Enum",
    "FixedLossScaleManager": NPU + "npu_loss_scale_manager:FixedLossScaleManager",
    "NPUBasics": NPU + "npu_common:NPUBasics",
    "NPUSaver": NPU + "npu_saver:NPUSaver",
    "ParameterServerStrategy": "tensorflow.compat.v1:distribute.experimental.ParameterServerStrategy",
    "Queue": "queue",
    "RewriterConfig": "tensorflow.core.protobuf.rewriter_config_pb2:RewriterConfig",
    "Saver": "tensorflow.compat.v1:train.Saver",
    "context": ".eager.context",
    "contrib_summary": ".ops.summary_ops_v2",
    "gen_npu_ops": "npu_shim.bridge.ops.gen_ops",
    "hccl_ops": BRIDGE + "hccl.hccl_ops",
    "helper": BRIDGE + "helper.helper",
    "logging": ".platform.tf_logging",
    "npu_ops": BRIDGE + "estimator.npu_ops",
    "prelu": BRIDGE + "estimator.npu_aicore_ops:prelu",
    "saveable_object_util": ".training.saving.saveable_object_util",
    "saver_lib": ".training.saver",
    "session": ".client.session",
    "signature_constants": ".saved_model.signature_constants",
    "tf_adapter": BRIDGE + "tf_adapter",
    "util_lib": NPU + "util",
    "xrange": "builtins:range",
}


def expose(namespace: dict[str, Any]) -> None:
    """Adds to the namespace of a module of the bridge what its original imports, where TensorFlow still has it."""
    for name in EXPOSED[namespace["__name__"][len(BRIDGE) :]].split():
        if name not in namespace:
            try:
                namespace[name] = _meaning(name)
            except (ImportError, AttributeError):  # gone from this TensorFlow; who asks for it gets Python's own error
                continue


def _meaning(name):
    if name == "tf":
        return resources.tensorflow1()
    module, _, path = MEANINGS[name].partition(":")
    meaning = python_module(module[1:]) if module.startswith(".") else importlib.import_module(module)
    for part in filter(None, path.split(".")):
        meaning = getattr(meaning, part)
    return meaning
