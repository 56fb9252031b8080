"""MindSpore's amp levels: what each makes of the lists, and what the planner makes of that."""

import logging

import pytest

import graphs
import npu_shim
from npu_shim.options import amp, precision
from npu_shim.options import table as options
from npu_shim.options.entrances import amp_config
from npu_shim.rewriter.errors import ConfigError
from npu_shim.rewriter.planner.plan import plan
from npu_shim.rewriter.tables.dtypes import BFLOAT16, FLOAT16

LEVELS = ("O0", "O1", "O2", "O3", "auto")


def chosen(**keywords):
    return precision.resolve(options.of_keywords(keywords))


def test_levels_are_rows_whose_names_exist():
    table = precision.profile_table("ascend910")
    assert tuple(amp.levels()) == LEVELS == options.options()["npu_shim_amp_level"].accepted
    for level, row in amp.levels().items():
        assert set(row) <= {"meaning", "precision_mode", "profile", "others", *amp.LISTED}, level
        assert set(row["precision_mode"]) == set(amp_config.DTYPES), level
        names = [name for key in amp.LISTED for name in row.get(key, ())]
        assert len(names) == len(set(names)), level
        assert [name for name in names if not table.ops(name)] == [], level
        # only what computes: lists mean nothing to other ops
        assert {table.entries[op].role for name in names for op in table.ops(name)} <= {"computes"}, level


# level -> precision mode with float16, with bfloat16, profile
MODES = {
    "O0": ("must_keep_origin_dtype", "must_keep_origin_dtype", "gpu"),
    "O1": ("allow_mix_precision", "allow_mix_precision_bf16", "ascend910"),
    "O2": ("allow_mix_precision", "allow_mix_precision_bf16", "ascend910"),
    "O3": ("allow_mix_precision", "allow_mix_precision_bf16", "ascend910"),
    "auto": ("allow_mix_precision", "allow_mix_precision_bf16", "ascend910"),
}


@pytest.mark.parametrize("level", LEVELS)
def test_option_values_of_a_level(level):
    half, brain, profile = MODES[level]
    assert npu_shim.amp_level(level) == {"npu_shim_amp_level": level, "precision_mode": half}
    assert npu_shim.amp_level(level, dtype="bfloat16")["precision_mode"] == brain
    for keywords in (npu_shim.amp_level(level), {"amp_level": level}):
        choice = chosen(**keywords)
        assert (choice.policy.name, choice.table.profile) == (half, profile)
    assert chosen(**npu_shim.amp_level(level, dtype="bfloat16")).policy.low == (FLOAT16 if level == "O0" else BFLOAT16)


# what a level makes of each op: white, gray or black
LISTS = {
    "Conv2D": "w w w w w",
    "MatMul": "w w w w w",
    "BatchMatMulV2": "w w w w w",
    "Conv2DBackpropFilter": "w w w w w",
    "BiasAdd": "g w w w g",
    "Relu": "g w w w g",
    "Add": "g b g g g",
    "MaxPool": "w b w w w",
    "Softmax": "b b g g b",
    "Mean": "b b b g b",
    "Sum": "b b b g b",
    "Rsqrt": "g b b g b",
    "FusedBatchNormV3": "g b b w b",
    "FusedBatchNormGradV3": "g b b w b",
    "SquaredDifference": "b b b b b",
    "Abs": "g b b b g",
    "Log": "b b b b b",
    "SoftmaxCrossEntropyWithLogits": "b b b b b",
    "SparseSoftmaxCrossEntropyWithLogits": "b b b b b",
    "L2Loss": "b b b b b",
    "ApplyAdam": "b b b b b",
}


@pytest.mark.parametrize("op", LISTS)
def test_lists_of_the_levels(op):
    listed = [chosen(amp_level=level).table.entries[op].listed[0] for level in LEVELS]
    assert " ".join(listed) == LISTS[op]


def test_o1_leaves_everything_else_in_float32():
    table = chosen(amp_level="O1").table
    low = {op for op, entry in table.entries.items() if entry.role == "computes" and entry.listed != "black"}
    assert low == set(npu_shim.get_white_list())
    # data that is only moved keeps its values in either dtype
    assert table.entries["Reshape"].role == "moves"


GRAPH = (
    "x:Placeholder w:Const s:Const c:Conv2D(x,w) n:FusedBatchNormV3(c,s,s,s,s) r:Relu(n) m:MatMul(r,w) "
    "p:Softmax(m) e:SoftmaxCrossEntropyWithLogits(m) l:Mean(e)"
)
PLANS = {
    "O0": " | ",
    "O1": "c:h m:h r:h | c>f(n) m>f(e,p) n>h(r) w>h(c,m) x>h(c)",
    "O2": "c:h m:h p:h r:h | c>f(n) m>f(e) n>h(r) w>h(c,m) x>h(c)",
    "O3": "c:h m:h n.T:h p:h r:h | m>f(e) w>h(c,m) x>h(c)",
    "auto": "c:h m:h | c>f(n) m>f(e,p) r>h(m) w>h(c,m) x>h(c)",
}


@pytest.mark.parametrize("level", LEVELS)
def test_what_the_levels_do_to_a_small_network(level):
    choice = chosen(amp_level=level)
    done = plan(graphs.parse(GRAPH), choice.table, choice.policy, every_kernel())
    assert graphs.shown(done) == PLANS[level]


def every_kernel():
    """Kernels in every dtype for the ops of the graph."""
    known = graphs.kernels()
    more = ("SoftmaxCrossEntropyWithLogits", "Mean")
    return type(known)({**known.by_op, **dict.fromkeys(more, known.by_op["Exp"])})


