"""The precision options row by row: what is accepted, in which order it fails, with which error, and what it means.

Source of the tables: the adapter of Ascend (r1.13 and later), its key table, its order of checks, its values of
precision_mode, and its own tests (npu_attrs_test); see the module docstrings of `npu_shim.options.table` and
`npu_shim.rewriter.tables.policy`.
"""

import pytest

from npu_shim.options import precision
from npu_shim.options import table as options
from npu_shim.rewriter.errors import ConfigError
from npu_shim.rewriter.tables.dtypes import BFLOAT16, FLOAT16, FLOAT32
from npu_shim.rewriter.tables.policy import DEFAULT_MODE, PRECISION_MODE, PRECISION_MODE_V2, Action, mixed_modes

INVALID, INTERNAL = "INVALID_ARGUMENT", "INTERNAL"
L, F, K, R, N = Action.LOWER, Action.FOLLOW, Action.KEEP, Action.RAISE, Action.NARROW


def problem(values):
    """(code, option) of the error that a session's first run gives, or None."""
    try:
        options.validate(values)
    except ConfigError as error:
        return error.code, str(error).split(": ")[1]
    return None


# the precision keys: name -> (field, default, what is checked at the first run)
KEYS = {
    "precision_mode": ("s", None, {"allow_mix_precision": None, "x": (INVALID, "precision_mode")}),
    "precision_mode_v2": ("s", None, {"mixed_float16": None, "x": (INVALID, "precision_mode_v2")}),
    "modify_mixlist": ("s", None, {"any/path": (INTERNAL, "modify_mixlist"), "": (INTERNAL, "modify_mixlist")}),
    "customize_dtypes": ("s", None, {"any/path": None, "": None}),
    "op_precision_mode": ("s", None, {"any/path.ini": None, "": None}),
    "enable_reduce_precision": ("b", None, {True: None, False: None}),
    "graph_run_mode": ("i", 1, {0: None, 1: None, 2: (INVALID, "graph_run_mode")}),
}


@pytest.mark.parametrize("key", KEYS)
def test_precision_keys(key):
    field, default, checks = KEYS[key]
    option = options.options()[key]
    assert (option.field, option.default) == (field, default)
    for value, expected in checks.items():
        assert problem({key: value}) == expected, value


# in the order of the checks: values, the error's code, and the option that it is about
ORDER = [
    # 1. the value of precision_mode, 2. that of precision_mode_v2
    ({"precision_mode": "no"}, INVALID, "precision_mode"),
    ({"precision_mode_v2": "no"}, INVALID, "precision_mode_v2"),
    ({"precision_mode": "no", "precision_mode_v2": "no"}, INVALID, "precision_mode"),
    ({"precision_mode": "allow_mix_precision", "precision_mode_v2": "no"}, INVALID, "precision_mode_v2"),
    # a mode of the other option is no value of this one
    ({"precision_mode": "mixed_float16"}, INVALID, "precision_mode"),
    ({"precision_mode_v2": "allow_mix_precision"}, INVALID, "precision_mode_v2"),
    # 3. modify_mixlist with a mode that has no lists, or with none; its key counts even when it is empty
    ({"modify_mixlist": "m", "precision_mode": "force_fp16"}, INTERNAL, "modify_mixlist"),
    ({"modify_mixlist": "", "precision_mode": "force_fp16"}, INTERNAL, "modify_mixlist"),
    ({"modify_mixlist": "m", "precision_mode_v2": "fp16"}, INTERNAL, "modify_mixlist"),
    ({"modify_mixlist": "m"}, INTERNAL, "modify_mixlist"),
    # precision_mode decides when both are given
    ({"modify_mixlist": "m", "precision_mode": "force_fp16", "precision_mode_v2": "mixed_float16"}, INTERNAL,
     "modify_mixlist"),
    ({"modify_mixlist": "m", "precision_mode": "allow_mix_precision", "precision_mode_v2": "fp16"}, INTERNAL,
     "precision_mode_v2"),
    # 4. both modes at once; a bad value wins
    ({"precision_mode": "allow_mix_precision", "precision_mode_v2": "mixed_float16"}, INTERNAL, "precision_mode_v2"),
    ({"precision_mode": "force_fp16", "precision_mode_v2": "fp16"}, INTERNAL, "precision_mode_v2"),
    ({"precision_mode": "no", "precision_mode_v2": "fp16"}, INVALID, "precision_mode"),
    # ... and the other options come after all of these
    ({"graph_run_mode": 3, "precision_mode": "no"}, INVALID, "precision_mode"),
    ({"graph_run_mode": 3, "modify_mixlist": "m"}, INTERNAL, "modify_mixlist"),
]  # fmt: skip


