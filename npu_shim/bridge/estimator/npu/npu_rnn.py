"""npu_bridge.estimator.npu.npu_rnn, see npu_shim.rnn."""

from npu_shim.rnn import npu_dynamic_rnn
