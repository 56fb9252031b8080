"""Pipelines of passes, and the check of a module's structure between them."""

import os

import module_text
import protos
import pytest
from definitions import known

from npu_shim.rewriter.errors import VerifyError
from npu_shim.rewriter.ir import graphdef, text
from npu_shim.rewriter.ir.graph import CONTROL
from npu_shim.rewriter.passes import dump, pipeline, structure
from npu_shim.rewriter.passes.pipeline import Pass, Pipeline, Promise, Watch

GRAPH = """\
x:Placeholder{dtype=float32}
v:VariableV2{dtype=float32}
a:Assign{T=float32}(v, x)
k:TopK{T=float32}(x)
i:Identity{T=int32}(k:1, ^a)
c:PartitionedCall{Tin=[float32], Tout=[float32], f=@f}(x)
u:Unknown(i, c)
return y=u, train=^a
function f(b: float32) -> (d: float32)
  e:Identity{T=float32}(b)
  return d=e
end
"""


def parsed(source=GRAPH):
    return module_text.parse(source, known)


def test_a_valid_module_has_no_violations():
    assert structure.violations(parsed()) == []


@pytest.mark.parametrize(("source", "violation"), [
    ("y:Identity{T=float16}(x)", "input 0 of 'y' (Identity), 'x', is float32, expected float16"),
    ("y:Mul{T=float32}(x)", "'y' (Mul) has 1 inputs, its op 2"),
    ("y:NoOp(x)", "'y' (NoOp) has 1 inputs, its op 0"),
    ("y:Identity{T=float32}(x:1)", "input 0 of 'y' (Identity), 'x:1', is no output of an op Placeholder"),
    ("y:Assign{T=float32}(x, x)", "input 0 of 'y' (Assign), 'x', is no reference"),
    ("y:AddN{T=float32, N=3}(x, x)", "'y' (AddN) has 2 inputs, its op 3"),
    ("y:IdentityN{T=[float32, int32]}(x, x)", "input 1 of 'y' (IdentityN), 'x', is float32, expected int32"),
    ("y:Identity{T=float32}(z) z:Identity{T=float32}(y)", "'y' is on a cycle, or behind one"),
    ("e:Enter{frame_name='l', T=float32}(x) y:Mul{T=float32}(e, x)", "'y' takes 'x', which is in another loop"),
    ("function f(b: int32) -> (d: int32) e:Identity{T=float32}(b) return d=e end",
     "in function 'f' input 0 of 'e' (Identity), 'b', is int32, expected float32"),
])  # fmt: skip
def test_each_kind_of_violation_is_found(source, violation):
    assert structure.violations(parsed("x:Placeholder{dtype=float32} " + source)) == [violation]


@pytest.mark.parametrize("source", [
    "y:Identity{T=float32}(v)", "y:Identity(x)", "y:Unknown(x:7)", "y:Identity{T=float16}(q) q:Unknown(x)",
    "y:Assign{T=float32}(e, x) e:Unknown", "y:AddN{T=float32, N=2}(x, x)", "y:NoOp(^x)",
])  # fmt: skip
def test_what_may_be_is_none(source):
    assert structure.violations(parsed("x:Placeholder{dtype=float32} v:VariableV2{dtype=float32} " + source)) == []


def test_broken_use_lists_are_found():
    graph = parsed().graph
    del graph["x"].value.users[graph["a"]]
    graph["k"].value.users[graph["u"]] = 1
    graph["x"].output(CONTROL).users[graph["u"]] = 1
    assert structure.violations(graph.module) == [
        "'^x' is counted as used by 'u', which does not",
        "'a' uses 'x' 1 times, counted are 0",
        "'k' is counted as used by 'u', which does not",
    ]


def test_nodes_that_are_gone_are_found():
    graph = parsed().graph
    del graph.nodes["u"]
    del graph.nodes["a"]
    violations = structure.violations(graph.module)
    for part in ("'i' reads '^a', which is gone", "'c' is counted as used by 'u', which is gone",
                 "result 'y' is 'u', which is gone", "result 'train' is '^a', which is gone"):  # fmt: skip
        assert part in violations


def test_a_node_under_another_name_is_found():
    graph = parsed("x:Placeholder").graph
    graph["x"].name = "y"
    assert "node 'x' is named 'y'" in structure.violations(graph.module)


