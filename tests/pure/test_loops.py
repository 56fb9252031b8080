"""Loops and containers: text in, text out. A loop variable or a container has one dtype, decided by what flows in."""

from dataclasses import replace

import pytest

import graphs
from npu_shim.rewriter.errors import PlanError
from npu_shim.rewriter.graph.kernel_table import Kernel, KernelTable
from npu_shim.rewriter.graph.lists import LISTS
from npu_shim.rewriter.graph.ties import MEMBERS, find_ties
from npu_shim.rewriter.planner.decisions import Reason
from npu_shim.rewriter.planner.overrides import NO_OVERRIDES, Override, Overrides
from npu_shim.rewriter.planner.plan import plan
from npu_shim.rewriter.tables.dtypes import LOW
from npu_shim.rewriter.tables.op_table import Entry
from npu_shim.rewriter.tables.policy import PRECISION_MODE

MIX, RAISE, FORCE = (PRECISION_MODE[name] for name in ("allow_mix_precision", "force_fp32", "force_fp16"))
ROLES = {
    **dict.fromkeys(["Enter", "Exit", "Merge", "NextIteration", "Switch"], "moves"),
    **dict.fromkeys(["TensorArrayV3", "TensorArrayWriteV3", "TensorArrayReadV3"], "container"),
}
FLOAT_ONLY = (Kernel("CPU", (("T", frozenset({graphs.F, graphs.I32})),)),)


def planned(text, mode=MIX, float_only=(), overrides=NO_OVERRIDES, **more):
    rows = {op: Entry(op, role=role, tensorflow=(op,)) for op, role in ROLES.items()}
    table = graphs.table()
    table = replace(table, entries={**table.entries, **rows})
    by_op = {**graphs.kernels().by_op, **{op: (Kernel("CPU"),) for op in rows}}
    by_op.update(dict.fromkeys(float_only, FLOAT_ONLY))
    return plan(graphs.parse(text, **more), table, mode, KernelTable(by_op), overrides)


BEGIN = "x:Placeholder w:Const p:Const@i z:Const@i "


def loop(start, body, following):
    return BEGIN + "%s e:Enter(%s) m:Merge(e,n) s:Switch(m,p) %s n:NextIteration(%s) o:Exit(s:0)" % (
        "a:MatMul(x,x)" if start == "a" else "", start, body, following
    )  # fmt: skip


LOW_LOOP = "a:h b:h e:h m:h n:h o:h s:h | w>h(b) x>h(a,a)"
LOOPS = {
    # a low value goes in and comes round
    loop("a", "b:MatMul(s:1,w)", "b"): LOW_LOOP,
    # a computed float32 value comes round
    loop("a", "b:Exp(s:1)", "b"): "a:h | a>f(e) x>h(a,a)",
    # small addends must count
    loop("a", "b:Add(s:1,w)", "b"): "a:h | a>f(e) x>h(a,a)",
    # a weight goes round as it came in: it is cast before the loop
    loop("w", "i:Identity(s:1) b:MatMul(x,i)", "i"): "b:h e:h i:h m:h n:h o:h s:h | w>h(e) x>h(b)",
    # the number of the Merge's input is no value of the loop
    loop("w", "i:Identity(s:1) b:MatMul(x,i) k:Relu@i(m:1)", "i"): "b:h e:h i:h m:h n:h o:h s:h | w>h(e) x>h(b)",
    # somebody else reads the weight in float32
    loop("w", "i:Identity(s:1) b:MatMul(x,i) k:Exp(m)", "i"): "b:h | i>h(b) x>h(b)",
    # it does not go round as it came in
    loop("w", "i:Reshape(s:1) b:MatMul(x,i)", "i"): "b:h | i>h(b) x>h(b)",
}
READ = " r:TensorArrayReadV3(t,z,u) "
WRITE = BEGIN + "t:TensorArrayV3(z) u:TensorArrayWriteV3(t,z,%s,t:1)" + READ
ARRAYS = {
    # neutral values that only a product reads are cast before they are written
    WRITE % "w" + "a:MatMul(r,x)": "a:h r:h t:h u:h | w>h(u) x>h(a)",
    WRITE % "w" + "a:MatMul(r,x) e:Exp(r)": "a:h | r>h(a) x>h(a)",
    # low values are written
    WRITE % "a" + "a:MatMul(x,x) e:Exp(r)": "a:h r:h t:h u:h | r>f(e) x>h(a,a)",
    # a float32 value is written as well
    WRITE % "a" + "a:MatMul(x,x) b:Exp(x) v:TensorArrayWriteV3(t,z,b,u)": "a:h | a>f(u) x>h(a,a)",
    # the array's size says nothing of its values
    WRITE % "a" + "a:MatMul(x,x) n:TensorArraySizeV3(t,u)": "a:h r:h t:h u:h | x>h(a,a)",
    # somebody else has the handle: what is in the array is not known
    WRITE % "a" + "a:MatMul(x,x) y:Unlisted@r(t)": "a:h | a>f(u) x>h(a,a)",
    # or that of its gradient's array
    WRITE % "a" + "a:MatMul(x,x) d:TensorArrayGradV3(t,u) y:Unlisted@r(d)": "a:h | a>f(u) x>h(a,a)",
    WRITE % "a" + "a:MatMul(x,x) d:TensorArrayGradV3(t,u) y:Unlisted(d:1)": "a:h r:h t:h u:h | x>h(a,a)",
    # by way of ops that hand it on
    WRITE % "a" + "a:MatMul(x,x) i:Identity@r(t) y:Unlisted@r(i)": "a:h | a>f(u) x>h(a,a)",
}


