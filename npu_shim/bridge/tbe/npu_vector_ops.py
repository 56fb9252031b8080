"""npu_bridge.tbe.npu_vector_ops, see npu_shim.keras, npu_shim.ops and npu_shim.optimizer_steps."""

from npu_shim import gen_ops as gen_npu_ops
from npu_shim.bridge_imports import expose as _expose
from npu_shim.keras import PReLU
from npu_shim.ops import prelu
from npu_shim.optimizer_steps import lamb_apply_optimizer_assign, lamb_apply_weight_assign

_expose(globals())
