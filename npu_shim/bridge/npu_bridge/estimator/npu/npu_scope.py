"""npu_bridge.estimator.npu.npu_scope, see npu_shim.options.ops.scopes."""

from npu_shim.bridge.ops.exposed import expose as _expose
from npu_shim.options.ops.scopes import (
    disable_autofuse,
    keep_dtype_scope,
    limit_core_num_scope,
    npu_graph_slice_scope,
    npu_mem_type_scope,
    npu_optimizer_scope,
    npu_qos_label_scope,
    npu_recompute_scope,
    npu_stage_scope,
    npu_variable_scope,
    npu_weight_prefetch_scope,
    op_specified_engine_scope,
    subgraph_multi_dims_scope,
    without_npu_compile_scope,
)

_expose(globals())
