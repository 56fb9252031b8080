import dataclasses

import pytest

from npu_shim.checkpoint.plan import Options, TensorInfo, plan
from npu_shim.rewriter.errors import ConfigError

MODEL = """
w float32 4,3
w/Adam float32 4,3
w/Adam_1 float32 4,3
w/Shadow float32 4,3
w/ExponentialMovingAverage float32 4,3
bn/gamma float32 3
bn/moving_mean float32 3
bn/moving_variance float32 3
enc/kernel float32 2,2
enc/kernel/adam_m float32 2,2
beta1_power float32
beta2_power float32
loss_scale float32
good_steps int32
bad_steps int32
global_step int64
vocab string 5
table float64 2
"""


def tensors(text):
    tensors = {}
    for line in text.strip().splitlines():
        name, dtype, *shape = line.split()
        tensors[name] = TensorInfo(dtype, tuple(int(n) for n in shape[0].split(",")) if shape else ())
    return tensors


def planned(text, **options):
    return plan(tensors(text), Options(**{"to": "float16", **options})).actions


def lines(actions):
    return [
        "%s %s %s" % (a.kind, a.name if a.name == a.new_name else a.name + ">" + a.new_name,
                      a.dtype if a.dtype == a.new_dtype else a.dtype + ">" + a.new_dtype)
        for a in actions
    ]


def reasons(actions):
    return {a.name: a.reason for a in actions}


def test_model_tensors_are_cast_and_training_state_is_not():
    actions = planned(MODEL)
    assert [a.name for a in actions if a.kind == "cast"] == ["bn/gamma", "enc/kernel", "w"]
    assert reasons(actions) == {
        "w": "model tensor",
        "enc/kernel": "model tensor",
        "bn/gamma": "model tensor",
        "w/Adam": "optimizer slot of 'w' stays float32",
        "w/Adam_1": "optimizer slot of 'w' stays float32",
        "w/Shadow": "perhaps optimizer slot of 'w' stays float32",
        "enc/kernel/adam_m": "optimizer slot of 'enc/kernel' stays float32",
        "w/ExponentialMovingAverage": "exponential moving average stays float32",
        "bn/moving_mean": "batch-norm statistics stays float32",
        "bn/moving_variance": "batch-norm statistics stays float32",
        "beta1_power": "beta power stays float32",
        "beta2_power": "beta power stays float32",
        "loss_scale": "loss-scale state stays float32",
        "good_steps": "not float32, float16 or bfloat16",
        "bad_steps": "not float32, float16 or bfloat16",
        "global_step": "not float32, float16 or bfloat16",
        "vocab": "not float32, float16 or bfloat16",
        "table": "not float32, float16 or bfloat16",
    }


@pytest.mark.parametrize("name", [
    "cond/beta1_power", "cond_1/beta2_power", "opt/current_loss_scale", "loss_scale_1", "a/RMSProp_2", "a/Momentum",
    "a/lamb_v", "bn/renorm_mean_weight", "FP32-master-copy/w", "training/Adam/w/m",
    "m/w/.OPTIMIZER_SLOT/o/m/.ATTRIBUTES/VARIABLE_VALUE", "bn/moving_mean/.ATTRIBUTES/VARIABLE_VALUE",
])
def test_training_state_by_name(name):
    assert lines(planned("%s float32 3" % name)) == ["keep %s float32" % name]


@pytest.mark.parametrize("name", [
    "w", "adam/w", "Momentum/w", "ema_net/w", "loss_scaler/w", "net/beta", "global_step_embedding", "kernel/Adams",
    "layer/w/.ATTRIBUTES/VARIABLE_VALUE", "beta1_power_net/w",
])
def test_model_tensors_that_only_look_like_state(name):
    assert lines(planned("%s float32 3" % name)) == ["cast %s float32>float16" % name]


def test_a_tensor_under_another_of_other_shape_is_no_slot():
    assert lines(planned("a float32 2\na/b float32 3")) == ["cast a float32>float16", "cast a/b float32>float16"]


def test_widening_casts_everything_low():
    text = "w float16 2\nw/Adam float16 2\nstep int64\nb bfloat16 1\nf float32 1"
    assert lines(planned(text, to="float32")) == [
        "cast b bfloat16>float32", "keep f float32", "keep step int64", "cast w float16>float32",
        "cast w/Adam float16>float32"]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_what_has_the_dtype_already_stays(dtype):
    assert lines(planned("w %s 2\ni int32" % dtype, to=dtype)) == ["keep i int32", "keep w %s" % dtype]


