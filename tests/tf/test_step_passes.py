"""The pipelines of compiled steps: their lists, and passes alone, text in and text out."""

import pathlib

import module_text
import pytest
import reference_material
import tensorflow.compat.v1 as tf
from passes_as_text import after, module_of

from npu_shim import cli
from npu_shim.cli.graphs import opt
from npu_shim.engine.pipeline import ENGINE
from npu_shim.options import passes
from npu_shim.rewriter import tf_internals
from npu_shim.rewriter.errors import ConfigError
from npu_shim.rewriter.ir import graphdef, text
from npu_shim.rewriter.passes import structure
from npu_shim.rewriter.passes.pipeline import Pass, Pipeline
from npu_shim.session.clusters import unchecked
from npu_shim.session.pipeline import SESSION
from npu_shim.xla import step_function
from npu_shim.xla.passes import dead_control_dependencies, quick_tests, shared_constants
from npu_shim.xla.pipeline import PRUNE
from npu_shim.xla.sources import Source

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "passes.md"
since_2_15 = pytest.mark.skipif(tf.__version__.startswith("1."), reason="TensorFlow 1.15.5 compiles no steps")


# -- lists -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("line", [SESSION, ENGINE, PRUNE], ids=lambda line: line.name)
def test_each_pass_has_a_name_of_its_own_and_a_reason_for_its_place(line):
    assert len({step.name for step in line.passes}) == len(line.passes)
    assert all(step.reason for step in line.passes)


def test_a_pass_is_in_one_pipeline():
    names = [step.name for line in opt.runnable() for step in line.passes] + [line.name for line in opt.runnable()]
    assert len(names) == len(set(names))


def test_the_page_is_the_list():
    # to make it again: npu-shim opt --list --markdown > docs/passes.md
    assert opt.markdown(opt.listings()) + "\n" == PAGE.read_text(encoding="utf-8")


def test_the_command_lists_each_pass_with_its_reason(capsys):
    assert cli.main(["opt", "--list"]) == 0
    out = capsys.readouterr().out
    assert all(step.name in out and step.reason in out for line in opt.runnable() for step in line.passes)


def passes_of(words):
    return [(line.name, [step.name for step in line.passes]) for line in opt.parts_of(words, opt.runnable())]


def test_words_name_passes_and_pipelines():
    first, second = (step.name for step in SESSION.passes[:2])
    assert passes_of(first + ",prune") == [("session", [first]), ("prune", ["dead-control-dependencies"])]
    assert passes_of("session") == [("session", [step.name for step in SESSION.passes])]
    assert [name for name, _ in passes_of("all")] == ["prune", "precision"]
    assert passes_of("%s,%s" % (first, second)) == [("session", [first, second])]
    with pytest.raises(ConfigError, match=r"there is no pass 'prun' \(did you mean 'prune'\?\)"):
        passes_of("prun")


# -- passes ------------------------------------------------------------------------------------------------------------

GROUP = """
x:Placeholder{dtype=float32} g:Log{T=float32}(x) w:Print{T=float32, U=[]}(x) n:NoOp(^g, ^x, ^w)
y:Identity{T=float32}(x, ^n) z:Exp{T=float32}(x) return y:0=y
"""


def test_dead_control_dependencies_and_dead_code_go():
    assert after(dead_control_dependencies.eliminate, GROUP) == (
        "n:NoOp(^w)\nw:Print{T=float32, U=[]}(x)\nx:Placeholder{dtype=float32}\ny:Identity{T=float32}(x, ^n)\n"
        "return y:0=y\n"
    )


def test_what_waits_for_an_assertion_is_dead_too_and_the_assertion_stays():
    """tf.nn.sparse_softmax_cross_entropy_with_logits asserts, so that all of a model's gradients wait for one."""
    source = """
    a:Assert{T=[float32]}(p, x) p:Placeholder{dtype=bool} x:Placeholder{dtype=float32} h:Identity{T=float32}(x, ^a)
    g:Log{T=float32}(h) n:NoOp(^g, ^a) y:Identity{T=float32}(h, ^n) return y:0=y
    """
    assert after(dead_control_dependencies.eliminate, source) == (
        "a:Assert{T=[float32]}(p, x)\nh:Identity{T=float32}(x, ^a)\nn:NoOp(^a)\np:Placeholder{dtype=bool}\n"
        "x:Placeholder{dtype=float32}\ny:Identity{T=float32}(h, ^n)\nreturn y:0=y\n"
    )


