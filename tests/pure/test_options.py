import json
import logging
import subprocess
import sys

import pytest
import reference_material

from npu_shim.options import table
from npu_shim.rewriter.errors import ConfigError

# misspelt or made-up keys of real scripts, which every release of the bridge ignores
IGNORED_IN_THE_WILD = {
    "sump_mode": " (did you mean 'dump_mode'?)",
    "autotune_tune_mode": " (did you mean 'auto_tune_mode'?)",
    "sfusion_switch_file": " (did you mean 'fusion_switch_file'?)",
    "allow_mix_compile": " (did you mean 'mix_compile_mode'?)",
    "enable_auto_mix_precision": " (did you mean 'enable_reduce_precision'?)",
    "master_slave_mode": None,
    "fp_point": None,
    "bp_point": None,
}

A23 = [
    "iterations_per_loop", "profiling_config", "model_dir", "tf_random_seed", "save_summary_steps",
    "save_checkpoints_steps", "save_checkpoints_secs", "session_config", "keep_checkpoint_max",
    "keep_checkpoint_every_n_hours", "log_step_count_steps", "distribute", "enable_data_pre_proc", "precision_mode",
    "enable_reduce_precision", "variable_format_optimize", "mix_compile_mode", "hcom_parallel",
    "graph_memory_max_size", "variable_memory_max_size", "dump_config", "stream_max_parallel_num",
    "is_tailing_optimization", "horovod_mode", "graph_run_mode", "op_debug_level", "enable_scope_fusion_passes",
    "enable_exception_dump", "op_select_implmode", "optypelist_for_implmode", "dynamic_input_config", "aoe_mode",
    "work_path", "buffer_optimize", "enable_small_channel", "fusion_switch_file", "enable_compress_weight",
    "compress_weight_conf", "op_compiler_cache_mode", "op_compiler_cache_dir", "debug_dir", "hcom_multi_mode",
    "dynamic_input", "dynamic_graph_execute_mode", "dynamic_inputs_shape_range", "train_distribute",
    "eval_distribute", "local_rank_id", "local_device_list", "session_device_id", "distribute_config",
    "modify_mixlist", "op_precision_mode", "device_type", "soc_config", "hccl_timeout", "op_wait_timeout",
    "op_execute_timeout", "HCCL_algorithm", "customize_dtypes", "op_debug_config", "memory_config",
    "experimental_config", "topo_sorting_mode", "aoe_config_file", "insert_op_file", "stream_sync_timeout",
    "event_sync_timeout", "external_weight", "es_cluster_config", "deterministic", "frozen_variable",
    "variable_placement", "jit_compile", "precision_mode_v2", "ac_parallel_enable",
]


def test_run_config_arguments_stand_in_the_vendors_order():
    arguments = [name for name, option in table.options().items() if option.run_config is not None]
    assert len(A23) == 76
    assert arguments[:76] == A23
    assert arguments[76:79] == ["quant_dumpable", "input_fusion_size", "compile_dynamic_mode"]
    own = [name for name in arguments if name.startswith("npu_shim_")]
    assert arguments[-len(own) :] == own  # ours come last
    assert set(arguments[-3 - len(own) : -len(own)]) == {"auto_tune_mode", "mstune_mode", "op_tune_mode"}


def test_every_row_is_consistent():
    for name, option in table.options().items():
        assert option.field in (None, "s", "b", "i"), name
        assert option.status in ("honored", "accepted", "refused"), name
        assert bool(option.because) == (option.status == "refused"), name
        assert option.code in ("INVALID_ARGUMENT", "INTERNAL"), name
        assert option.meaning, name
        assert option.field or option.run_config is not None, "%s is neither a key nor an argument" % name
        if option.field is None:
            assert option.default is None, name
        for value in option.accepted or ():
            assert type(value) is type(table.ZERO[option.field]), name
        if option.accepted is not None and option.default is not None:
            assert option.default in option.accepted, name
        if option.accepted is not None and option.run_config and option.run_config["default"] is not None:
            assert option.run_config["default"] in option.accepted, name


def test_no_option_stands_twice():
    from npu_shim import configs

    with open(configs.__path__[0] + "/options.json", encoding="utf-8") as file:
        names = [row["name"] for row in json.load(file)]
    assert sorted(set(names)) == sorted(names)


