"""The planner: text in, text out. `a:h` says that a slot becomes float16, `x>h(a)` that x is cast to float16 for a."""

import itertools
import os
import random
from dataclasses import replace

import pytest

import graphs
from npu_shim.rewriter.errors import PlanError
from npu_shim.rewriter.graph.facts import Facts
from npu_shim.rewriter.graph.kernel_table import Kernel, KernelTable
from npu_shim.rewriter.planner.decisions import Reason
from npu_shim.rewriter.planner.overrides import Override, Overrides
from npu_shim.rewriter.planner.plan import plan
from npu_shim.rewriter.tables.dtypes import FLOATS, LOW
from npu_shim.rewriter.tables.op_table import Entry
from npu_shim.rewriter.tables.policy import PRECISION_MODE, PRECISION_MODE_V2

MIX = PRECISION_MODE["allow_mix_precision"]


def planned(text, mode=MIX, feeds=(), preserved=(), table=None, kernels=None):
    return plan(graphs.parse(text, feeds, preserved), table or graphs.table(), mode, kernels or graphs.kernels())


CHANGES = {
    # white lowers, its inputs are cast once each
    "x:Placeholder w:Const a:MatMul(x,w)": "a:h | w>h(a) x>h(a)",
    # one cast a tensor, shared
    "x:Placeholder w:Const a:MatMul(x,w) b:MatMul(x,w)": "a:h b:h | w>h(a,b) x>h(a,b)",
    # gray follows; neutral inputs decide nothing
    "x:Placeholder w:Const b:Const a:MatMul(x,w) s:Add(a,b) r:Relu(s)": "a:h r:h s:h | b>h(s) w>h(a) x>h(a)",
    # black stays, and gray behind it
    "x:Placeholder a:MatMul(x,x) e:Exp(a) r:Relu(e)": "a:h | a>f(e) x>h(a,a)",
    # a computed float32 input keeps gray in float32
    "x:Placeholder a:MatMul(x,x) e:Exp(x) s:Add(a,e)": "a:h | a>f(s) x>h(a,a)",
    # data-moving ops behave as gray
    "x:Placeholder a:MatMul(x,x) m:Reshape(a) e:Exp(m)": "a:h m:h | m>f(e) x>h(a,a)",
    # moving neutral data keeps it neutral; the cast stands before what only moves
    "x:Placeholder w:Const m:Reshape(w) a:MatMul(x,x) s:Add(a,m)": "a:h m:h s:h | w>h(m) x>h(a,a)",
    # but not where somebody else needs the float32 values
    "x:Placeholder w:Const m:Reshape(w) a:MatMul(x,x) s:Add(a,m) e:Exp(m)": "a:h s:h | m>h(s) x>h(a,a)",
    # nor does it matter that somebody hands it on to nobody
    "x:Placeholder w:Const m:Reshape(w) a:MatMul(x,m) i:Identity(m)": "a:h i:h m:h | w>h(m) x>h(a)",
    # whichever node is first in the graph
    "m:Reshape(w) w:Const x:Placeholder a:MatMul(x,m) i:Identity(m)": "a:h i:h m:h | w>h(m) x>h(a)",
    # of a table only the rows that are taken are cast
    "v:ReadVariableOp i:Const@i g:Gather(v,i) m:Reshape(g) a:MatMul(m,m)": "a:h m:h | g>h(m)",
    # list attributes: each entry by itself
    "x:Placeholder a:MatMul(x,x) e:Exp(x) n:IdentityN(a,e) f:Exp(n:0) g:Exp(n:1)": "a:h n.T0:h | n>f(f) x>h(a,a)",
    # statistics stay float32: U is kept by the table
    "x:Placeholder s:Const a:MatMul(x,x) n:FusedBatchNormV3(a,s,s,s,s) r:Relu(n)": "a:h n.T:h r:h | x>h(a,a)",
    # what is computed from constants only is neutral too (Grappler may or may not have folded it)
    "x:Placeholder b:Const c:Mul(b,b) a:MatMul(x,x) s:Mul(a,c)": "a:h s:h | c>h(s) x>h(a,a)",
    # a fixed float32 input wants its cast
    "x:Placeholder a:MatMul(x,x) l:CTCLossV1(a)": "a:h | a>f(l) x>h(a,a)",
    # an existing Cast reads what it gets; a gray consumer looks through an up-cast and takes what is behind it
    "x:Placeholder@h a:MatMul@h(x,x) c:Cast@hf(a) r:Relu(c)": "r:h | ",
    # an integer's cast is neutral, and is cast to float16 from the integer itself
    "x:Placeholder i:Placeholder@i m:Cast@if(i) a:MatMul(x,x) s:Mul(a,m)": "a:h s:h | i>h(s) x>h(a,a)",
    # a second output
    "x:Placeholder i:Const@i a:MatMul(x,x) p:Split(i,a) e:Exp(p:1)": "a:h p:h | p:1>f(e) x>h(a,a)",
    # written in float16 by the author: as written, and the gray consumer follows
    "x:Placeholder@h a:Relu@h(x) c:Cast@hf(a) r:Relu(c) e:Exp(r)": "r:h | r>f(e)",
}