@pytest.mark.parametrize(("values", "code", "option"), ORDER)
def test_order_of_the_checks(values, code, option):
    assert problem(values) == (code, option)


MIXLIST_NEEDS = [
    ({"precision_mode": "force_fp32"}, "needs precision_mode to be one of", "got 'force_fp32'"),
    ({"precision_mode_v2": "origin"}, "needs precision_mode_v2 to be one of", "got 'origin'"),
    ({}, "precision_mode one of", "precision_mode_v2 one of"),
]


@pytest.mark.parametrize(("values", "first", "second"), MIXLIST_NEEDS)
def test_three_wordings_of_a_mixlist_without_mixed_mode(values, first, second):
    with pytest.raises(ConfigError) as caught:
        options.validate({"modify_mixlist": "m", **values})
    assert first in str(caught.value)
    assert second in str(caught.value)


@pytest.mark.parametrize("mode", PRECISION_MODE)
def test_a_mixlist_goes_with_the_mixed_modes_only(mode):
    allowed = mode in ("allow_mix_precision", "allow_mix_precision_fp16", "allow_mix_precision_bf16")
    assert (problem({"modify_mixlist": "m", "precision_mode": mode}) is None) == allowed
    assert (mode in mixed_modes()) == allowed


@pytest.mark.parametrize("mode", PRECISION_MODE_V2)
def test_a_mixlist_goes_with_the_mixed_modes_of_v2_only(mode):
    allowed = mode in ("mixed_float16", "mixed_bfloat16")
    assert (problem({"modify_mixlist": "m", "precision_mode_v2": mode}) is None) == allowed
    assert (mode in mixed_modes()) == allowed


# precision_mode -> (its v2 equivalent or None, low dtype, white, gray, black, cube, meant for training)
MODES = {
    "force_fp32": ("cube_fp16in_fp32out", FLOAT16, R, R, R, N, True),
    "cube_fp16in_fp32out": ("cube_fp16in_fp32out", FLOAT16, R, R, R, N, True),
    "force_fp16": ("fp16", FLOAT16, L, L, L, None, False),
    "allow_fp32_to_fp16": (None, FLOAT16, K, K, K, L, True),
    "must_keep_origin_dtype": ("origin", FLOAT16, K, K, K, None, True),
    "allow_mix_precision": ("mixed_float16", FLOAT16, L, F, K, None, True),
    "allow_mix_precision_fp16": ("mixed_float16", FLOAT16, L, F, K, None, True),
    "allow_mix_precision_bf16": ("mixed_bfloat16", BFLOAT16, L, F, K, None, True),
    "allow_fp32_to_bf16": (None, BFLOAT16, K, K, K, L, True),
}


def meaning(policy):
    return policy.low, policy.white, policy.gray, policy.black, policy.cube, policy.training, policy.unsupported


def test_the_modes_are_these():
    assert set(MODES) == set(PRECISION_MODE) == set(options.options()["precision_mode"].accepted)
    v2 = {"fp16", "origin", "cube_fp16in_fp32out", "mixed_float16", "mixed_bfloat16"}
    assert v2 == set(PRECISION_MODE_V2) == set(options.options()["precision_mode_v2"].accepted)


@pytest.mark.parametrize("mode", MODES)
def test_meaning_of_each_mode(mode):
    equivalent, *expected = MODES[mode]
    policy = precision.resolve({"precision_mode": mode}).policy
    assert policy.name == mode
    assert list(meaning(policy)[:6]) == expected
    assert policy.target == (FLOAT32 if R in expected else policy.low)
    # only origin may not be lowered where the hardware has no such op
    assert policy.unsupported is (K if mode == "must_keep_origin_dtype" else L)
    if equivalent is not None:
        assert meaning(precision.resolve({"precision_mode_v2": equivalent}).policy) == meaning(policy)


# known to the graph engine, rejected by the adapter, or written otherwise
NO_MODES = [
    "", "None", "force_Dp32", "force_lowerprecision", "allow_fp32_to_lowprecision", "Allow_mix_precision",
    "ALLOW_MIX_PRECISION", " allow_mix_precision", "allow_mix_precision ", "origin", "fp16", "cube_hif8", "mixed_hif8",
]  # fmt: skip


@pytest.mark.parametrize("mode", NO_MODES)
def test_values_match_exactly(mode):
    assert problem({"precision_mode": mode}) == (INVALID, "precision_mode")