def test_all_options_of_real_scripts_are_in_the_table():
    usage = reference_material.table("usage")
    keys = {key for key, _, _ in usage["parameter_map"]}
    keywords = {keyword for keyword, _ in usage["run_config_kwargs"]}
    assert len(keys) > 30
    assert len(keywords) > 20
    assert keys - set(table.parameter_keys()) <= set(IGNORED_IN_THE_WILD)
    assert keywords <= {name for name, option in table.options().items() if option.run_config is not None}


def test_real_scripts_write_the_field_of_the_table():
    known = table.parameter_keys()
    entries = {(key, field) for key, field, _ in reference_material.table("usage")["parameter_map"]}
    wrong = {(key, field) for key, field in entries if key in known and field != known[key].field}
    # jit_compile=True was right in release 1.11 only; op_debug_level is an int in every release
    assert wrong == {("jit_compile", "b"), ("op_debug_level", "s")}


# the vendor's keys (2023, then those of 2026): proto field, and what an absent key means where that is told; "-" else
KEYS = """
precision_mode s - | precision_mode_v2 s - | modify_mixlist s - | customize_dtypes s - | op_precision_mode s -
enable_reduce_precision b - | enable_data_pre_proc b False | use_off_line b True | mix_compile_mode b False
iterations_per_loop i 1 | lower_functional_ops b False | job s 'localhost' | task_index i 0 | min_group_size b -
hcom_parallel b True | variable_format_optimize b - | graph_memory_max_size s - | variable_memory_max_size s -
enable_dump b False | enable_dump_debug b False | dump_path s - | dump_step s - | dump_mode s 'output'
dump_debug_mode s 'all' | dump_data s 'tensor' | dump_layer s - | stream_max_parallel_num s - | ac_parallel_enable s -
is_tailing_optimization b False | profiling_mode b False | profiling_options s - | auto_tune_mode s -
graph_run_mode i 1 | op_debug_level i - | enable_scope_fusion_passes s - | aoe_mode s - | work_path s './'
aoe_config_file s - | distribute_config s - | dynamic_input b - | dynamic_graph_execute_mode s 'dynamic_execute'
dynamic_inputs_shape_range s - | local_rank_id i - | local_device_list s - | in_out_pair_flag b True | in_out_pair s -
const_input b - | enable_exception_dump i 2 | op_select_implmode s - | optypelist_for_implmode s - | input_shape s -
dynamic_dims s - | dynamic_node_type i - | buffer_optimize s - | enable_small_channel i 0 | deterministic i 0
fusion_switch_file s - | enable_compress_weight b - | compress_weight_conf s - | op_compiler_cache_mode s -
op_compiler_cache_dir s - | debug_dir s - | hcom_multi_mode b False | session_device_id i - | device_type s -
soc_config s - | hccl_timeout i - | op_wait_timeout i - | op_execute_timeout i - | graph_exec_timeout i 600000
HCCL_algorithm s - | op_debug_config s - | static_memory_policy i 0 | atomic_clean_policy i 0
memory_optimization_policy s - | experimental_logical_device_cluster_deploy_mode s 'LB'
experimental_logical_device_id s - | experimental_model_deploy_mode s - | experimental_model_deploy_devicelist s -
experimental_accelerate_train_mode s - | topo_sorting_mode i - | insert_op_file s - | resource_config_path s -
graph_parallel_option_path s - | graph_compiler_cache_dir s - | es_cluster_config s - | enable_graph_parallel b False
external_weight b False | frozen_variable b False | stream_sync_timeout i -1 | event_sync_timeout i -1
variable_placement s 'Device' | jit_compile s 'auto' | graph_slice s -
quant_dumpable s - | input_fusion_size i - | compile_dynamic_mode b - | graph_max_parallel_model_num i -
export_compile_stat i - | aicore_num s - | oo_constant_folding b - | input_batch_cpy b - | shape_generalization_mode s -
all_tensor_not_empty b - | auto_multistream_parallel_mode s - | oo_level s - | optimization_switch s -
compile_hybrid_mode i - | variable_use_1g_huge_page i -
"""
# key -> values that the vendor takes, one that it does not, and the code of its answer (ours where it ends the process)
LIMITS = [
    ("dump_mode", ["input", "output", "all"], "sta", "INVALID_ARGUMENT"),
    ("dump_debug_mode", ["aicore_overflow", "atomic_overflow", "all"], "overflow", "INVALID_ARGUMENT"),
    ("dump_data", ["tensor", "stats"], "values", "INTERNAL"),
    ("graph_run_mode", [0, 1], 2, "INVALID_ARGUMENT"),
    ("aoe_mode", ["1", "2", "4"], "3", "INVALID_ARGUMENT"),
    ("dynamic_graph_execute_mode", ["lazy_recompile", "dynamic_execute"], "lazy", "INVALID_ARGUMENT"),
    ("local_rank_id", [0, 7], 8, "INVALID_ARGUMENT"),
    ("enable_exception_dump", [0, 1, 2], 3, "INTERNAL"),
    (
        "op_select_implmode",
        ["high_precision", "high_performance", "high_precision_for_all", "high_performance_for_all"],
        "high",
        "INVALID_ARGUMENT",
    ),
    ("buffer_optimize", ["l2_optimize", "off_optimize"], "l1_optimize", "INVALID_ARGUMENT"),
    ("session_device_id", [0, 15], -1, "INVALID_ARGUMENT"),
    ("variable_placement", ["Host", "Device"], "host", "INVALID_ARGUMENT"),
    ("jit_compile", ["true", "false", "auto"], "True", "INVALID_ARGUMENT"),
    ("graph_slice", ["auto", "manual"], "000", "INTERNAL"),
    ("graph_max_parallel_model_num", [1, 8], 0, "INVALID_ARGUMENT"),
    ("export_compile_stat", [0, 1, 2], 3, "INVALID_ARGUMENT"),
    ("shape_generalization_mode", ["STRICT", "FULL", "ADAPTIVE"], "strict", "INVALID_ARGUMENT"),
    ("variable_use_1g_huge_page", [0, 1, 2], 3, "INVALID_ARGUMENT"),
]