def test_include_and_exclude():
    actions = planned(MODEL, include=("moving_",), exclude=("^enc/", "variance"))
    reason_of = reasons(actions)
    assert reason_of["bn/moving_mean"] == "included by 'moving_'"
    assert reason_of["bn/moving_variance"] == "excluded by 'variance'"
    assert reason_of["enc/kernel"] == "excluded by '^enc/'"
    assert [a.name for a in actions if a.kind == "cast"] == ["bn/gamma", "bn/moving_mean", "w"]


def test_including_integers_does_not_cast_them():
    assert lines(planned("n int32 2", include=("n",))) == ["keep n int32"]


def test_drop():
    dropped = [a.name for a in planned(MODEL, drop_optimizer=True, drop=("vocab",)) if a.kind == "drop"]
    assert dropped == ["beta1_power", "beta2_power", "enc/kernel/adam_m", "vocab", "w/Adam", "w/Adam_1"]


def test_names_rename_and_prefixes():
    text = "global_step int64\nold/a float32 1\nold/b float32 1\nc float32 1"
    assert lines(planned(text, rename=(("^old/(.)$", r"new/\1x"),), names={"c": "special"}, add_prefix="p/")) == [
        "keep global_step int64", "cast old/a>p/new/ax float32>float16", "cast old/b>p/new/bx float32>float16",
        "cast c>special float32>float16"]
    assert lines(planned(text, strip_prefix="old/")) == [
        "cast old/a>a float32>float16", "cast old/b>b float32>float16", "cast c float32>float16",
        "keep global_step int64"]


STATE = {
    "plain": "beta1_power float32\nw float32 1",
    "npu": "bad_steps int32\nbeta1_power float32\ngood_steps int32\nloss_scale float32\nw float32 1",
    "contrib": "bad_steps int32\ncond/beta1_power float32\ngood_steps int32\nloss_scale float32\nw float32 1",
    "experimental": "cond_1/beta1_power float32\ncurrent_loss_scale float32\ngood_steps int64\nw float32 1",
}


@pytest.mark.parametrize("source", STATE)
@pytest.mark.parametrize("target", STATE)
def test_profiles_lead_from_each_optimizer_to_each(source, target):
    actions = planned(STATE[source], to="float32", profile=target, init_loss_scale=1024.0)
    result = {a.new_name: TensorInfo(a.new_dtype, a.shape) for a in actions if a.kind != "drop"}
    assert result == tensors(STATE[target])
    if source == target:
        assert {a.kind for a in actions} == {"keep"}


def test_the_profile_creates_the_scale_only_on_request():
    assert "loss_scale" not in {a.new_name for a in planned(STATE["plain"], profile="contrib")}
    created = [a for a in planned(STATE["plain"], profile="contrib", init_loss_scale=8.0) if a.kind == "create"]
    assert [(a.name, a.new_dtype, a.value) for a in created] == [
        ("bad_steps", "int32", 0), ("good_steps", "int32", 0), ("loss_scale", "float32", 8.0)]


def test_the_scope_of_the_beta_powers():
    actions = planned("cond/beta1_power float32\no/cond_3/beta2_power_1 float32", profile="plain", beta_prefix="c/")
    assert [a.new_name for a in actions] == ["c/beta1_power", "o/c/beta2_power_1"]


MASTERS = "FP32-master-copy/w float32 2\nw float16 2\nb float16 1"


def test_master_copies_take_the_place_of_their_variables():
    assert lines(planned(MASTERS, to="float32")) == [
        "cast b float16>float32", "keep FP32-master-copy/w>w float32", "drop w float16"]
    assert lines(planned(MASTERS, to="float32", master_copies="keep")) == [
        "keep FP32-master-copy/w float32", "cast b float16>float32", "cast w float16>float32"]


def test_master_copies_are_created():
    assert lines(planned("w float32 2\ni int32", master_copies="create")) == [
        "keep w>FP32-master-copy/w float32", "keep i int32", "cast w float32>float16"]


@pytest.mark.parametrize(("options", "message"), [
    ({"to": "float61"}, "to: 'float61' is not one of float32, float16, bfloat16 (did you mean 'float16'?)"),
    ({"profile": "contribs"}, "(did you mean 'contrib'?)"),
    ({"include": ("zzz",)}, "include: 'zzz' matches no tensor"),
    ({"rename": (("zzz", "y"),)}, "rename: 'zzz' matches no tensor"),
    ({"exclude": ("(",)}, "'(' is not a regular expression"),
    # text was a sequence of patterns of one letter each; a dict ended in a ValueError
    ({"include": "net"}, "include: expected a list of patterns, got 'net'"),
    ({"drop": [1]}, "drop: expected a list of patterns, got [1]"),
    ({"rename": {"a": "b"}}, "rename: expected a list of pairs"),
    ({"names": [("a", "b")]}, "names: expected a dict of old to new names"),
    ({"names": {"w/Adm": "x"}}, "names: there is no tensor 'w/Adm' (did you mean 'w/Adam'?)"),
    ({"names": {"w": "table"}}, "the new name 'table' belongs to 'table' and 'w'"),
    ({"strip_prefix": "zzz"}, "strip_prefix: no tensor starts with 'zzz'"),
    ({"init_loss_scale": 0.5}, "init_loss_scale: 0.5 is outside of 1 to 2**127"),
    ({"init_loss_scale": 2.0**127.5}, "is outside of 1 to 2**127"),
    ({"drop": (".",)}, "no tensor is left"),
    ({"rename": (("^w$", ""),)}, "an empty name is left for ['w']"),
])
def test_every_problem_is_named(options, message):
    with pytest.raises(ConfigError) as caught:
        planned(MODEL, **options)
    assert message in str(caught.value)
    assert str(caught.value).startswith("npu_shim: ")


