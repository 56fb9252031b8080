"""npu_bridge.estimator.npu_ops, see npu_shim.ops, npu_shim.optimizer_steps, npu_shim.resources and npu_shim.rnn."""

from npu_shim import gen_ops as gen_npu_ops
from npu_shim.bridge_imports import expose as _expose
from npu_shim.ops import dropout, k_means_centroids, scatter_elements
from npu_shim.optimizer_steps import LARS, LARSV2, adam_apply_one_assign, adam_apply_one_with_decay_assign
from npu_shim.resources import IterationOp, initialize_system, shutdown_system
from npu_shim.resources import initialize_system as NPUInit
from npu_shim.resources import shutdown_system as NPUShutdown
from npu_shim.rnn import basic_lstm_cell
from npu_shim.unsupported import module_getattr

__getattr__ = module_getattr(
    __name__, ("npu_onnx_graph_op", "outfeed_dequeue_op", "outfeed_enqueue_op", "stop_outfeed_dequeue_op")
)

_expose(globals())