def test_every_key_of_the_vendors_has_its_field_and_default():
    known = table.parameter_keys()
    rows = [row.split() for row in KEYS.replace("\n", "|").split("|") if row.strip()]
    assert len(rows) == 109
    for name, field, default in rows:
        assert known[name].field == field, name
        assert default == "-" or repr(known[name].default) == default, name
    others = {name for name in set(known) - {row[0] for row in rows} if not name.startswith("npu_shim_")}
    assert others == {"recompute", "mstune_mode", "op_tune_mode"}  # keys of other releases


@pytest.mark.parametrize(("key", "right", "wrong", "code"), LIMITS)
def test_limited_keys_take_what_the_vendor_takes(key, right, wrong, code):
    for value in right:
        assert table.check_values({key: value}) == ()
    (problem,) = table.check_values({key: wrong})
    assert (problem.option, problem.code) == (key, code)


@pytest.mark.parametrize("key", sorted(IGNORED_IN_THE_WILD))
def test_unknown_key_is_ignored_and_reported_once(key, caplog):
    table._reported.discard(key)
    with caplog.at_level(logging.WARNING, "npu_shim"):
        values, unknown = table.read_values({key: ("s", b"x"), "precision_mode": ("s", b"force_fp16")})
        table.read_values({key: ("s", b"x")})
    assert values == {"precision_mode": "force_fp16"}
    assert [name for name, _ in unknown] == [key]
    expected = IGNORED_IN_THE_WILD[key]
    assert expected is None or unknown[0][1] == expected
    assert [record.getMessage() for record in caplog.records] == [
        "npu_shim: parameter_map key '%s' is unknown and ignored%s" % (key, unknown[0][1])
    ]


def test_known_keys_are_not_reported(caplog):
    values, unknown = table.read_values({"use_off_line": ("b", True), "graph_run_mode": ("i", 0)})
    assert values == {"use_off_line": True, "graph_run_mode": 0}
    assert unknown == ()
    assert not caplog.records


