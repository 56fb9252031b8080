"""Profile grappler's rule: text in, text out, in the notation of graphs.py; and the options that choose it."""

import json
import random
from dataclasses import replace

import pytest

import graphs
from npu_shim.options import precision, profiles
from npu_shim.options import table as options
from npu_shim.rewriter.errors import ConfigError, PlanError
from npu_shim.rewriter.planner.decisions import Reason
from npu_shim.rewriter.planner.overrides import Override, Overrides
from npu_shim.rewriter.planner.plan import plan
from npu_shim.rewriter.tables.policy import PRECISION_MODE

MIX = PRECISION_MODE["allow_mix_precision"]
LOOP = ("Enter", "Merge", "NextIteration")
MOVES = graphs.table().entries["Reshape"]
# Reshape, Identity and a loop's ops only move data, Tanh is gray, Exp black, MatMul white, Unlisted on no list
ENTRIES = {**graphs.table().entries, **{op: replace(MOVES, name=op, tensorflow=(op,)) for op in LOOP}}
TABLE = replace(graphs.table(), entries=ENTRIES, rule="neighbours")


def kernels(*missing):
    """The kernels of graphs.py, and those of a loop's ops."""
    kernels = graphs.kernels(*missing)
    return replace(kernels, by_op={**kernels.by_op, **dict.fromkeys(LOOP, kernels.by_op["Reshape"])})


def planned(text, feeds=(), preserved=(), missing=(), **more):
    return plan(graphs.parse(text, feeds, preserved), TABLE, MIX, kernels(*missing), **more)


CHANGES = {
    # white is low; one cast a tensor, shared
    "x:Placeholder a:MatMul(x,x) b:MatMul(x,x)": "a:h b:h | x>h(a,a,b,b)",
    # gray is low between two white ops only, and never behind the last
    "x:Placeholder a:MatMul(x,x) t:Tanh(a) b:MatMul(t,t) u:Tanh(b)": "a:h b:h t:h | b>f(u) x>h(a,a)",
    # data movement is low beside a white op on either side, and beside that
    "x:Placeholder m:Reshape(x) n:Identity(m) a:MatMul(n,n) o:Reshape(a)": "a:h m:h n:h o:h | x>h(m)",
    # upstream of it too, and down again
    "x:Placeholder m:Reshape(x) a:MatMul(m,m) n:Reshape(m)": "a:h m:h n:h | x>h(m)",
    # black is float32, and the gray ops that its values reach through data movement
    "x:Placeholder a:MatMul(x,x) e:Exp(a) m:Reshape(e) t:Tanh(m) b:MatMul(t,t)": "a:h b:h | a>f(e) t>h(b,b) x>h(a,a)",
    "x:Placeholder a:MatMul(x,x) e:Exp(x) s:Add(a,e) b:MatMul(s,s)": "a:h b:h | a>f(s) s>h(b,b) x>h(a,a)",
    # but not the data movement behind the last of these
    "x:Placeholder e:Exp(x) m:Reshape(e) a:MatMul(m,m)": "a:h m:h | e>h(m)",
    # an op on no list stops everything: neither black nor low passes it
    "x:Placeholder e:Exp(x) u:Unlisted(e) a:MatMul(u,x) t:Tanh(a) b:MatMul(t,u)": "a:h b:h t:h | u>h(a,b) x>h(a)",
    "x:Placeholder a:MatMul(x,x) u:Unlisted(a) b:MatMul(u,u)": "a:h b:h | a>f(u) u>h(b,b) x>h(a,a)",
    # a Cast whose every reader is low writes low at once
    "i:Placeholder@i c:Cast@if(i) a:MatMul(c,c)": "a:h c.DstT:h | ",
    "i:Placeholder@i c:Cast@if(i) a:MatMul(c,c) t:Tanh(c)": "a:h | c>h(a,a)",
    "i:Placeholder@i c:Cast@if(i) x:Placeholder a:MatMul(x,x)": "a:h | x>h(a,a)",
    # list attributes: each entry by itself
    "x:Placeholder a:MatMul(x,x) e:Exp(x) n:IdentityN(a,e) f:Exp(n:0) g:Exp(n:1)": "a:h n.T0:h | n>f(f) x>h(a,a)",
    # two slots of one node: nothing low reaches the statistics of a batch norm
    "x:Placeholder s:Const a:MatMul(x,x) n:FusedBatchNormV3(a,s,s,s,s) b:MatMul(n,n)": "a:h b:h n.T:h | x>h(a,a)",
    # the next value of a loop has the dtype of its Merge
    "x:Placeholder e:Enter(x) m:Merge(e,n) t:Identity(m) a:MatMul(t,t) n:NextIteration(a)": (
        "a:h e:h m:h n:h t:h | x>h(e)"
    ),
    # which is float32 here, since black-listed values flow through it to a gray op; no Cast stands on the edge back
    "x:Placeholder e:Exp(x) f:Enter(e) m:Merge(f,n) t:Tanh(m) a:MatMul(m,m) n:NextIteration(a)": (
        "a:h | a>f(n) m>h(a,a)"
    ),
    # a reference variable is read through an Identity, in float32, also where it enters a loop
    "v:VariableV2 r:Identity(v) m:Reshape(r) e:Enter(r) a:MatMul(m,e)": "a:h m:h | e>h(a) r>h(m)",
}