@pytest.mark.parametrize("text", [*LOOPS, *ARRAYS])
def test_what_becomes_low(text):
    assert graphs.shown(planned(text)) == {**LOOPS, **ARRAYS}[text]


DECIDED = "w:Const e:Enter(w) m:Merge(e,n) k:Less@f(m,w) s:Switch(m,k) %s n:NextIteration(b) o:Exit(s:0) y:Exp(o)"
FORCED = {
    # float16 adds nothing to 2048: what counts, what compares the count, and what hands it on stay float32
    loop("w", "i:Identity(s:1) b:Add(i,w) k:Equal(m,w) y:Exp(o)", "b"): "y:h | o>h(y)",
    loop("w", "i:Identity(s:1) b:Add(i,w) j:Identity(b)", "j"): " | ",
    loop("w", "b:MatMul(s:1,w) k:Relu(m)", "b"): "b:h e:h k:h m:h n:h o:h s:h | w>h(b,e)",
    # what bounds it, carried by the loop
    # what decides, however it is computed; but no product
    DECIDED % "b:Relu(s:1)": "y:h | o>h(y)",
    DECIDED % "b:MatMul(s:1,w)": "b:h y:h | b>f(n) o>h(y) s:1>h(b) w>h(b)",
    "l:Const f:Enter(l) q:Merge(f,t) v:Switch(q,p) g:Identity(v:1) t:NextIteration(g) " +
    loop("w", "i:Identity(s:1) b:Add(i,w) k:Less@f(m,q) y:Relu(w)", "b"): "y:h | w>h(y)",
    # what is computed of a count is not the count
    loop("w", "b:Add(s:1,w) k:Mul(s:1,w)", "b"): "k:h | s:1>h(k) w>h(k)",
}


SHARED = BEGIN + (
    "e:Enter(w) m:Merge(e,n) s:Switch(m,p) e2:Enter(w) m2:Merge(e2,n) s2:Switch(m2,p) b:Add(s:1,w) "
    "n:NextIteration(b) o:Exit(s2)"
)


@pytest.mark.parametrize("mode", [MIX, FORCE])
def test_loop_variables_with_one_next_value_have_one_dtype(mode):
    """TensorFlow makes one of two equal NextIterations, and sorts no graph with a Cast behind one."""
    done = planned(SHARED, mode)
    assert {d.becomes for d in done.decisions() if d.node in ("e", "m", "s", "e2", "m2", "s2", "n")} == {graphs.F}
    assert not [cast for cast in done.casts if cast.tensor == "n"]


@pytest.mark.parametrize("text", FORCED)
def test_what_becomes_low_where_all_is_lowered(text):
    assert graphs.shown(planned(text, FORCE)) == FORCED[text]


@pytest.mark.parametrize("op", ["Enter", "Switch", "NextIteration"])
def test_a_loop_variable_without_a_kernel_keeps_float32_all_round(op):
    done = planned(loop("a", "b:MatMul(s:1,w)", "b"), float_only=[op])
    low = {d.node for d in done.decisions() if d.becomes in LOW}
    assert low == {"a", "b"}
    assert {d.reason for d in done.decisions() if d.node in ("e", "m", "n")} == {Reason.NO_KERNEL}