@pytest.mark.parametrize("source", [
    "w:Print{T=float32, U=[]}(x) n:NoOp(^w) x:Placeholder{dtype=float32} y:Identity{T=float32}(x, ^n) return y:0=y",
    """a:Assign{T=float32}(v, x) b:Identity{T=float32}(a) n:NoOp(^b) v:VariableV2{dtype=float32, shape=<>}
    x:Placeholder{dtype=float32} return n=^n""",
    "f:Identity{T=float32}(x, ^r) r:ResourceFuture x:Placeholder{dtype=float32} return f:0=f",
])  # fmt: skip
def test_waits_for_effects_stay(source):
    module = module_text.parse(source)
    module.graph.sort()
    before, version = text.show(module), module.version
    dead_control_dependencies.eliminate(module)
    assert (text.show(module), module.version) == (before, version)


COPIES = """
x:Placeholder{dtype=float32} p:Placeholder{dtype=bool} a:Const{dtype=float32, value=float32<>(0.5)}
b:Const{dtype=float32, value=float32<>(0.5)} c:Const{dtype=float32, value=float32<>(2.0)}
d:Const{dtype=float32, value=float32<>(0.5)}(^x) e:Const{dtype=float32, value=float32<>(0.5)}
f:Const{dtype=int32, value=int32<>(2)} y:Mul{T=float32}(x, b) z:AddN{T=float32, N=4}(a, b, c, d, ^b)
w:Pow{T=float32}(y, e) return y:0=y z:0=z e:0=e w:0=w
"""


def test_equal_constants_are_one_but_for_those_that_wait_or_are_fetched():
    module = graphdef.read(graphdef.write(module_of(COPIES)))
    for name, value in module_of(COPIES).results().items():
        module.graph.results[name] = module.graph.value(value)
    shared_constants.share(module)
    assert structure.violations(module) == []
    shown = text.show(module)
    assert "y:Mul{T=float32}(x, a)" in shown
    assert "z:AddN{N=4, T=float32}(a, a, c, d, ^a)" in shown
    assert "w:Pow{T=float32}(y, e)" in shown
    assert sorted(node.name for node in module.graph if node.op == "Const") == ["a", "c", "d", "e", "f"]


QUICK = """
g:Placeholder{dtype=float32} squares:L2Loss{T=float32}(g) q:IsFinite{T=float32, _npu_shim_quick_test=true}(squares)
slow:IsFinite{T=float32}(g) y:LogicalOr(q, slow)
"""


def test_quick_tests_fail_and_what_they_alone_need_goes():
    module = module_of(QUICK + "return y:0=y")
    quick_tests.fail(module)
    assert structure.violations(module) == []
    shown = text.show(module)
    assert "q:Const{dtype=bool, value=bool<>(false)}" in shown
    assert "y:LogicalOr(q, slow)" in shown
    assert "L2Loss" not in shown


@pytest.mark.parametrize("source", [
    QUICK + "return y:0=y q:0=q",
    "g:Placeholder{dtype=float32} q:IsFinite{T=float32}(g) return q:0=q",
    """g:Placeholder{dtype=float32} e:Enter{T=float32, frame_name="f"}(g)
    q:IsFinite{T=float32, _npu_shim_quick_test=true}(e) n:LogicalNot(q) x:Exit{T=bool}(n) return x:0=x""",
])  # fmt: skip
def test_quick_tests_that_are_fetched_or_in_loops_stay_as_other_tests_do(source):
    module = module_of(source)
    module.graph.sort()
    before = text.show(module)
    quick_tests.fail(module)
    assert text.show(module) == before


# -- running -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def graph_file(tmp_path):
    path = tmp_path / "graph.pb"
    path.write_bytes(graphdef.write(module_text.parse(GROUP), tf.GraphDef).SerializeToString())
    return str(path)