STAYS = {
    "x:Placeholder e:Exp(x)": "nothing is white",
    "x:Placeholder t:Tanh(x) m:Reshape(t)": "gray and data movement by themselves",
    "x:Placeholder@h a:MatMul@h(x,x) t:Tanh@h(a)": "written in float16",
}

@pytest.mark.parametrize("text", CHANGES)
def test_what_becomes_low(text):
    assert graphs.shown(planned(text)) == CHANGES[text]


@pytest.mark.parametrize("text", STAYS)
def test_what_stays(text):
    assert not planned(text).changed


@pytest.mark.parametrize("text", CHANGES)
def test_neither_order_nor_a_second_time_matters(text):
    statements = text.split(" ")
    expected = graphs.shown(planned(text))
    for seed in range(3):
        random.Random(seed).shuffle(statements)
        shuffled = planned(" ".join(statements))
        assert graphs.shown(shuffled) == expected
        assert list(shuffled.decisions()) == list(planned(text).decisions())


def reasons(decided):
    return {decision.node: decision.reason for decision in decided.decisions()}


def test_every_slot_has_a_reason_and_chains_end_at_a_listed_op():
    decided = planned("x:Placeholder a:MatMul(x,x) m:Reshape(a) t:Tanh(m) b:MatMul(t,x) e:Exp(b) u:Tanh(e) v:Tanh(x)")
    assert reasons(decided) == {
        "x": Reason.UNLISTED, "a": Reason.WHITE, "m": Reason.BETWEEN, "t": Reason.BETWEEN, "b": Reason.WHITE,
        "e": Reason.BLACK, "u": Reason.DENIED, "v": Reason.APART,
    }  # fmt: skip
    because = {d.node: d.because and d.because[0] for d in decided.decisions()}
    assert (because["m"], because["t"], because["u"]) == ("a", "m", "e")


def test_what_is_fetched_or_fed_stays_and_so_what_it_separates():
    text = "x:Placeholder a:MatMul(x,x) t:Tanh(a) b:MatMul(t,t)"
    decided = planned(text, preserved=["t"])
    assert graphs.shown(decided) == "a:h b:h | a>f(t) t>h(b,b) x>h(a,a)"
    assert reasons(decided)["t"] is Reason.FETCHED
    assert reasons(planned(text, feeds=["t"]))["t"] is Reason.FED
    loop = "x:Placeholder e:Enter(x) m:Merge(e,n) t:Identity(m) a:MatMul(t,t) n:NextIteration(a)"
    assert graphs.shown(planned(loop, preserved=["n"])) == "a:h e:h t:h | a>f(n) e>f(m) m>h(t) x>h(e)"
    cast = "i:Placeholder@i c:Cast@if(i) a:MatMul(c,c)"
    assert graphs.shown(planned(cast, preserved=["c"])) == "a:h | c>h(a,a)"


@pytest.mark.parametrize(
    ("device", "low"),
    [("", True), ("/device:CPU:0", True), ("/job:a/task:0/cpu:1", True), ("/device:GPU:0", False), ("/job:a", False),
     ("/device:CPU:*", False)],
)  # fmt: skip
def test_the_device_must_be_named_in_full_or_not_at_all(device, low):
    view = graphs.parse("x:Placeholder a:MatMul(x,x)")
    view = replace(view, nodes=tuple(node._replace(device=device) for node in view.nodes))
    decided = plan(view, TABLE, MIX, kernels())
    assert decided.changed == low
    assert reasons(decided)["a"] is (Reason.WHITE if low else Reason.ELSEWHERE)