STAYS = {
    "x:Placeholder e:Exp(x)": "nothing is white",
    "x:Placeholder b:Const s:Add(x,b)": "gray without a low producer",
    "x:Placeholder@h w:Const@h a:MatMul@h(x,w)": "already float16",
    "x:Placeholder@i w:Const@i a:MatMul@i(x,w)": "not float",
    "x:Placeholder a:Unlisted(x,x)": "not in the op table",
    "v:VariableV2 x:Const a:AssignAdd(v,x)": "pinned by the op table",
    "v:VariableV2 x:Const a:MatMul(v,v)": "a cast of a reference would read it at another time",
    "x:Placeholder a:MatMul@f[keep](x,x)": "kept by scope",
}


@pytest.mark.parametrize("text", CHANGES, ids=list(CHANGES.values()))
def test_changes(text):
    assert graphs.shown(planned(text)) == CHANGES[text]


@pytest.mark.parametrize("text", STAYS, ids=list(STAYS.values()))
def test_stays(text):
    done = planned(text)
    assert not done.changed
    assert graphs.shown(done) == " | "


def test_a_white_op_without_kernel_stays_and_says_so():
    done = planned("x:Placeholder a:MatMul(x,x)", kernels=graphs.kernels("MatMul"))
    assert [d.reason for d in done.decisions() if d.node == "a"] == [Reason.NO_KERNEL]
    assert not done.changed


def test_only_what_would_change_has_no_kernel():
    text = "x:Placeholder s:Const a:MatMul(x,x) n:FusedBatchNormV3(a,s,s,s,s)"
    done = planned(text, kernels=graphs.kernels("FusedBatchNormV3"))
    reasons = {d.slot.attr: d.reason for d in done.decisions() if d.node == "n"}
    assert reasons == {"T": Reason.NO_KERNEL, "U": Reason.KEPT_ATTR}


SUM = "x:Placeholder i:Const@i a:MatMul(x,x) s:Add(a,a) n:Sum(%s,i)"


@pytest.mark.parametrize(
    ("text", "nothing", "listed", "asked", "reason"),
    [
        (SUM % "s", True, "black", False, Reason.FOLLOWS_LOW),  # the gradient of a broadcast that broadcast nothing
        (SUM % "s", False, "black", False, Reason.BLACK),
        (SUM % "x", True, "black", False, Reason.BLACK),  # its input is not low
        (SUM % "s", True, "black", True, Reason.BLACK),  # the user's own word
        (SUM % "s", True, "white", False, Reason.WHITE),
    ],
)
def test_a_black_sum_that_sums_nothing_moves(text, nothing, listed, asked, reason):
    table = graphs.table()
    row = Entry("Sum", listed, tensorflow=("Sum",), asked=asked)
    table = replace(table, entries={**table.entries, "Sum": row})

    class Told(Facts):
        def sums_nothing(self, position):
            return nothing

    view = graphs.parse(text)
    kernels = KernelTable({**graphs.kernels().by_op, "Sum": (Kernel("CPU"),)})
    decided = {d.node: d for d in plan(view, table, MIX, kernels, facts=Told()).decisions()}
    assert (decided["n"].becomes in LOW) == (reason is not Reason.BLACK)
    assert decided["n"].reason is reason