def test_passes_run_on_a_file(graph_file, tmp_path, capsys):
    assert cli.main(["opt", graph_file, "--fetches", "y:0", "--passes", "prune"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "n:NoOp(^w)"  # no pass is named where the result is the graph
    out = str(tmp_path / "out.pb")
    assert cli.main(["opt", graph_file, "--fetches", "y:0", "--passes", "prune", "--write", out]) == 0
    assert capsys.readouterr().out == out + ": dead-control-dependencies\n"
    assert cli.main(["opt", out, "--fetches", "y:0", "--passes", "prune", "--dump-after", "all"]) == 0
    assert capsys.readouterr().out == ""  # nothing is left to change
    assert cli.main(["opt", graph_file, "--fetches", "y:0", "--passes", "prune", "--dump-after", "prune"]) == 0
    assert capsys.readouterr().out.splitlines()[:2] == [
        "# after 1, dead-control-dependencies", "n:NoOp(^w)  # by pass 'dead-control-dependencies'",
    ]  # fmt: skip


def test_precision_and_a_session_run_on_a_file_too(tmp_path, capsys):
    source = """
    x:Placeholder{dtype=float32, shape=<2,2>} y:MatMul{T=float32}(x, x) z:Exp{T=float32}(y) return z:0=z
    """
    path = tmp_path / "graph.pb"
    path.write_bytes(graphdef.write(module_text.parse(source), tf.GraphDef).SerializeToString())
    asked = ["opt", str(path), "--fetches", "z:0", "--passes"]
    assert cli.main([*asked, "precision"]) == 0
    assert "y:MatMul{T=float16" in capsys.readouterr().out
    assert cli.main([*asked, "precision", "--precision-mode", "allow_mix_precision_bf16"]) == 0
    assert "y:MatMul{T=bfloat16" in capsys.readouterr().out
    assert cli.main([*asked, "precision,session", "--dump-after", "precision"]) == 0
    assert "# after 5, apply\n" in capsys.readouterr().out
    assert cli.main([*asked, "precision,kernel names,prune", "--write", str(tmp_path / "out.pb")]) == 0
    assert capsys.readouterr().out == "%s: precision\n" % (tmp_path / "out.pb")
    assert cli.main([*asked, "apply"]) == 2  # what it applies, another pass has planned
    assert "there is no pass 'apply'" in capsys.readouterr().err
    assert cli.main([*asked, "precision", "--precision-mode", "mixed"]) == 2
    assert "precision_mode" in capsys.readouterr().err


def test_wrong_words_are_told(graph_file, capsys):
    for words, problem in (
        (["opt"], "a graph file is needed, or --list"),
        (["opt", graph_file], "--fetches is needed"),
        (["opt", graph_file, "--fetches", "y", "--passes", "prun"], "did you mean 'prune'?"),
    ):
        assert cli.main(words) == 2
        assert problem in capsys.readouterr().err


def step(**options):
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [4], "x")
        variable = tf.get_variable("v", [4], initializer=tf.ones_initializer())
        loss = tf.reduce_sum(tf.square(variable * x), name="loss")
        train = tf.train.GradientDescentOptimizer(0.1).minimize(loss, name="train")
    return step_function.prepare(Source.of(graph.as_graph_def()), [loss.name, train.name], ["x:0"], **options)


@since_2_15
@pytest.mark.parametrize("by", ["option", "environment"])
def test_graphs_are_written_after_each_pass_that_changed_something(by, tmp_path, monkeypatch):
    folder = tmp_path / "graphs"
    if by == "environment":
        monkeypatch.setenv("NPU_SHIM_DUMP_GRAPHS", str(folder))
    step(**({"npu_shim_dump_graphs": str(folder)} if by == "option" else {}))
    (written,) = folder.iterdir()
    assert written.name.startswith("prune")
    assert "v:VariableV2{" in written.read_text()


@since_2_15
def test_each_pass_is_checked_on_request(monkeypatch):
    def broken(module, context):
        module.graph["loss"].set_inputs([])

    rows = [Pass("breaks", broken, ""), *PRUNE.passes]
    monkeypatch.setattr(step_function.pipeline, "PRUNE", Pipeline("prune", "breaks", tuple(rows)))
    with pytest.raises(Exception, match=r"pass 'breaks': 'loss' \(Sum\) has 0 inputs, its op 2"):
        step(npu_shim_verify="each")


def test_words_of_the_check_are_told(monkeypatch):
    assert passes.wanted({"npu_shim_verify": "end"}) == passes.Watching()
    assert passes.wanted({"npu_shim_verify": "each", "npu_shim_dump_graphs": "d"}) == passes.Watching(True, "d")
    with pytest.raises(
        ConfigError, match=r"npu_shim_verify is 'ech', expected one of end, each \(did you mean 'each'\?\)"
    ):
        passes.wanted({"npu_shim_verify": "ech"})
    monkeypatch.setenv("NPU_SHIM_VERIFY", "never")
    with pytest.raises(ConfigError, match="NPU_SHIM_VERIFY is 'never', expected one of end, each"):
        passes.wanted({})


UNCHECKED = """
x:Placeholder{dtype=float32, shape=<4,2>} i:Placeholder{dtype=int32, shape=<3>}
n:Const{dtype=int32, value=int32<1>(1)} s:Shape{T=float32}(x) m:AddV2{T=int32}(s, n)
a:Gather{Tparams=float32, Tindices=int32}(x, i) b:Gather{Tparams=int32, Tindices=int32}(m, n)
c:Merge{T=int32, N=2}(n, d) d:NextIteration{T=int32}(c) e:Gather{Tparams=float32, Tindices=int32}(x, c)
u:Placeholder{dtype=uint32, shape=<3>} f:Div{T=uint32}(u, u) j:Placeholder{dtype=int32, shape=<3,1>}
g:ScatterNd{T=int32, Tindices=int32}(j, i, n)
p:Pow{T=int32}(i, n) q:Pow{T=int32}(n, i) l:Slice{T=float32, Index=int32}(x, i, n)
o:StridedSlice{T=float32, Index=int32, shrink_axis_mask=1}(x, i, i, n)
t:StridedSlice{T=float32, Index=int32, shrink_axis_mask=1}(x, n, n, n)
r:StridedSlice{T=float32, Index=int32}(x, i, i, n)
"""


def test_what_tensorflow_alone_checks_is_told_but_for_shapes(caplog):
    call = "x:Placeholder{dtype=float32} y:Placeholder{dtype=int32} n:f(x, y)"
    body = "o:Gather{Tparams=float32, Tindices=int32}(r, k) return o=o"
    unchecked.tell(graphdef.write(module_text.parse(UNCHECKED), tf.GraphDef))
    (told,) = [record.getMessage() for record in caplog.records if "takes the last row" in record.getMessage()]
    assert told.endswith("an error: 'a', 'e'")
    others = [record.getMessage() for record in caplog.records if "takes the last row" not in record.getMessage()]
    assert [other.rpartition(": ")[2] for other in others] == ["'l', 'o'", "'f'", "'q'", "'g'"]
    unchecked._said.cache_clear()
    function = "function f(r: float32, k: int32) -> (o: float32)\n%s\nend" % body
    unchecked.tell(graphdef.write(module_text.parse("%s\n%s" % (call, function)), tf.GraphDef))
    assert caplog.records[-1].getMessage().endswith("an error: 'o'")


# -- shapes ------------------------------------------------------------------------------------------------------------


def _tensors(graph, graph_def):
    operations = [graph.get_operation_by_name(node.name) for node in graph_def.node]
    return [(op.type, [(t.dtype, str(t.shape), t.op is op) for t in op.outputs]) for op in operations]


@since_2_15
def test_a_read_only_graph_has_the_shapes_of_an_imported_one():
    graph_def = reference_material.training_graph("bert_tiny_train")
    graph = tf_internals.read_only_graph(graph_def)
    with tf.Graph().as_default() as imported:
        tf.import_graph_def(graph_def, name="")
    assert _tensors(graph, graph_def) == _tensors(imported, graph_def)
    with pytest.raises(KeyError):
        graph.get_operation_by_name("none")
    with pytest.raises(RuntimeError, match="finalized"), graph.as_default():
        tf.constant(0)


@since_2_15
def test_shapes_that_contradict_each_other_are_told():
    source = "c:Const{dtype=float32, value=float32<2>(2.0, 3.0)} m:MatMul{T=float32}(c, c)"
    with pytest.raises(ValueError, match="Shape must be rank 2 but is rank 1 for"):
        tf_internals.read_only_graph(graphdef.write(module_text.parse(source), tf.GraphDef))
