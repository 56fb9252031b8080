"""npu_bridge.estimator.npu.npu_rnn, see npu_shim.bridge.ops.rnn."""

from npu_shim.bridge.ops.exposed import expose as _expose
from npu_shim.bridge.ops.rnn import npu_dynamic_rnn

_expose(globals())