def test_the_name_of_a_cast_is_one_that_the_graph_has_not():
    text = "x:Placeholder x-0-to-float16:Exp(x) x-0-to-float16-1:Exp(x) a:MatMul(x,x)"
    assert [cast.name for cast in planned(text).casts] == ["x-0-to-float16-2"]


@pytest.mark.parametrize(
    ("op", "mode", "low"),
    [
        ("Betainc", "allow_mix_precision", False),
        ("Betainc", "force_fp16", False),
        ("Lgamma", "allow_mix_precision", True),
        ("Lgamma", "force_fp16", True),
        ("Lgamma", "allow_mix_precision_bf16", False),
    ],
)
def test_an_op_whose_definition_admits_no_low_dtype_stays(op, mode, low):
    done = planned("x:Placeholder a:MatMul(x,x) b:%s(a) e:Exp(b) r:Relu(b)" % op, PRECISION_MODE[mode])
    decided = {d.node: d for d in done.decisions()}
    assert (decided["b"].becomes in LOW) == low
    assert low or (decided["b"].reason, decided["b"].because) == (Reason.NO_LOW_TYPE, None)


def test_an_op_that_the_hardware_runs_in_float16_only_is_lowered():
    table = graphs.table()
    entries = {**table.entries, "Relu": Entry("Relu", tensorflow=("Relu",), dtypes=frozenset({"float16"}))}
    mode = PRECISION_MODE["allow_fp32_to_fp16"]
    done = planned("x:Placeholder r:Relu(x)", mode, table=replace(table, entries=entries))
    [decision] = [d for d in done.decisions() if d.node == "r"]
    assert (decision.becomes, decision.reason, decision.because) == (graphs.H, Reason.HARDWARE, None)


def test_what_a_user_or_a_mode_asked_for_has_no_other_cause():
    view = graphs.parse("x:Placeholder a:MatMul(x,x) e:Exp(x) c:MatMul(x,x) y:Exp(a)")
    asked = {"a": custom([graphs.H, graphs.H], [graphs.F]), "e": custom([graphs.H], [graphs.H])}
    for mode in PRECISION_MODE.values():
        if mode.name != "must_keep_origin_dtype":
            done = plan(view, graphs.table(), mode, graphs.kernels(), Overrides(asked, {}))
            because = {d.node: d.because for d in done.decisions()}
            assert [because[name] for name in "xaec"] == [None] * 4, mode.name


ROUNDED = {
    # values that are float16's already are not rounded again
    "x:Placeholder c:Cast@fh(x) u:Cast@hf(c) a:MatMul(u,u)": " | ",
    "x:Placeholder@h u:Cast@hf(x) a:MatMul(u,u)": " | ",
    # these are bfloat16's
    "x:Placeholder@b u:Cast@bf(x) a:MatMul(u,u)": " | u>h() u>f(a,a)",
    "x:Placeholder@b a:MatMul@b(x,x)": "a:f | x>h() x>f(a,a)",
    "x:Placeholder@h a:MatMul@h(x,x)": "a:f | x>f(a,a)",
    "x:Placeholder u:Relu(x) a:MatMul(u,u)": " | u>h() u>f(a,a)",
}


@pytest.mark.parametrize("text", ROUNDED)
def test_inputs_are_rounded_once(text):
    assert graphs.shown(planned(text, PRECISION_MODE["cube_fp16in_fp32out"])) == ROUNDED[text]


def test_what_is_fed_in_place_of_a_rounding_is_rounded():
    text = "x:Placeholder c:Cast@fh(x) u:Cast@hf(c) a:MatMul(u,u)"
    assert graphs.shown(planned(text, PRECISION_MODE["cube_fp16in_fp32out"], feeds=["u"])) == " | u>h() u>f(a,a)"


def test_a_fed_tensor_keeps_its_dtype_and_is_neutral():
    done = planned("x:Placeholder a:MatMul(x,x) b:MatMul(a,x) s:Add(b,a)", feeds=["a"])
    assert graphs.shown(done) == "b:h s:h | a>h(b,s) x>h(b)"