def test_what_has_no_kernel_stays():
    text = "x:Placeholder a:MatMul(x,x) t:Tanh(a) b:MatMul(t,t)"
    decided = planned(text, missing=["Tanh"])
    assert graphs.shown(decided) == "a:h b:h | a>f(t) t>h(b,b) x>h(a,a)"
    assert reasons(decided)["t"] is Reason.NO_KERNEL
    # the pass lowers white ops whether there is a kernel or not; a graph that cannot run is no use to anyone
    assert reasons(planned(text, missing=["MatMul"]))["a"] is Reason.NO_KERNEL


def test_scopes_and_overrides_are_obeyed():
    text = "x:Placeholder a:MatMul(x,x)%s t:Tanh(a) b:MatMul(t,t)"
    assert reasons(planned(text.replace(":MatMul(x,x)%s", ":MatMul[keep](x,x)")))["a"] is Reason.SCOPE
    text = text.replace("%s", "")
    high = Override((graphs.F,), (graphs.F,), "line 1")
    assert reasons(planned(text, overrides=Overrides({"a": high}, {})))["a"] is Reason.CUSTOM
    low = Override((graphs.H,), (graphs.H,), "line 2")
    decided = planned("x:Placeholder e:Exp(x) t:Tanh(e)", overrides=Overrides({}, {"Exp": low}))
    assert graphs.shown(decided) == "e:h | e>f(t) x>h(e)"
    with pytest.raises(PlanError, match="line 3: profile 'grappler' gives all of 'a'"):
        planned(text, overrides=Overrides({"a": Override((graphs.H,), (graphs.F,), "line 3")}, {}))
    # of several nodes the first by name, whatever their order
    for text in ("x:Placeholder e:Exp(x) d:Exp(e)", "x:Placeholder d:Exp(e) e:Exp(x)"):
        with pytest.raises(PlanError, match="no kernel runs 'd'"):
            planned(text, missing=["Exp"], overrides=Overrides({}, {"Exp": low}))
        with pytest.raises(PlanError, match="line 3: profile 'grappler' gives all of 'd'"):
            planned(text, overrides=Overrides({}, {"Exp": Override((graphs.H,), (graphs.F,), "line 3")}))


def table(profile):
    return precision.profile_table(profile)


@pytest.mark.parametrize("profile", ["grappler", "grappler_1.15"])
def test_the_lists_hold_what_the_releases_have(profile):
    entries = table(profile).entries
    softmax = {"grappler": "gray", "grappler_1.15": "black"}[profile]
    assert [entries[op].listed for op in ("MatMul", "Exp", "Add", "Softmax")] == ["white", "black", "gray", softmax]
    assert ("TensorArrayReadV3" in entries) == (profile == "grappler_1.15")
    assert ("TensorListStack" in entries) == (profile == "grappler")
    assert not table(profile).warnings  # no op on two lists


def test_the_profile_chooses_the_mode():
    assert precision.resolve({"npu_shim_profile": "grappler"}).policy.name == "allow_mix_precision"
    assert precision.resolve({"npu_shim_profile": "gpu"}).policy.name != "allow_mix_precision"
    chosen = precision.resolve({"npu_shim_profile": "grappler", "precision_mode_v2": "mixed_float16"})
    assert chosen.policy.name == "mixed_float16"


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"precision_mode": "force_fp16"}, "goes with precision_mode allow_mix_precision or .* got 'force_fp16'"),
        ({"precision_mode_v2": "mixed_bfloat16"}, "goes with precision_mode_v2 mixed_float16, got 'mixed_bfloat16'"),
        ({"npu_shim_amp_level": "O2"}, "cannot go with npu_shim_profile 'grappler'"),
        ({"npu_shim_white_list": "MatMul"}, "cannot go with npu_shim_profile 'grappler'"),
    ],
)
def test_what_does_not_go_with_the_profile_is_said(values, expected):
    with pytest.raises(ConfigError, match=expected):
        options.validate({"npu_shim_profile": "grappler", **values})


def test_a_mixlist_changes_the_lists(tmp_path):
    path = tmp_path / "mixlist.json"
    path.write_text(json.dumps({"white-list": {"to-add": ["Relu"]}, "black-list": {"to-remove": ["Exp"]}}))
    values = {"npu_shim_profile": "grappler", "modify_mixlist": str(path)}
    options.validate(values)
    entries = precision.resolve(values).table.entries
    assert (entries["Relu"].listed, entries["Relu"].role) == ("white", "computes")
    assert (entries["Exp"].listed, entries["Exp"].role) == ("gray", "computes")


def test_every_profile_has_its_files():
    for name, profile in profiles.PROFILES.items():
        assert table(name).entries
        assert table(name).rule == profile.rule