def test_all_problems_come_at_once():
    with pytest.raises(ConfigError) as caught:
        planned(MODEL, to="int8", profile="x")
    assert len(caught.value.problems) == 2


def test_the_plan_does_not_depend_on_the_order():
    model = tensors(MODEL)
    shuffled = dict(sorted(model.items(), reverse=True))
    assert plan(model, Options(to="float16")) == plan(shuffled, Options(to="float16"))


def test_planning_its_own_result_changes_nothing():
    first = planned(MODEL)
    again = plan({a.new_name: TensorInfo(a.new_dtype, a.shape) for a in first}, Options(to="float16")).actions
    assert [dataclasses.replace(a, reason="", dtype="") for a in again] == [
        dataclasses.replace(a, reason="", dtype="", kind="keep") for a in first]


def test_profiles_know_the_variables_of_a_second_manager():
    text = "w float32 2\nloss_scale float32\ngood_steps int32\nbad_steps int32\n"
    text += "loss_scale_1 float32\ngood_steps_1 int32\nbad_steps_1 int32\n"
    text += "gan/loss_scale_2 float32\ngan/good_steps_2 int32"
    assert lines(planned(text, profile="plain", to="float32")) == [
        *("drop %s int32" % name for name in ("bad_steps", "bad_steps_1", "gan/good_steps_2")),
        "drop gan/loss_scale_2 float32",
        *("drop %s int32" % name for name in ("good_steps", "good_steps_1")),
        "drop loss_scale float32",
        "drop loss_scale_1 float32",
        "keep w float32",
    ]
    assert lines(planned(text, profile="experimental", to="float32")) == [
        "drop bad_steps int32",
        "drop bad_steps_1 int32",
        "keep loss_scale>current_loss_scale float32",
        "keep loss_scale_1>current_loss_scale_1 float32",
        "keep gan/loss_scale_2>gan/current_loss_scale_2 float32",
        "cast gan/good_steps_2 int32>int64",
        "cast good_steps int32>int64",
        "cast good_steps_1 int32>int64",
        "keep w float32",
    ]


def test_counters_are_made_beside_every_loss_scale():
    text = "w float32 2\ncurrent_loss_scale float32\ngood_steps int64\n"
    text += "a/current_loss_scale_1 float32\na/good_steps_1 int64"
    names = [a.name for a in planned(text, profile="npu", to="float32") if a.kind == "create"]
    assert names == ["a/bad_steps_1", "bad_steps"]


# name, dtype and shape -> what becomes of it under --drop_optimizer, "?" where it is kept and named
JUDGED = """
training/dense/kernel 4,3                   cast
training/dense/bias 3                       cast
optimizer/policy/kernel 4,3                 cast
Adam/tower/kernel 4,3                       cast
net/w 4,3                                   cast
net/w/Momentum 4,3                          drop
net/w/Momentum_1 7                          ?
dense/kernel 5,3                            cast
dense/bias 3                                cast
Adam/dense/kernel/m 5,3                     drop
Adam/dense/kernel/v 5,3                     drop
training/Adam/dense/bias/vhat 3             drop
training_1/RMSprop/dense/bias/rms 3         drop
training/Adam/Variable_3 5,3                drop
Adam/beta_1                                 drop
SGD/learning_rate                           drop
optimizer/decay                             drop
attention/v 8                               cast
target/dense/kernel 5,3                     cast
dense/kernel/extra 5,3                      ?
net/w/extra 4,3                             ?
dense/bias/mask 3                           ?
lone/Adam 9                                 ?
SGD/lone/momentum 9                         ?
emb 9,2                                     cast
emb/Adafactor 9                             drop
emb/Adafactor_1 2                           drop
emb_slot_vr 9                               drop
emb_slot_vc 2                               drop
emb/rows 9                                  cast
emb/accumulated 9,2                         drop
emb/accumulated_rows 9,2                    drop
emb/touched_rows 9                          drop
lone/touched_rows 9                         cast
accumulated_steps                           drop
learning_rate                               keep
train/lr_1                                  keep
low_rank/lr 4,2                             cast
beta1_power                                 drop
cond_2/beta2_power 3                        ?
bn/mean/EMA 3                               keep
EMA_1/dense/kernel 5,3                      keep
net/w/ExponentialMovingAverage 4,3          keep
obj/w/.ATTRIBUTES/VARIABLE_VALUE 6          cast
obj/w/.OPTIMIZER_SLOT/opt/m/.ATTRIBUTES/VARIABLE_VALUE 6    drop
optimizer/_variables/3/.ATTRIBUTES/VARIABLE_VALUE 6         drop
optimizer/beta_1/.ATTRIBUTES/VARIABLE_VALUE                 drop
"""


