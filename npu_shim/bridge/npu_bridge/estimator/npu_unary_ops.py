"""npu_bridge.estimator.npu_unary_ops: the vendor's handle to its ops has the module's name, see npu_shim.bridge.ops."""

from npu_shim.bridge.ops import gen_ops as npu_unary_ops
from npu_shim.bridge.ops.exposed import expose as _expose
from npu_shim.bridge.ops.ops import gelu, gelu_grad

_expose(globals())
