"""npu_bridge.estimator.npu_ops, see npu_shim.bridge.ops."""

from npu_shim.bridge.ops import gen_ops as gen_npu_ops
from npu_shim.bridge.ops.exposed import expose as _expose
from npu_shim.bridge.ops.ops import dropout, k_means_centroids, scatter_elements
from npu_shim.bridge.ops.optimizer_steps import LARS, LARSV2, adam_apply_one_assign, adam_apply_one_with_decay_assign
from npu_shim.bridge.ops.resources import IterationOp, initialize_system, shutdown_system
from npu_shim.bridge.ops.resources import initialize_system as NPUInit
from npu_shim.bridge.ops.resources import shutdown_system as NPUShutdown
from npu_shim.bridge.ops.rnn import basic_lstm_cell
from npu_shim.bridge.ops.unsupported import module_getattr

__getattr__ = module_getattr(
    __name__, ("npu_onnx_graph_op", "outfeed_dequeue_op", "outfeed_enqueue_op", "stop_outfeed_dequeue_op")
)

_expose(globals())