@pytest.mark.parametrize(
    ("key", "entry", "value"),
    [
        ("precision_mode", (None, None), ""),
        ("graph_run_mode", ("s", b"0"), 0),
        ("graph_run_mode", ("b", True), 1),
        ("op_debug_level", ("f", 2.0), 2),
        ("use_off_line", ("i", 1), True),
        ("use_off_line", ("s", b"True"), True),
        ("enable_dump", ("s", b"false"), False),
        ("enable_dump", (None, None), False),
        ("iterations_per_loop", (None, None), 0),
        ("jit_compile", ("b", True), "true"),
        ("jit_compile", ("b", False), "false"),
        ("graph_memory_max_size", ("i", 1024), "1024"),
        ("modify_mixlist", ("s", b"./\xff.json"), "./\udcff.json"),
    ],
)
def test_a_wrong_field_is_read_where_its_meaning_is_plain(key, entry, value):
    values, _ = table.read_values({key: entry})
    assert values == {key: value}
    assert type(values[key]) is type(value)


@pytest.mark.parametrize(
    ("key", "field", "value"),
    [
        ("precision_mode", "b", True),
        ("modify_mixlist", "b", True),
        ("modify_mixlist", "f", 0.5),
        ("use_off_line", "s", b"perhaps"),
        ("use_off_line", "f", 1.0),
        ("enable_dump", "i", 7),
        ("graph_run_mode", "s", b"training"),
        ("graph_run_mode", "f", 0.5),
        ("buffer_optimize", "type", 1),
    ],
)
def test_a_wrong_field_whose_meaning_is_not_plain_is_an_error(key, field, value):
    values, _ = table.read_values({key: (field, value)})
    problem = table.check_values(values)[0]
    expected = table.parameter_keys()[key].field
    assert str(problem) == "%s: written to field '%s', expected field '%s'" % (key, field, expected)
    with pytest.raises(table.ConfigError, match="written to field"):
        table.validate(values)


def test_right_values_have_no_problem():
    for right in ("fast", "fast1|step", "fast|step|0.9", "fast1|loss|1.05"):
        for mode in ({}, {"precision_mode": "must_keep_origin_dtype"}, {"precision_mode_v2": "origin"}):
            assert table.check_values({ACCELERATE: right, **mode}) == ()
    assert table.check_values({}) == ()
    assert table.check_values({"precision_mode": "allow_mix_precision", "modify_mixlist": "a.json"}) == ()
    assert table.check_values({"precision_mode_v2": "mixed_bfloat16", "modify_mixlist": ""}) == ()
    assert table.check_values({"enable_compress_weight": False, "compress_weight_conf": "x"}) == ()
    for option in table.parameter_keys().values():
        for value in option.accepted or ():
            if option.name != "dynamic_node_type":
                assert table.check_values({option.name: value, "op_select_implmode": "high_precision"}) == ()


ACCELERATE = table.ACCELERATE