def test_what_is_fetched_keeps_name_and_dtype_and_changes_nothing_else():
    text = "x:Placeholder a:MatMul(x,x) r:Relu(a) e:Exp(r) n:MatMul(r,x)"
    plain, fetched = planned(text), planned(text, preserved=["a", "r", "n"])
    assert list(plain.becomes) == list(fetched.becomes)
    assert [b.renamed for b in fetched.edits.boundaries] == ["a-in-float16", "n-in-float16", "r-in-float16"]
    # the fetched name is the up-cast, and serves the float32 consumer as well
    assert graphs.shown(fetched) == "a:h n:h r:h | a>f() n>f() r>f(e) x>h(a,a,n)"


def test_because_leads_to_a_white_op():
    done = planned("x:Placeholder a:MatMul(x,x) r:Relu(a) i:Identity(r)")
    because = {d.node: d.because and d.because[0] for d in done.decisions()}
    assert because == {"x": None, "a": None, "r": "a", "i": "r"}


def test_black_cast_is_not_looked_through():
    text = "x:Placeholder@h c:Cast@hf(x) r:Relu(c)"
    assert graphs.shown(planned(text)) == "r:h | "
    table = graphs.table(Cast="black")
    assert graphs.shown(planned(text, table=table)) == " | "


def custom(inputs, outputs):
    return Override(tuple(inputs), tuple(outputs), "file line 1")


CUSTOM = {
    # one dtype for all: that dtype, above white and black
    ("e", custom([graphs.H], [graphs.H])): "a:h e:h | x>h(a,a)",
    ("a", custom([graphs.F, graphs.F], [graphs.F])): " | ",
    # only the inputs asked for; more of them than the op has
    ("e", custom([graphs.H, graphs.H, graphs.F], [])): "a:h e:h | x>h(a,a)",
    # low inputs and a float32 result: rounded inputs, float32 arithmetic
    ("a", custom([graphs.H, graphs.H], [graphs.F])): " | x>h() x>f(a,a)",
    # left open: by the mode
    ("a", custom([None], [])): "a:h | a>f(e) x>h(a,a)",
}


@pytest.mark.parametrize("case", CUSTOM)
@pytest.mark.parametrize("by", ["name", "op"])
def test_overrides(case, by):
    name, override = case
    view = graphs.parse("x:Placeholder a:MatMul(x,x) e:Exp(a)")
    op = {"a": "MatMul", "e": "Exp"}[name]
    overrides = Overrides({name: override}, {}) if by == "name" else Overrides({}, {op: override})
    assert graphs.shown(plan(view, graphs.table(), MIX, graphs.kernels(), overrides)) == CUSTOM[case]


@pytest.mark.parametrize(
    ("name", "override", "message"),
    [
        ("a", custom([graphs.F], [graphs.H]), "file line 1 asks 'a' .op MatMul. for inputs float32 outputs float16"),
        ("a", custom([graphs.H, graphs.F], []), "does not support"),
        ("a", custom([graphs.I32], []), "int32"),
        ("x", custom([], [graphs.H]), "'x' .op Placeholder. cannot be changed: a source"),
        ("e", custom([graphs.B], [graphs.B]), "no kernel runs 'e' .op Exp. in bfloat16"),
    ],
)
def test_overrides_that_cannot_be(name, override, message):
    view = graphs.parse("x:Placeholder a:MatMul(x,x) e:Exp(a)")
    with pytest.raises(PlanError, match=message):
        plan(view, graphs.table(), MIX, graphs.kernels("Exp"), Overrides({name: override}, {}))


