"""npu_bridge.estimator.npu.util, see npu_shim.iterations and npu_shim.scopes."""

from npu_shim.iterations import set_iteration_per_loop
from npu_shim.ranks import get_ranksize
from npu_shim.scopes import keep_tensors_dtypes
