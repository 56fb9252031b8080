"""npu_bridge.estimator.npu.npu_rnn, see npu_shim.rnn."""

from npu_shim.bridge_imports import expose as _expose
from npu_shim.rnn import npu_dynamic_rnn

_expose(globals())