@pytest.mark.parametrize("mode", ["allow_mix_precision", "allow_fp32_to_fp16"])
@pytest.mark.parametrize("name", ["e", "m", "s", "n"])
def test_one_op_of_a_loop_variable_cannot_be_overridden(name, mode):  # there was a Cast on the way back to the Merge
    low = Overrides({name: Override((graphs.H,), (graphs.H,), "line 1")}, {})
    with pytest.raises(PlanError, match="line 1: the dtypes of '%s' .* cannot be changed: a loop variable" % name):
        planned(loop("x", "b:Exp(s:1)", "b"), PRECISION_MODE[mode], overrides=low)


@pytest.mark.parametrize("mode", ["allow_mix_precision", "allow_fp32_to_fp16"])
@pytest.mark.parametrize(("name", "op"), [("e", "Enter"), ("m", "Merge"), ("s", "Switch"), ("n", "NextIteration")])
def test_a_request_for_a_type_leaves_loop_variables_as_the_mode_has_them(name, op, mode):
    text, policy = loop("x", "b:Exp(s:1)", "b"), PRECISION_MODE[mode]
    low = planned(text, policy, overrides=Overrides({}, {op: Override((graphs.H,), (graphs.H,), "line 1")}))
    assert graphs.shown(low) == graphs.shown(planned(text, policy))
    assert low.warnings == ("line 1: '%s' (op %s) stays as written: %s" % (name, op, Reason.TIED.value),)


def test_a_loop_written_low_is_raised_or_told_to_be_low():
    text = BEGIN + "q:Placeholder@h e:Enter@h(q) m:Merge@h(e,n) s:Switch@h(m,p) b:Relu@h(s:1) n:NextIteration@h(b)"
    loop_of = lambda done: [d for d in done.decisions() if d.node in ("e", "m", "n")]  # noqa: E731
    assert {(d.becomes, d.reason) for d in loop_of(planned(text))} == {(graphs.H, Reason.ALREADY_LOW)}
    assert {(d.becomes, d.reason) for d in loop_of(planned(text, RAISE))} == {(graphs.F, Reason.RAISED)}


def test_what_a_loop_written_low_gives_is_low_to_its_readers():
    text = BEGIN + "q:Placeholder@h e:Enter@h(q) m:Merge@h(e,n) s:Switch@h(m,p) b:Add@h(s:1,q) n:NextIteration@h(b) "
    assert graphs.shown(planned(text + "o:Switch@h(m,p) c:Cast@hf(m) r:Relu(c)")) == "r:h | "


def test_of_a_loop_that_follows_the_cause_is_told():
    decided = {d.node: d for d in planned(loop("a", "b:MatMul(s:1,w)", "b")).decisions()}
    assert {decided[name].because[0] for name in "emn"} <= {"a", "b"}
    assert {decided[name].reason for name in "emn"} == {Reason.LOOP_LOW}


def ties_of(text, **given):
    view = graphs.parse(text, **given)
    assert all(slot == 0 for tie in find_ties(view) for _, slot in tie.members)
    return sorted(sorted(view.nodes[position].name for position, _ in tie.members) for tie in find_ties(view))


HANDLES = BEGIN + "t:TensorArrayV3(z) q:StackV2@r(z) h:StackPushV2@r(q,t) g:StackPopV2@r(q) "
HANDLES += "r:TensorArrayReadV3(g,z,t:1)"


@pytest.mark.parametrize(("op", "number"), [*MEMBERS.items(), *LISTS.items()])
def test_what_a_container_is_written_is_a_value_of_its_dtype(op, number):
    if number is not None:
        assert graphs.FIXED[op].inputs[number] == 0


def test_the_handle_of_an_array_goes_through_a_stack_in_a_nested_loop():
    assert ties_of(HANDLES) == [["r", "t"]]
    assert ties_of(HANDLES.replace("StackPopV2@r(q)", "StackPopV2@r(w)")) == [["t"]]
    elsewhere = HANDLES.replace("q:StackV2@r(z)", "q:Unlisted@r(z)")  # pushed on a stack that is made elsewhere
    assert ["r", "t"] not in ties_of(elsewhere)


def test_a_container_that_is_made_elsewhere_hides_no_other():
    text = BEGIN + "y:Unlisted@r(z) q:TensorArrayReadV3(y,z,x) t:TensorArrayV3(z) r:TensorArrayReadV3(t,z,t:1)"
    assert ties_of(text) == [["r", "t"]]