def test_only_what_passes_touched_can_be_asked():
    module = parsed("x:Placeholder{dtype=float32} y:Identity{T=float16}(x) z:Identity{T=float16}(y)")
    assert structure.violations(module, ["mine"]) == []
    module.author = "mine"
    module.graph["x"].attrs["dtype"] = module.graph["x"].attrs["dtype"]
    assert structure.violations(module, ["mine"]) == [
        "input 0 of 'y' (Identity), 'x', is float32, expected float16"  # a user of what was touched
    ]
    assert structure.violations(module, ["another"]) == []


def reread(module):
    return graphdef.read(graphdef.write(module, protos.GraphDef), known)


def test_nodes_whose_control_inputs_alone_were_touched_are_not_asked_for_dtypes():
    module = reread(parsed("x:Placeholder{dtype=float32} y:Identity{T=float16}(x) z:NoOp"))
    module.author, y = "mine", module.graph["y"]
    y.set_controls([module.graph["z"]])
    assert structure.violations(module, ["mine"]) == []
    del module.graph["z"].output(CONTROL).users[y]
    assert structure.violations(module, ["mine"]) == ["'y' uses '^z' 1 times, counted are 0"]


WRONG_DTYPE = "input 0 of 'y' (Identity), 'x', is float32, expected float16"


@pytest.mark.parametrize(("touch", "violation"), [
    (lambda graph: graph["y"].set_inputs(graph["y"].inputs), WRONG_DTYPE),
    (lambda graph: graph["y"].set_op("Identity"), WRONG_DTYPE),
    (lambda graph: graphdef.become(graph["y"], graphdef.write(graph.module).node[1]), WRONG_DTYPE),
    (lambda graph: graphdef.insert(graph, [protos.NodeDef(name="w", op="Mul", input=["z"])]),
     "'w' (Mul) has 1 inputs, its op 2"),
])  # fmt: skip
def test_nodes_of_which_more_was_touched_are_asked_for_dtypes_in_another_graph_too(touch, violation):
    module = reread(parsed("x:Placeholder{dtype=float32} y:Identity{T=float16}(x) z:Placeholder{dtype=float32}"))
    module.author = "mine"
    touch(module.graph)
    assert structure.violations(module, ["mine"]) == [violation]
    module.graph["z"].set_controls([])
    another = protos.GraphDef()
    another.CopyFrom(graphdef.write(module))
    graphdef.replace(module, another)
    module.graph["z"].set_controls([])
    assert structure.violations(module, ["mine"]) == [violation]


def test_nodes_that_were_only_marked_are_not_asked():
    module = reread(parsed("x:Placeholder{dtype=float32} y:Identity{T=float16, _mark=true}(x)"))
    module.author, y = "mine", module.graph["y"]
    y.attrs["_mark"] = False
    del y.attrs["_mark"]
    assert y.made_by == "mine"
    assert structure.violations(module, ["mine"]) == []
    y.attrs["T"] = y.attrs["T"]
    assert structure.violations(module, ["mine"]) == [WRONG_DTYPE]


@pytest.mark.parametrize("close", [
    lambda graph: graph["y"].set_inputs([graph["z"].value]), lambda graph: graph["y"].set_controls([graph["z"]]),
])  # fmt: skip
def test_a_cycle_that_a_pass_made_is_found_though_it_touched_one_node(close):
    module = reread(parsed("x:Const{dtype=float32} y:Identity{T=float32}(x) z:Identity{T=float32}(y)"))
    module.author = "mine"
    close(module.graph)
    assert structure.violations(module, ["mine"]) == ["'y' is on a cycle, or behind one"]


# -- pipelines ---------------------------------------------------------------------------------------------------------


def rename_to(op):
    def run(module, context):
        context.append(op)
        module.graph["x"].set_op(op)

    return run


def nothing(module, context):
    context.append("nothing")


def break_it(module, context):
    module.graph["i"].set_inputs([module.graph["x"].value])


def repair(module, context):
    module.graph["i"].set_inputs([module.graph["k"].output(1)])


def of(*passes, **given):
    return Pipeline("tests", "shows something", passes, **given)


