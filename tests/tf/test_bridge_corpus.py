"""What real training scripts use of npu_bridge and hccl, as a corpus tells, and exactly what of it is theirs."""

import importlib
import inspect

import reference_material

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


def resolve(spec):
    """What 'module', 'module:name' or 'module:*' stands for, or None; a failing import is a name that is not there."""
    module, _, name = spec.partition(":")
    try:
        owner = importlib.import_module(module)
    except ImportError:  # an attribute written as a module: import npu_bridge.npu_init.npu_config_proto
        module, _, name = module.rpartition(".")
        return resolve(module + ":" + name) if module else None
    if name in ("", "*"):
        return owner
    return getattr(owner, name, None) or resolve_module(module + "." + name)


def resolve_module(name):
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


HOLDERS = ("npu_bridge.npu_init", "npu_bridge.estimator", "npu_bridge.estimator.npu", "npu_bridge.hccl")
# functions that scripts import from a module before they call them
IMPORTED = {"dropout": "npu_ops", "set_iteration_per_loop": "util"}


def attribute(chain):
    holder, _, name = chain.partition(".")
    owners = (resolve(module + ":" + holder) for module in HOLDERS)
    owner = next((owner for owner in owners if owner is not None), None)
    return getattr(owner, name, None)


def takes(name, positional, keywords):
    """Whether the bridge has a callable of this name that takes the arguments; those behind * and ** are not known."""
    star = importlib.import_module("npu_bridge.npu_init")
    called = getattr(star, name, None) or getattr(getattr(star, IMPORTED.get(name, ""), None), name, None)
    if called is None:
        return False
    try:
        inspect.signature(called).bind_partial(*[None] * positional, **{k: None for k in keywords if k != "**"})
    except TypeError:
        return False
    return True


def test_what_real_scripts_use_resolves_but_for_what_is_their_own():
    usage = reference_material.table("usage")
    star = importlib.import_module("npu_bridge.npu_init")
    missing = [spec for spec, _ in usage["imports"] if resolve(spec) is None]
    missing += [name for name, _ in usage["star_names"] if not hasattr(star, name)]
    missing += [chain for chain, _ in usage["attributes"] if attribute(chain) is None]
    missing += [
        "%s(%d positional, %s)" % (name, positional, ", ".join(keywords))
        for name, positional, keywords, _ in usage["calls"] if not takes(name, positional, keywords)
    ]  # fmt: skip
    accepted = inspect.signature(star.NPURunConfig).parameters
    missing += [keyword for keyword, _ in usage["run_config_kwargs"] if keyword not in accepted]
    assert sorted(missing) == LEFT_OVER


def test_the_check_can_fail():
    assert resolve("npu_bridge.npu_init:NPURunConfg") is None
    assert resolve("npu_bridge.no_such_module") is None
    assert attribute("npu_ops.dropuot") is None
    assert not takes("FixedLossScaleManager", 0, ["no_such_argument"])


def test_nothing_left_over_is_a_name_of_the_vendors_util():
    util = importlib.import_module("npu_bridge.estimator.npu.util")
    assert [name for name in VENDORS_UTIL.split() if not hasattr(util, name)] == []
    assert set(VENDORS_UTIL.split()) & set(OWN_UTIL.split()) == set()