# (values, code, words of the message): facts of the adapter's own tests and of its order of checks
WRONG = [
    ({"precision_mode": "force_Dp32"}, "INVALID_ARGUMENT", ["'force_Dp32'", "did you mean 'force_fp32'?"]),
    ({"precision_mode": "Allow_mix_precision"}, "INVALID_ARGUMENT", ["did you mean 'allow_mix_precision'?"]),
    ({"precision_mode": ""}, "INVALID_ARGUMENT", ["field 's'"]),
    ({"precision_mode_v2": "invalid"}, "INVALID_ARGUMENT", ["precision_mode_v2: 'invalid'", "mixed_float16"]),
    ({"precision_mode_v2": "mixed_hif8"}, "INVALID_ARGUMENT", ["refused", "HiFloat8"]),
    ({"precision_mode": "force_fp16", "precision_mode_v2": "fp16"}, "INTERNAL", ["at the same time"]),
    ({"modify_mixlist": "a.json"}, "INTERNAL", ["modify_mixlist", "neither is given"]),
    ({"modify_mixlist": ""}, "INTERNAL", ["modify_mixlist"]),
    ({"modify_mixlist": "a", "precision_mode": "force_fp16"}, "INTERNAL", ["modify_mixlist", "precision_mode to be"]),
    ({"modify_mixlist": "a", "precision_mode_v2": "fp16"}, "INTERNAL", ["precision_mode_v2 to be one of mixed_"]),
    # a bad value wins over the conflict, and the first mode's value over the second's
    ({"precision_mode": "x", "precision_mode_v2": "fp16"}, "INVALID_ARGUMENT", ["precision_mode: 'x'"]),
    ({"precision_mode": "x", "precision_mode_v2": "y"}, "INVALID_ARGUMENT", ["precision_mode: 'x'"]),
    ({"precision_mode": "x", "modify_mixlist": "a"}, "INVALID_ARGUMENT", ["precision_mode: 'x'"]),
    ({"dump_mode": "out", "precision_mode": "x"}, "INVALID_ARGUMENT", ["precision_mode: 'x'"]),
    ({"modify_mixlist": "a", "precision_mode": "force_fp16", "precision_mode_v2": "fp16"}, "INTERNAL", ["mixlist"]),
    ({"jit_compile": ""}, "INVALID_ARGUMENT", ["jit_compile", "field 's'"]),
    ({"jit_compile": "True"}, "INVALID_ARGUMENT", ["did you mean 'true'?"]),
    ({"variable_placement": "sta"}, "INVALID_ARGUMENT", ["Host, Device"]),
    ({"enable_exception_dump": 4}, "INTERNAL", ["0, 1, 2"]),
    ({"dump_data": "sta"}, "INTERNAL", ["did you mean 'stats'?"]),
    ({"graph_slice": "000"}, "INTERNAL", ["auto, manual"]),
    ({"aoe_mode": "3"}, "INVALID_ARGUMENT", ["1, 2, 4"]),
    ({"graph_run_mode": 2}, "INVALID_ARGUMENT", ["graph_run_mode: '2' is not one of 0, 1"]),
    ({"session_device_id": -1}, "INVALID_ARGUMENT", ["at least 0, got -1"]),
    ({"optypelist_for_implmode": "Pooling"}, "INVALID_ARGUMENT", ["needs op_select_implmode"]),
    ({"input_shape": "data:1,-1"}, "INVALID_ARGUMENT", ["input_shape: also needs dynamic_dims, dynamic_node_type"]),
    ({"enable_compress_weight": True, "compress_weight_conf": "a"}, "INVALID_ARGUMENT", ["enable_compress_weight"]),
    ({ACCELERATE: "quick|step|0.9"}, "INTERNAL", ["form fast|step|0.9"]),
    ({ACCELERATE: "fast|epoch"}, "INTERNAL", ["form fast|step|0.9"]),
    ({ACCELERATE: "fast|step|0.95"}, "INTERNAL", ["step must end between 0.2 and 0.9"]),
    ({ACCELERATE: "fast1|loss|x"}, "INTERNAL", ["loss must end between 1.01 and 1.5"]),
    ({ACCELERATE: "fast", "precision_mode": "allow_mix_precision"}, "INTERNAL", ["precision_mode to be one of"]),
    ({ACCELERATE: "fast", "precision_mode_v2": "fp16"}, "INTERNAL", ["precision_mode_v2 to be one of origin"]),
    ({"npu_shim_profile": "ascend"}, "INVALID_ARGUMENT", ["did you mean 'ascend910'?"]),
]


@pytest.mark.parametrize(("values", "code", "words"), WRONG)
def test_first_problem(values, code, words):
    with pytest.raises(ConfigError) as caught:
        table.validate(values)
    assert caught.value.code == code
    assert str(caught.value).startswith("npu_shim: ")
    for word in words:
        assert word in str(caught.value)


def test_every_problem_is_listed():
    values = {"precision_mode": "x", "precision_mode_v2": "fp16", "modify_mixlist": "a", "dump_mode": "y"}
    problems = [(problem.option, problem.code) for problem in table.check_values(values)]
    assert problems == [
        ("precision_mode", "INVALID_ARGUMENT"),
        ("precision_mode_v2", "INTERNAL"),
        ("dump_mode", "INVALID_ARGUMENT"),
    ]


def test_import_reads_nothing_and_needs_no_tensorflow():
    code = "import sys; from npu_shim.options import table\n"
    code += "print(table.options.cache_info().currsize, 'tensorflow' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code]).split() == [b"0", b"False"]