def test_passes_run_in_order_with_their_context():
    seen, shown, module = [], [], parsed()
    passes = [Pass("one", rename_to("A"), "first"), Pass("none", nothing, "then"), Pass("two", rename_to("B"), "last")]
    watch = Watch(changed=lambda number, step, module: shown.append((number, step.name, module.graph["x"].op)))
    assert pipeline.run(of(*passes), module, seen, watch) == ["one", "two"]
    assert seen == ["A", "nothing", "B"]
    assert shown == [(1, "one", "A"), (3, "two", "B")]
    assert module.graph["x"].made_by == "two"
    assert module.author == ""


def test_a_pass_runs_only_where_its_ops_are():
    seen = []
    line = of(*(Pass(op, rename_to("A"), "", needs_ops=frozenset(["B", op])) for op in ("Absent", "Placeholder")))
    assert pipeline.run(line, parsed(), seen) == ["Placeholder"]
    assert seen == ["A"]
    line = of(Pass("not here", rename_to("A"), "", applies=lambda seen: False), Pass("here", rename_to("A"), ""))
    assert pipeline.run(line, parsed("x:Const"), []) == ["here"]
    assert pipeline.run(of(Pass("all", rename_to("A"), "", needs_ops=None)), parsed("x:Const"), []) == ["all"]


def test_ops_of_functions_count_whether_they_have_been_read_or_not():
    module, inside = parsed(GRAPH.replace("e:Identity{T=float32}(b)", "e:Mul{T=float32}(b, b)")), "Mul"
    assert inside in module.ops()
    module = graphdef.read(graphdef.write(module, protos.GraphDef), known)
    assert inside in module.ops()
    assert not module.functions.read_ones()
    pipeline.run(of(Pass("one", rename_to("A"), "", needs_ops=frozenset([inside]))), module, [])
    assert "A" in module.ops()
    graphdef.replace(module, protos.GraphDef())
    assert module.ops() == frozenset()


def test_that_a_pass_needs_no_other_ops_is_checked_on_request():
    line = of(Pass("liar", rename_to("A"), "", needs_ops=frozenset(["Absent"])))
    assert pipeline.run(line, parsed(), []) == []
    with pytest.raises(VerifyError, match="pass 'liar' changed a module that has none of the ops that it needs"):
        pipeline.run(line, parsed(), [], Watch(after_each=True))


def test_what_is_broken_at_the_end_is_an_error_always():
    expected = r"pipeline 'tests': input 0 of 'i' \(Identity\), 'x', is float32, expected int32"
    with pytest.raises(VerifyError, match=expected):
        pipeline.run(of(Pass("break", break_it, "")), parsed())
    assert pipeline.run(of(Pass("break", break_it, ""), Pass("repair", repair, "")), parsed()) == ["break", "repair"]


def test_each_pass_is_checked_on_request():
    line = of(Pass("break", break_it, ""), Pass("repair", repair, ""))
    with pytest.raises(VerifyError, match="pass 'break': input 0 of 'i'"):
        pipeline.run(line, parsed(), watch=Watch(after_each=True))


def written(op, asked):
    """A Promise to change nothing but one op, which notes what it was asked about."""

    def violations(before, after, context):
        asked.append((before, after, context))
        return ["'%s' is %s" % (n.name, n.op) for n, was in zip(after.node, before.node) if n.op not in (op, was.op)]

    return Promise("a test says so", violations)


def test_a_pass_that_keeps_its_promise_passes_and_one_that_breaks_it_is_named_always():
    for after_each in (False, True):
        asked, seen, module = [], [], reread(parsed())
        rows = (("kept", rename_to("A")), ("idle", nothing))
        kept, idle = (Pass(name, run, "", promise=written("A", asked)) for name, run in rows)
        assert pipeline.run(of(kept, idle), module, seen, Watch(after_each)) == ["kept"]
        ((before, after, context),) = asked  # what changes nothing is not compared
        assert [graph_def.node[0].op for graph_def in (before, after)] == ["Placeholder", "A"]
        assert after is graphdef.write(module)
        assert context is seen
        line = of(Pass("broken", rename_to("B"), "", promise=written("A", [])))
        with pytest.raises(VerifyError, match="pass 'broken': 'x' is B"):
            pipeline.run(line, module, [], Watch(after_each))


