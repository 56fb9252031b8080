"""npu_bridge.estimator.npu.util, see npu_shim.iterations, loops, ranks, resources and scopes."""

import os

import tensorflow.compat.v1 as tf

from npu_shim.iterations import set_iteration_per_loop
from npu_shim.loops import IterationPerLoop
from npu_shim.ranks import get_ranksize
from npu_shim.resources import npu_compile, variable_initializer_in_host
from npu_shim.scopes import (
    keep_tensors_dtypes,
    set_graph_exec_config,
    set_op_input_tensor_multi_dims,
    set_op_tensor_max_range,
)
