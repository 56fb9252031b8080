"""The face of the vendor's package npu_bridge: its modules and names, which npu_shim implements.

Nothing happens on import, except with `npu_bridge.npu_init`.
"""

from npu_shim.compat.tensorflow_v1 import import_tensorflow

import_tensorflow()  # one clear error where there is none, before the first module that needs it

from npu_bridge.estimator.npu import npu_estimator
from npu_bridge.hccl import hccl_ops
from npu_bridge.helper import helper
from npu_bridge.helper.helper import npu_bridge_handle
from npu_bridge.helper.helper import version as __version__
from npu_shim.plugin import npu_close

__all__ = ["helper", "hccl_ops", "npu_bridge_handle", "npu_close", "npu_estimator"]
