"""npu_bridge.estimator.npu.npu_dynamic_rnn, see npu_shim.bridge.ops.rnn."""

from npu_shim.bridge.ops import gen_ops as gen_npu_ops
from npu_shim.bridge.ops.exposed import expose as _expose
from npu_shim.bridge.ops.rnn import BIDIRECTIONAL as DYNAMIC_RNN_BIDIRECTION
from npu_shim.bridge.ops.rnn import UNIDIRECTIONAL as DYNAMIC_RNN_UNIDIRECTION
from npu_shim.bridge.ops.rnn import DynamicAUGRU, DynamicGRUV2, DynamicRNN

_expose(globals())