def test_lists_are_copies_in_tensorflows_names_and_go_back_in():
    white, black = npu_shim.get_white_list(), npu_shim.get_black_list()
    assert {"Conv2D", "MatMul", "BatchMatMulV2", "BatchMatMulV3"} <= set(white)
    assert {"FusedBatchNormV3", "FusedBatchNormGradV3", "Rsqrt"} <= set(black)
    white.clear()
    assert npu_shim.get_white_list()
    for keyword, level, listed in (("white_list", "O1", npu_shim.get_white_list()), ("black_list", "O2", black)):
        values = npu_shim.custom_mixed_precision(**{keyword: listed})
        assert chosen(**values).table.entries == chosen(amp_level=level).table.entries


def test_a_white_list_of_ones_own():
    values = npu_shim.custom_mixed_precision(white_list=["MatMul", "DepthwiseConv2D"])
    assert values == {"npu_shim_white_list": "MatMul,DepthwiseConv2D", "precision_mode": "allow_mix_precision"}
    table = chosen(**values).table
    low = {op for op, entry in table.entries.items() if entry.role == "computes" and entry.listed == "white"}
    assert low == {"MatMul", "DepthwiseConv2dNative", "_FusedDepthwiseConv2dNative"}
    nothing = chosen(**npu_shim.custom_mixed_precision(white_list=[]))
    assert {entry.listed for entry in nothing.table.entries.values() if entry.role == "computes"} == {"black"}


def test_a_black_list_of_ones_own_leaves_losses_where_they_are(caplog):
    with caplog.at_level(logging.WARNING, "npu_shim"):
        values = npu_shim.custom_mixed_precision(black_list=["Relu"], dtype="bfloat16")
    assert values == {"npu_shim_black_list": "Relu", "precision_mode": "allow_mix_precision_bf16"}
    [record] = caplog.records
    assert "not in black_list, so they may be lowered: " in record.getMessage()
    assert "FusedBatchNormV3" in record.getMessage()
    entries = chosen(**values).table.entries
    names = ("Relu", "FusedBatchNormV3", "Softmax", "SoftmaxCrossEntropyWithLogits", "Abs")
    assert [entries[op].listed for op in names] == ["black", "gray", "gray", "black", "black"]
    caplog.clear()
    npu_shim.custom_mixed_precision(black_list=[*npu_shim.get_black_list(), "Relu"])
    assert not caplog.records


WRONG_CALLS = [
    (lambda: npu_shim.amp_level("O4"), r"amp_level: 'O4' is not one of O0, O1, O2, O3, auto"),
    (lambda: npu_shim.amp_level("o2"), r"did you mean 'O2'\?"),
    (lambda: npu_shim.amp_level("O2", dtype="float17"), r"'float17' is not one of .*did you mean 'float16'\?"),
    (lambda: npu_shim.amp_level("O2", dtype=[]), "is not one of float16, bfloat16"),
    (lambda: npu_shim.amp_level(["O2"]), "is not one of O0"),
    (lambda: npu_shim.custom_mixed_precision(), "exactly one of them; got none"),
    (lambda: npu_shim.custom_mixed_precision(white_list=[], black_list=[]), "exactly one of them; got both"),
    (lambda: npu_shim.custom_mixed_precision(white_list="MatMul"), "white_list must be a list of op types, got 'MatM"),
    (lambda: npu_shim.custom_mixed_precision(white_list=[3]), "white_list must be a list of op types"),
    (lambda: npu_shim.custom_mixed_precision(white_list=3), "white_list must be a list of op types"),
    (
        lambda: npu_shim.custom_mixed_precision(black_list=["MatMu1", "Relu"]),
        r"black_list: MatMu1: no op type of this name \(did you mean 'MatMul'\?\)",
    ),
]


@pytest.mark.parametrize(("call", "words"), WRONG_CALLS)
def test_wrong_calls(call, words):
    with pytest.raises(ConfigError, match=words):
        call()


CONFLICTS = [
    ({"npu_shim_amp_level": "O4"}, "npu_shim_amp_level: 'O4' is not one of"),
    ({"npu_shim_amp_level": "O2", "precision_mode": "force_fp16"}, "amp_level: goes with precision_mode allow_mix"),
    ({"npu_shim_amp_level": "O2", "precision_mode_v2": "mixed_float16"}, "at the same time as precision_mode_v2"),
    ({"npu_shim_amp_level": "O2", "npu_shim_white_list": "MatMul"}, "npu_shim_white_list: cannot be assigned at"),
    ({"npu_shim_white_list": "", "npu_shim_black_list": ""}, "npu_shim_black_list: cannot be assigned at the same"),
    ({"npu_shim_amp_level": "O0", "modify_mixlist": "m"}, "modify_mixlist: needs precision_mode to be one of"),
    ({"npu_shim_amp_level": "O0", "precision_mode": "allow_mix_precision"}, "goes with precision_mode must_keep"),
]


@pytest.mark.parametrize(("values", "words"), CONFLICTS)
def test_levels_and_other_options(values, words):
    with pytest.raises(ConfigError, match=words):
        options.validate(values)


def test_a_level_is_enough_for_a_mixlist_which_comes_on_top(tmp_path):
    path = tmp_path / "m.json"
    path.write_text('{"black-list": {"to-add": ["Conv2D"]}}')
    choice = chosen(amp_level="O2", modify_mixlist=str(path))
    assert choice.table.entries["Conv2D"].listed == "black"
    assert choice.table.entries["Relu"].listed == "white"


def test_names_that_are_not_known_in_a_parameter_map():
    with pytest.raises(ConfigError, match="npu_shim_white_list: MatMu1: no op type of this name"):
        precision.resolve({"npu_shim_white_list": "MatMu1, Conv2D"})