def test_an_override_of_a_type_leaves_alone_what_cannot_be_changed():
    view = graphs.parse("x:Placeholder a:MatMul(x,x) y:Placeholder b:MatMul(y,a)")
    planned = plan(view, graphs.table(), MIX, graphs.kernels(), Overrides({}, {"Placeholder": custom([], [graphs.H])}))
    assert graphs.shown(planned) == graphs.shown(plan(view, graphs.table(), MIX, graphs.kernels()))
    assert planned.warnings == ("file line 1: 'x' and 1 more (op Placeholder) stay as written: " + Reason.SOURCE.value,)
    asked = Overrides({}, {"Placeholder": custom([], [graphs.H]), "MatMul": custom([graphs.F, graphs.F], [graphs.F])})
    mixed = plan(graphs.parse("x:Placeholder a:MatMul(x,x)"), graphs.table(), MIX, graphs.kernels(), asked, ("before",))
    assert mixed.warnings == ("before", "file line 1: 'x' (op Placeholder) stays as written: " + Reason.SOURCE.value)
    assert not mixed.changed


@pytest.mark.parametrize(("dtype", "fails"), [(graphs.H, False), (graphs.F, False), (graphs.B, True)])
def test_an_override_may_ask_for_what_an_earlier_rewrite_made_of_a_node(dtype, fails):
    view = graphs.parse("x:Placeholder a:MatMul@f[rounded](x,x)")
    kernels = replace(graphs.kernels(), slow={"MatMul": frozenset({graphs.H})})
    overrides = Overrides({"a": custom([dtype, dtype], [dtype])}, {})
    if fails:
        with pytest.raises(PlanError, match=r"'a' .op MatMul. cannot be changed: runs as float32 kernel on rounded"):
            plan(view, graphs.table(), MIX, kernels, overrides)
    else:
        assert not plan(view, graphs.table(), MIX, kernels, overrides).changed


def test_overrides_have_no_effect_where_every_dtype_must_stay():
    view = graphs.parse("x:Placeholder@h a:MatMul@h(x,x)")
    mode = PRECISION_MODE["must_keep_origin_dtype"]
    overrides = Overrides({"a": custom([graphs.F], [graphs.F])}, {})
    assert not plan(view, graphs.table(), mode, graphs.kernels(), overrides).changed


MODES = {
    # x -> MatMul (cube) -> Relu (gray) -> Exp (black)
    "allow_mix_precision": "a:h r:h | r>f(e) x>h(a,a)",
    "allow_mix_precision_fp16": "a:h r:h | r>f(e) x>h(a,a)",
    "allow_mix_precision_bf16": "a:b r:b | r>f(e) x>b(a,a)",
    "allow_fp32_to_fp16": "a:h | a>f(r) x>h(a,a)",
    "allow_fp32_to_bf16": "a:b | a>f(r) x>b(a,a)",
    "force_fp16": "a:h e:h r:h | x>h(a,a)",
    "force_fp32": " | x>h() x>f(a,a)",
    "cube_fp16in_fp32out": " | x>h() x>f(a,a)",
}


@pytest.mark.parametrize("mode", MODES)
def test_modes(mode):
    text = "x:Placeholder a:MatMul(x,x) r:Relu(a) e:Exp(r)"
    assert graphs.shown(planned(text, PRECISION_MODE[mode])) == MODES[mode]


@pytest.mark.parametrize(
    ("v2", "v1"),
    [
        ("mixed_float16", "allow_mix_precision"),
        ("mixed_bfloat16", "allow_mix_precision_bf16"),
        ("fp16", "force_fp16"),
        ("cube_fp16in_fp32out", "cube_fp16in_fp32out"),
    ],
)
def test_modes_of_version_2(v2, v1):
    text = "x:Placeholder a:MatMul(x,x) r:Relu(a) e:Exp(r)"
    assert graphs.shown(planned(text, PRECISION_MODE_V2[v2])) == MODES[v1]


def test_force_fp32_raises_what_was_written_in_float16():
    done = planned("x:Placeholder@h r:Relu@h(x) e:Exp@h(r)", PRECISION_MODE["force_fp32"])
    assert graphs.shown(done) == "e:f r:f | x>f(r)"