# parts of a model that stand beside its weights, in two and more shapes
PARTS = """
conv1/w 3,3                     cast
conv1/w/mask 3,3                ?
conv2/w 5,3                     cast
conv2/w/mask 5,3                ?
conv1/w/teacher 3,3             ?
conv2/w/teacher 5,3             ?
dense/kernel 4,6                cast
dense/kernel/scale 6            cast
dense/kernel/v 4,6              ?
dense/kernel/g 6                cast
dora/kernel 4,6                 cast
dora/kernel/m 6                 ?
dora/kernel/lora_a 4,2          cast
sn/kernel 4,6                   cast
sn/kernel/u 6                   cast
sn/kernel/v 4                   ?
q 7                             cast
block/q/v 7                     ?
own/kernel 4,6                  cast
own/kernel/m 4,6                drop
own/kernel/v 4,6                drop
own/bias 6                      cast
own/bias/velocity 6             drop
own/bias/linear 6               ?
Mine/own/bias/momentum 6        ?
fact/kernel 4,6                 cast
fact/kernel/vr 4                drop
fact/kernel/vc 6                drop
"""


def judged(table=JUDGED):
    for line in table.strip().splitlines():
        name, *shape, expected = line.split()
        yield "%s float32 %s" % (name, *shape) if shape else "%s float32" % name, name, expected


def test_parts_of_a_model_beside_its_weights_are_never_dropped():
    rows = list(judged(PARTS))
    planned = plan(tensors("\n".join(line for line, _, _ in rows)), Options(to="float16", drop_optimizer=True))
    kinds = {a.name: "?" if a.name in planned.ambiguous else a.kind for a in planned.actions}
    assert kinds == {name: expected for _, name, expected in rows}


def test_state_is_told_from_structure_and_not_from_names_alone():
    text = "\n".join(line for line, _, _ in judged())
    planned = plan(tensors(text), Options(to="float16", drop_optimizer=True))
    kinds = {a.name: "?" if a.name in planned.ambiguous else a.kind for a in planned.actions}
    assert kinds == {name: expected for _, name, expected in judged()}
    # without --drop_optimizer the same keep their dtype, and the ambiguous are named as well
    kept = plan(tensors(text), Options(to="float16"))
    assert {a.name for a in kept.actions if a.kind == "cast"} == {n for _, n, e in judged() if e == "cast"}
    assert kept.ambiguous == planned.ambiguous
    # what the user has decided is not named
    assert plan(tensors(text), Options(to="float16", exclude=("lone",), drop=("mask",))).ambiguous == (
        "cond_2/beta2_power", "dense/kernel/extra", "net/w/Momentum_1", "net/w/extra")


@pytest.mark.parametrize("option", [{"names": {"w": 3}}, {"rename": (("w", r"\2"),)}, {"rename": (("w", r"\g<x>"),)}])
def test_names_and_replacements_that_cannot_be_are_named(option):
    with pytest.raises(ConfigError, match=r"names: 3 is not a name|cannot replace 'w'"):
        planned("w float32 2", **option)


@pytest.mark.parametrize("scale", [1, 2.0**127])
def test_the_ends_of_what_a_loss_scale_may_be(scale):
    created = [a for a in planned("w float32 2", profile="npu", init_loss_scale=scale) if a.kind == "create"]
    assert [a.value for a in created if a.name == "loss_scale"] == [scale]


def test_what_is_dropped_is_not_kept():
    planned = plan(tensors(MODEL), Options(to="float16", drop=("table", "vocab")))
    assert {a.name for a in planned.actions} - {a.name for a in planned.kept()} == {"table", "vocab"}
    text = "w float32 2,2\nlone float32 2,2\nlone_m float32 2,2"
    told = plan(tensors(text), Options(to="float16", drop=("lone",)))
    assert not {name for name in told.ambiguous if name.startswith("lone")}