@pytest.mark.parametrize("mode", ["", "Mixed_float16", "mixed_fp16", "force_fp16", "invalid"])
def test_values_of_v2_match_exactly(mode):
    assert problem({"precision_mode_v2": mode}) == (INVALID, "precision_mode_v2")


@pytest.mark.parametrize("mode", ["cube_hif8", "mixed_hif8"])
def test_hif8_is_refused_with_the_reason(mode):
    with pytest.raises(ConfigError, match="is refused: HiFloat8 exists on Ascend only") as caught:
        options.validate({"precision_mode_v2": mode})
    assert caught.value.code == INVALID


# graph_run_mode -> the mode when none is given
DEFAULTS = {None: "allow_fp32_to_fp16", 1: "allow_fp32_to_fp16", 0: "force_fp16"}


@pytest.mark.parametrize("run_mode", DEFAULTS)
def test_defaults_by_graph_run_mode(run_mode):
    values = {} if run_mode is None else {"graph_run_mode": run_mode}
    assert precision.resolve(values).policy.name == DEFAULTS[run_mode]
    assert precision.resolve({**values, "precision_mode": "force_fp32"}).policy.name == "force_fp32"
    assert precision.resolve({**values, "precision_mode_v2": "origin"}).policy.name == "origin"
    assert set(DEFAULT_MODE) == {0, 1}


# The adapter's own tests (npu_attrs_test), parameter_map entries as they are there: key -> (field, value)
ADAPTER = {
    "CheckPrecisionMode": ({"precision_mode": ("s", b"force_Dp32")}, INVALID),
    "CheckPrecisionModeV2": ({"precision_mode_v2": ("s", b"invalid")}, INVALID),
    "CheckPrecisionModeV2_Failed_WhenAssignedBoth": (
        {"precision_mode": ("s", b"allow_mix_precision"), "precision_mode_v2": ("s", b"mixed_float16")}, INTERNAL),
    "CheckModifyMixList_Failed": ({"modify_mixlist": ("s", b"m.json")}, INTERNAL),
    "CheckModifyMixList_Failed_WithWrongPrecisonModeV2": (
        {"modify_mixlist": ("s", b"m.json"), "precision_mode_v2": ("s", b"fp16")}, INTERNAL),
    "CheckModifyMixList_Failed_WithWrongPrecisionMode": (
        {"modify_mixlist": ("s", b"m.json"), "precision_mode": ("s", b"force_fp16")}, INTERNAL),
    "CheckJitCompile_True": ({"jit_compile": ("s", b"True")}, INVALID),
    "CheckGraphSlice": ({"graph_slice": ("s", b"000")}, INTERNAL),
    "CheckVariablePlacement": ({"variable_placement": ("s", b"sta")}, INVALID),
    "CheckExceptionDump_3": ({"enable_exception_dump": ("i", 3)}, INTERNAL),
    "CheckExceptionDump_-1": ({"enable_exception_dump": ("i", -1)}, INTERNAL),
    "CheckDumpData": ({"dump_data": ("s", b"sta")}, INTERNAL),
    "CheckAoeMode": ({"aoe_mode": ("s", b"3")}, INVALID),
}  # fmt: skip


@pytest.mark.parametrize("name", ADAPTER)
def test_the_adapters_own_tests(name):
    entries, code = ADAPTER[name]
    values, unknown = options.read_values(entries)
    assert unknown == ()
    with pytest.raises(ConfigError) as caught:
        options.validate(values)
    assert caught.value.code == code


@pytest.mark.parametrize("entry", [("s", b"true"), ("s", b"false"), ("s", b"auto"), ("b", True)])
def test_jit_compile_as_the_adapter_takes_it(entry):
    # release 1.11 took a bool, later ones refuse it; scripts of that time are still about
    options.validate(options.read_values({"jit_compile": entry})[0])


def test_profiles_differ_in_what_the_hardware_runs_only():
    ascend, gpu = precision.profile_table("ascend910"), precision.profile_table("gpu")
    assert ascend.entries["MatMul"].dtypes == {"float16"}
    assert {entry.dtypes for entry in gpu.entries.values()} == {None}
    lists = [{op: (entry.listed, entry.role) for op, entry in table.entries.items()} for table in (ascend, gpu)]
    assert lists[0] == lists[1]
    with pytest.raises(ConfigError, match=r"'gpuu', expected one of ascend910, gpu, .* \(did you mean 'gpu'\?\)"):
        precision.profile_table("gpuu")