def test_a_pass_that_repeats_is_compared_each_time():
    asked, module = [], reread(parsed("x:Placeholder y:Placeholder z:Placeholder"))

    def one_of_two(module, context):
        left = [node for node in module.graph if node.op == "Placeholder"]
        for node in left[1:2]:
            node.set_op("A")

    line = of(Pass("again", one_of_two, "", promise=written("A", asked), repeats=True))
    assert pipeline.run(line, module) == ["again"]
    assert [[node.op for node in after.node].count("A") for _, after, _ in asked] == [1, 2]


def test_a_pass_runs_only_in_contexts_that_it_applies_to():
    line = of(Pass("one", rename_to("A"), "", applies=lambda context: not context))
    for after_each in (False, True):
        assert pipeline.run(line, parsed(), [], Watch(after_each)) == ["one"]
        assert pipeline.run(line, parsed(), ["there"], Watch(after_each)) == []


def test_what_no_pass_changes_is_not_checked():
    module = parsed("x:Placeholder")
    module.graph["x"].name = "y"
    assert pipeline.run(of(Pass("none", nothing, "")), module, []) == []


def test_what_is_checked_at_each_pass_is_not_checked_again(monkeypatch):
    asked = []
    monkeypatch.setattr(structure, "violations", lambda module, made_by=None: asked.append(made_by) or [])
    for after_each in (True, False):
        pipeline.run(of(Pass("one", rename_to("A"), "")), parsed(), [], Watch(after_each))
    assert asked == [None, ["one"]]


def test_only_bodies_that_have_been_read_are_asked_for_what_passes_made():
    module = graphdef.read(graphdef.write(parsed(), protos.GraphDef), known)
    assert structure.violations(module, ["mine"]) == []
    assert not module.functions.read_ones()
    assert structure.violations(module) == []
    assert [body.name for body in module.functions.read_ones()] == ["f"]


def test_what_each_pass_made_is_written_into_a_folder(tmp_path):
    folder = tmp_path / "made" / "when needed"
    line = of(Pass("the one", rename_to("A"), ""), Pass("none", nothing, ""), Pass("two", rename_to("B"), ""))
    for _ in range(2):
        pipeline.run(line, parsed(), [], Watch(changed=dump.to_folder(str(folder), "tests")))
    names = sorted(path.name for path in folder.iterdir())
    runs = list(dict.fromkeys(int(name.split("-")[2]) for name in names))
    ends = ["01-the-one.txt", "03-two.txt"]
    assert names == ["tests-%d-%d-%s" % (os.getpid(), run, end) for run in runs for end in ends]
    assert len(runs) == 2
    first = GRAPH.splitlines()[0].replace("Placeholder", "%s") + "  # by pass '%s'"
    lines = [(folder / name).read_text(encoding="utf-8").splitlines() for name in names]
    assert [shown[0] for shown in lines] == [first % ("A", "the one"), first % ("B", "two")] * 2
    assert all(shown[1:] == text.show(parsed(GRAPH)).splitlines()[1:] for shown in lines)


def test_rewrites_of_protos_are_passes_too():
    source = graphdef.write(parsed(), protos.GraphDef)
    module = graphdef.read(source, known)
    module.graph.results = {"y": module.graph.value("u"), "train": module.graph.value("^a")}

    def add_a_node(module, context):
        changed = protos.GraphDef()
        changed.CopyFrom(graphdef.write(module))
        changed.node.add(name="new", op="NoOp")
        graphdef.replace(module, changed)

    line = of(
        Pass("native", rename_to("Const"), ""),
        Pass("protos", add_a_node, ""),
        Pass("same", lambda module, context: graphdef.replace(module, graphdef.write(module)), ""),
    )
    assert pipeline.run(line, module, [], Watch(after_each=True)) == ["native", "protos"]
    assert [node.name for node in module.graph][-1] == "new"
    assert module.graph.results == {"y": module.graph["u"].value, "train": module.graph["a"].output(CONTROL)}
    assert (module.graph["x"].op, module.graph["x"].made_by) == ("Const", "native")
    assert source.node[0].op == "Placeholder"
    assert len(graphdef.write(module).library.function) == 1