def test_must_keep_origin_dtype_fails_where_the_hardware_cannot():
    with pytest.raises(PlanError, match=r"op MatMul \(node 'a'\) is float32.*'must_keep_origin_dtype'.*profile 'gpu'"):
        planned("x:Placeholder a:MatMul(x,x)", PRECISION_MODE["must_keep_origin_dtype"])
    assert not planned("x:Placeholder@h a:MatMul@h(x,x)", PRECISION_MODE["must_keep_origin_dtype"]).changed


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_of_several_nodes_that_cannot_be_planned_the_first_by_name_is_named(order):
    """The error does not depend on the order of the nodes, which a second import of one MetaGraph may change."""
    products = ["c:MatMul(x,x)", "a:MatMul(c,b)", "b:MatMul(x,x)"]
    text = " ".join(["x:Placeholder", *(products[k] for k in order)])
    with pytest.raises(PlanError, match=r"op MatMul \(node 'a'\)"):
        planned(text, PRECISION_MODE["must_keep_origin_dtype"])
    into_low = Overrides({}, {"MatMul": Override((), (graphs.B,), "line 1")})
    with pytest.raises(PlanError, match="line 1: no kernel runs 'a'"):
        plan(graphs.parse(text), graphs.table(), MIX, graphs.kernels("MatMul"), into_low)
    assert not planned(text.replace("MatMul", "Exp"), PRECISION_MODE["must_keep_origin_dtype"]).changed


RANDOM_OPS = ("Add", "Mul", "Relu", "Reshape", "Identity", "IdentityN", "up", "down", "mask")


def random_graph(rng, size):
    """The text of a random graph of every kind of op."""
    statements = ["x:Placeholder", "w:ReadVariableOp", "i:Placeholder@i", "h:Placeholder@h"]
    floats, lows = ["x", "w"], ["h"]
    for number in range(size):
        name = "n%d" % number
        op = rng.choice([*graphs.WHITE, *graphs.BLACK, *RANDOM_OPS])
        if op == "up":
            statements.append("%s:Cast@hf(%s)" % (name, rng.choice(lows)))
        elif op == "down":
            statements.append("%s:Cast@fh(%s)" % (name, rng.choice(floats)))
        elif op == "mask":
            statements.append("%s:Cast@if(i)" % name)
        else:
            count = 2 if op in (*graphs.WHITE, "Add", "Mul", "IdentityN") else 1
            statements.append("%s:%s(%s)" % (name, op, ",".join(rng.choice(floats) for _ in range(count))))
        (lows if op == "down" else floats).append(name)
    return statements


def computed(done, left_out):
    """What is computed how. Where a cast stands may depend on the consumers: what it was moved across is left out."""
    return {(d.node, d.slot): (d.becomes, d.reason, d.because) for d in done.decisions() if d.node not in left_out}


def moved(done):
    return {d.node for d in done.decisions() if d.reason is Reason.MOVED}


@pytest.mark.parametrize("first", range(0, 1500 if os.environ.get("NPU_SHIM_NIGHTLY") else 60, 20))
@pytest.mark.parametrize("mode", ["allow_mix_precision", "force_fp16"])
def test_contract_on_random_graphs(first, mode):
    for seed in range(first, first + 20):
        hold_contract(seed, mode)


def hold_contract(seed, mode):
    rng = random.Random(seed)
    statements = random_graph(rng, 25)
    fetch = ["n%d" % rng.randrange(25) for _ in range(3)]
    policy = PRECISION_MODE[mode]
    done = planned(" ".join(statements), policy, preserved=fetch)
    # total, and every decision has a reason that is not a default
    floats = sum(dtype in FLOATS for node in done.view.nodes for dtype in node.dtypes)
    assert len(list(done.decisions())) == floats
    assert all(d.reason is not Reason.NOT_FLOAT for d in done.decisions())
    # independent of the order of the nodes and of what is fetched
    shuffled = statements[:]
    rng.shuffle(shuffled)
    again = planned(" ".join(shuffled), policy)
    either = moved(done) | moved(again)
    assert computed(done, either) == computed(again, either)
    # chains of `because` end, and they end at a slot that needs no other
    causes = {(d.node, d.slot): d.because for d in done.decisions()}
    for start in causes:
        seen = set()
        while causes.get(start) is not None:
            assert start not in seen
            seen.add(start)
            start = causes[start]
    # no tensor is cast twice to one dtype
    keys = [(cast.source, cast.dtype) for cast in done.casts]
    assert len(keys) == len(set(keys))
    assert all(cast.dtype in LOW or cast.source_dtype in LOW for cast in done.casts)
