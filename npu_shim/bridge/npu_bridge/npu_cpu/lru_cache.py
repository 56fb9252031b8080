"""npu_bridge.npu_cpu.lru_cache, see npu_shim.bridge.ops.unsupported."""

from npu_shim.bridge.ops.exposed import expose as _expose
from npu_shim.bridge.ops.unsupported import module_getattr

__getattr__ = module_getattr(__name__, ("LruCache",))

_expose(globals())
