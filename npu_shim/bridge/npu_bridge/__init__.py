"""The face of the vendor's package npu_bridge: its modules and names, which npu_shim implements.

Its import, and so that of every module in it, brings NpuOptimizer to life for sessions whose config names it, as it
loads the plugin on an NPU. `npu_bridge.npu_init` also adds NpuOptimizer to all other sessions.
"""

from npu_shim.compat.tensorflow_v1 import import_tensorflow

import_tensorflow()  # one clear error where there is none, before the first module that needs it

from npu_bridge.estimator.npu import npu_estimator
from npu_bridge.hccl import hccl_ops
from npu_bridge.helper import helper
from npu_bridge.helper.helper import npu_bridge_handle
from npu_bridge.helper.helper import version as __version__
from npu_shim.options.entrances.plugin import npu_close
from npu_shim.session.interception import patch as _session

__all__ = ["helper", "hccl_ops", "npu_bridge_handle", "npu_close", "npu_estimator"]

_session.activate()
