"""npu_bridge.tbe.npu_vector_ops, see npu_shim.bridge.ops and npu_shim.estimator.keras."""

from npu_shim.bridge.ops import gen_ops as gen_npu_ops
from npu_shim.bridge.ops.exposed import expose as _expose
from npu_shim.bridge.ops.keras_names import PReLU
from npu_shim.bridge.ops.ops import prelu
from npu_shim.bridge.ops.optimizer_steps import lamb_apply_optimizer_assign, lamb_apply_weight_assign

_expose(globals())
