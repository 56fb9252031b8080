"""npu_bridge.estimator.npu_unary_ops: the vendor's handle to its ops has the module's name, see npu_shim.gen_ops."""

from npu_shim import gen_ops as npu_unary_ops
from npu_shim.bridge_imports import expose as _expose
from npu_shim.ops import gelu, gelu_grad

_expose(globals())
