"""What real training scripts use of npu_bridge and hccl, as a corpus tells, and exactly what of it is theirs."""

import importlib
import re
import subprocess
import sys

# attributes of modules of the scripts' own called `util`, imported after the star import or without it
OWN_UTIL = """
CHARSET EPS Logger angular_filter_kernel argv capture_ops clip_to_uint8 cmd condensing_matrix
create_cmc_probe_and_gallery create_validation_split dec dtype get_count get_temp_path img infer_image init_logger io
load_pkl load_snapshot log mask mod np plt proc rand save_pkl sit statistic str test thread
"""
# what is left over: the vendor's package has none of it either
LEFT_OVER = [
    "NPUEstimator(0 positional, config, eval_batch_size, model_fn, params, train_batch_size, use_tpu)",  # TPUs'
    "dropout(1 positional, is_training, keep_prob, name)",  # slim's
    *("util." + name for name in OWN_UTIL.split()),
]
# the public functions and classes of the vendor's util, 2021 to 2026
VENDORS_UTIL = """
check_not_none check_positive_integer check_nonnegative_integer check_bool_type convert_bool_to_int format_string
check_profiling_options check_path check_aoe_mode check_mstune_mode set_iteration_per_loop IterationPerLoop
variable_initializer_in_host fair_division GradDivisionItem add_grads_and_vars get_gid_by_grad get_gid_by_weight
get_all_grad_item set_graph_exec_config npu_compile global_dict_init set_value get_value keep_tensors_dtypes
set_op_tensor_max_range set_op_input_tensor_multi_dims get_ranksize
"""


def test_what_real_scripts_use_resolves_but_for_what_is_their_own(shared):
    done = subprocess.run(
        [sys.executable, str(shared / "corpus" / "check_usage.py"), "--list"], stdout=subprocess.PIPE, timeout=300
    )
    lines = [line.strip() for line in done.stdout.decode().splitlines()]
    assert lines[-1].split() == ["whole", "networks", "171", "/", "179"]
    found = [re.match(r"\d+ networks  (.+)", line) for line in lines]
    assert sorted(each.group(1) for each in found if each) == LEFT_OVER


def test_nothing_left_over_is_a_name_of_the_vendors_util():
    util = importlib.import_module("npu_bridge.estimator.npu.util")
    assert [name for name in VENDORS_UTIL.split() if not hasattr(util, name)] == []
    assert set(VENDORS_UTIL.split()) & set(OWN_UTIL.split()) == set()
