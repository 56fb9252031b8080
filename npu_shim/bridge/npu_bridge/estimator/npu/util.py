"""npu_bridge.estimator.npu.util, see npu_shim.bridge.ops.resources, and the packages that it names."""

import os

import tensorflow.compat.v1 as tf

from npu_shim.bridge.ops.exposed import expose as _expose
from npu_shim.bridge.ops.resources import (
    get_value,
    global_dict_init,
    npu_compile,
    set_value,
    variable_initializer_in_host,
)
from npu_shim.distributed.job.ranks import get_ranksize
from npu_shim.distributed.sharding.shards import (
    GradDivisionItem,
    add_grads_and_vars,
    fair_division,
    get_all_grad_item,
    get_gid_by_grad,
    get_gid_by_weight,
)
from npu_shim.estimator.iterations import set_iteration_per_loop
from npu_shim.estimator.loops import IterationPerLoop
from npu_shim.options.entrances.argument_checks import (
    check_aoe_mode,
    check_bool_type,
    check_mstune_mode,
    check_nonnegative_integer,
    check_not_none,
    check_path,
    check_positive_integer,
    check_profiling_options,
    convert_bool_to_int,
    format_string,
)
from npu_shim.options.ops.scopes import (
    keep_tensors_dtypes,
    set_graph_exec_config,
    set_op_input_tensor_multi_dims,
    set_op_tensor_max_range,
)

_expose(globals())