GRADIENT = (
    BEGIN + "t:TensorArrayV3(z) u:TensorArrayWriteV3(t,z,w,t:1) r:TensorArrayReadV3(t,z,u) e:Exp(r) k:StackV2@i(z) "
    "j:StackPopV2@i(k) a:MatMul(x,x) d:TensorArrayGradV3(t,u) v:TensorArrayWriteV3(d,%s,%s,d:1) "
    "g:TensorArrayReadV3(d,z,v) y:Relu(g)"
)


@pytest.mark.parametrize(
    ("index", "value", "low"),
    [
        ("j", "a", True),  # the array is float32, and what is read from its gradient was low
        ("j", "x", False),
        ("z", "a", False),  # an index that does not change: what is written there is added up
    ],
)
def test_low_values_in_the_gradient_of_a_float32_array_are_low_to_who_reads_them(index, value, low):
    decided = {d.node: d for d in planned(GRADIENT % (index, value)).decisions()}
    assert {decided[name].becomes for name in "turvg"} == {graphs.F}
    assert (decided["y"].becomes in LOW) == low
    assert (decided["g"].because is not None and decided["g"].because[0] == "a") == low
    assert decided["r"].because is None


def test_gradient_arrays_are_of_their_array():
    text = BEGIN + "t:TensorArrayV3(z) d:TensorArrayGradV3(t,t:1) u:TensorArrayWriteV3(d,z,x,d:1)"
    view = graphs.parse(text + " r:TensorArrayReadV3(t,z,u)")
    [tie] = find_ties(view)
    assert sorted(view.nodes[position].name for position, _ in tie.members) == ["r", "t", "u"]
    assert [view.nodes[position].name for position in tie.gradients] == ["u"]
    assert tie.feeders == ()


LIST = BEGIN + "l:TensorListReserve(z,z) s:TensorListSetItem(l,z,x) "
SHORT = "g:TensorListGetItem(%s,z,z)"
LISTS_OF = {
    # every op that hands the list on works on the same one
    LIST + SHORT % "s": ["g l s"],
    LIST + "i:Identity@v(s) e:Enter@v(i) m:Merge@v(e,n) n:NextIteration@v(m) " + SHORT % "m": ["e m n", "g l s"],
    LIST + "t:TensorListPopBack(s,z) " + SHORT % "t": ["g l s t"],
    # two lists are two, until they meet
    LIST + "k:TensorListReserve(z,z) " + SHORT % "k": ["g k", "l s"],
    LIST + "k:TensorListReserve(z,z) a:AddN@v(s,k) " + SHORT % "k": ["g k l s"],
    # IdentityN hands on each by itself
    LIST + "k:TensorListReserve(z,z) a:IdentityN@vv(s,k) " + SHORT % "a:1": ["g k", "l s"],
    LIST + "k:TensorListReserve(z,z) a:IdentityN@vv(s,k) " + SHORT % "a": ["g l s", "k"],
    # its length is no value of the list
    LIST + "k:TensorListLength(s) " + SHORT % "s": ["g l s"],
    # of a list of lists the outer one's slot is no number; the inner ones belong together
    LIST + "o:TensorListReserve@v(z,z) p:TensorListSetItem@v(o,z,s) q:TensorListGetItem@v(p,z,z) " + SHORT % "q": [
        "g l s"
    ],
    # what is not known here may do anything
    LIST + "u:Unlisted@v(s) " + SHORT % "s": [],
    LIST + "k:Unlisted@v(z) j:TensorListSetItem(k,z,x) " + SHORT % "s": ["g l s"],
}


@pytest.mark.parametrize("text", LISTS_OF)
def test_lists(text):
    assert sorted(" ".join(names) for names in ties_of(text)) == LISTS_OF[text]


@pytest.mark.parametrize("outside", [{"preserved": ["s"]}, {"feeds": ["s"]}, {"preserved": ["l"]}])
def test_a_list_that_is_known_outside_stays(outside):
    other = " k:TensorListReserve(z,z) j:TensorListGetItem(k,z,z)"
    assert ties_of(LIST + SHORT % "s" + other, **outside) == [["j", "k"]]


def test_of_what_gives_a_list_and_a_tensor_the_tensor_is_fetched():
    text = LIST + "t:TensorListPopBack(s,z)"
    assert ties_of(text, preserved=["t"]) == [["l", "s", "t"]]
    assert ties_of(text, feeds=["t"]) == []
    view = graphs.parse(text)
    [tie] = find_ties(view)
    assert [(view.nodes[position].name, number) for position, number in tie.feeders] == [("s", 2)]
