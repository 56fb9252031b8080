"""Function calls, text in, text out: inlined into one flat graph, and written back after it was rewritten."""

import protos
import pytest

from npu_shim.rewriter.errors import ConfigError, VerifyError
from npu_shim.rewriter.graphdef import functions
from npu_shim.rewriter.graphdef.inlining import inline, split, tensor
from npu_shim.rewriter.graphdef.outlining import outline

DEFINITIONS = protos.op_defs()


@pytest.fixture(autouse=True)
def _definitions(monkeypatch):
    monkeypatch.setattr(functions.tf_internals, "op_defs", lambda: DEFINITIONS)


def flat(text, **given):
    """The nodes of the flat graph of a text, one a line."""
    return protos.shown(inline(protos.parse(text), **given).graph_def).splitlines()[-1].split(" ")


CALL = """
    def f(x, y) -> r:out:0: a:MatMul(x,y) r:Relu(a:out:0)
    x:Placeholder c:PartitionedCall{Tin=ff;Tout=f;f=f}(x,x) e:Exp(c)
"""
BY_NAME = """
    def f(x) -> r:out:0: r:Relu(x)
    x:Placeholder c:f(x) e:Exp(c)
"""
IF = """
    def t(x) -> a:out:0: a:MatMul(x,x)
    def e(x) -> x: n:NoOp
    p:Placeholder@b x:Placeholder c:If{Tcond=b;Tin=f;Tout=f;else_branch=e;then_branch=t}(p,x) e:Exp(c)
"""
CASE = """
    def a(x) -> a:out:0: a:MatMul(x,x)
    def b(x) -> a:out:0: a:Relu(x)
    p:Placeholder@i x:Placeholder c:Case{Tin=f;Tout=f;branches=a,b,a}(p,x) e:Exp(c)
"""
CASE_OF_TWO = """
    def a(x) -> a:out:0: a:MatMul(x,x)
    def b(x) -> a:out:0: a:Relu(x)
    p:Placeholder@i x:Placeholder c:Case{Tin=f;Tout=f;branches=a,b}(p,x) e:Exp(c)
"""
WHILE = """
    def c(i@i, x) -> l:out:0@b: l:Less(i,i)
    def b(i@i, x) -> i@i, a:out:0: a:MatMul(x,x)
    i:Const@i x:Placeholder w:While{T=if;body=b;cond=c}(i,x) e:Exp(w:1)
"""
NESTED = """
    def g(x) -> m:out:0: m:MatMul(x,x)
    def f(x) -> c:output:0: c:PartitionedCall{Tin=f;Tout=f;f=g}(x)
    x:Placeholder d:PartitionedCall{Tin=f;Tout=f;f=f}(x) e:Exp(d)
"""
TWO_RESULTS = """
    def f(x) -> s:out:1, x, s:out:0: s:Split(x)
    x:Placeholder c:PartitionedCall{Tin=f;Tout=fff;f=f}(x) e:Exp(c:2) g:Exp(c:1)
"""
NAMES_TAKEN = CALL.replace("a:MatMul", "y-to-float16:NoOp x-to-float16:NoOp x-to-float16-1:NoOp a:MatMul")
ON_A_DEVICE = CALL.replace("PartitionedCall", "PartitionedCall/cpu:0")
TEXTS = {
    "call": CALL, "call by name": BY_NAME, "if": IF, "case": CASE, "case of two": CASE_OF_TWO, "while": WHILE,
    "nested": NESTED, "several results": TWO_RESULTS,
}  # fmt: skip

FLAT = {
    CALL: """
        x:Placeholder c:NoOp e:Exp(c[out0]) c[body]/a:MatMul(c[in0],c[in1]) c[body]/r:Relu(c[body]/a)
          c[in0]:Identity(x) c[in1]:Identity(x) c[out0]:Identity(c[body]/r)
    """,
    BY_NAME: """
        x:Placeholder c:NoOp e:Exp(c[out0]) c[body]/r:Relu(c[in0]) c[in0]:Identity(x) c[out0]:Identity(c[body]/r)
    """,
    IF: """
        p:Placeholder@b x:Placeholder c:NoOp e:Exp(c[out0]) c[else]/n:NoOp c[then]/a:MatMul(c[in0]:1,c[in0]:1)
          c[in0]:Switch(x,p) c[out0]:Merge{N=2}(c[in0],c[then]/a,^p)
    """,
    CASE: """
        p:Placeholder@i x:Placeholder c:NoOp e:Exp(c[out0]) c[branch0]/a:MatMul(c[in0],c[in0])
          c[branch1]/a:Relu(c[in0]:1) c[branch2]/a:MatMul(c[in0]:2,c[in0]:2) c[in0]:_SwitchN{num_outs=3}(x,p)
          c[out0]:Merge{N=3}(c[branch0]/a,c[branch1]/a,c[branch2]/a,^p)
    """,
    CASE_OF_TWO: """
        p:Placeholder@i x:Placeholder c:NoOp e:Exp(c[out0]) c[branch0]/a:MatMul(c[in0],c[in0])
          c[branch1]/a:Relu(c[in0]:1) c[in0]:_SwitchN{num_outs=2}(x,p) c[out0]:Merge{N=2}(c[branch0]/a,c[branch1]/a,^p)
    """,
    WHILE: """
        i:Const@i x:Placeholder w:NoOp e:Exp(w[var1]) w[cond]/l:Less(w[merge0],w[merge0])
          w[body]/a:MatMul(w[var1]:1,w[var1]:1) w[enter0]:Enter@i{frame_name=w}(i) w[enter1]:Enter{frame_name=w}(x)
          w[next0]:NextIteration@i(w[var0]:1) w[merge0]:Merge@i{N=2}(w[enter0],w[next0])
          w[var0]:Switch@i(w[merge0],w[cond]/l) w[next1]:NextIteration(w[body]/a)
          w[merge1]:Merge{N=2}(w[enter1],w[next1]) w[var1]:Switch(w[merge1],w[cond]/l)
    """,
    NESTED: """
        x:Placeholder d:NoOp e:Exp(d[out0]) d[body]/c:NoOp d[body]/c[body]/m:MatMul(d[body]/c[in0],d[body]/c[in0])
          d[in0]:Identity(x) d[out0]:Identity(d[body]/c[out0]) d[body]/c[in0]:Identity(d[in0])
          d[body]/c[out0]:Identity(d[body]/c[body]/m)
    """,
    TWO_RESULTS: """
        x:Placeholder c:NoOp e:Exp(c[out2]) g:Exp(c[out1]) c[body]/s:Split(c[in0]) c[in0]:Identity(x)
          c[out0]:Identity(c[body]/s:1) c[out1]:Identity(c[in0]) c[out2]:Identity(c[body]/s)
    """,
}


@pytest.mark.parametrize("name", TEXTS)
def test_calls_become_ops_that_move_data(name):
    assert flat(TEXTS[name]) == FLAT[TEXTS[name]].split()


@pytest.mark.parametrize("name", TEXTS)
def test_a_graph_that_was_not_changed_comes_back(name):
    graph = protos.parse(TEXTS[name])
    before = graph.SerializeToString(deterministic=True)
    inlined = inline(graph)
    assert outline(inlined, inlined.graph_def) == graph
    assert graph.SerializeToString(deterministic=True) == before


def test_what_is_noted_of_a_loop_and_a_branch():
    loop, branch = inline(protos.parse(WHILE)), inline(protos.parse(IF))
    assert [(scope.prefix, start) for scope, start in zip(loop.scopes, loop.starts)] == [
        ("", 0), ("w[cond]/", 4), ("w[body]/", 5)
    ]  # fmt: skip
    assert loop.scopes[2].args == {"i": "w[var0]:1", "x": "w[var1]:1"}
    assert (loop.calls[0].kind, loop.calls[0].selector, loop.calls[0].scopes) == ("loop", "", (1, 2))
    assert (loop.calls[0].takes, loop.calls[0].gives) == ((3, 1), (3, 1))
    assert (branch.calls[0].kind, branch.calls[0].selector) == ("branch", "p")
    assert branch.scopes[0].calls["c"].selector == "p"
    assert loop.graph_def.versions == loop.source.versions
    assert [function.signature.name for function in loop.graph_def.library.function] == ["c", "b"]


def test_a_selector_that_a_call_gives():
    text = """
        def f(p@b) -> p@b: n:NoOp
        def t(x) -> a:out:0: a:MatMul(x,x)
        p:Placeholder@b x:Placeholder c:PartitionedCall{f=f}(p) d:If{else_branch=t;then_branch=t}(c,x)
    """
    inlined = inline(protos.parse(text))
    assert [call.selector for call in inlined.calls] == ["", "c[out0]"]
    assert "d[in0]:Switch(x,c[out0])" in flat(text)
    assert outline(inlined, inlined.graph_def) == inlined.source


def test_a_graph_without_calls_is_handed_on_as_it_is():
    for text in ("x:Placeholder r:Relu(x)", "def f(x) -> x: n:NoOp\nx:Placeholder r:Relu(x)"):
        graph = protos.parse(text)
        inlined = inline(graph)
        assert inlined.graph_def is graph
        assert (inlined.calls, inlined.warnings) == ((), ())
        assert outline(inlined, graph) is graph


def test_devices_and_the_dtype_asked_for_are_inherited():
    graph = protos.parse("""
        def g(x) -> r:out:0: r:Relu(x)
        def f(x) -> r:out:0: a:MatMul/gpu:1(x,x) c:PartitionedCall{Tout=f;f=g}(a:out:0) r:Relu(c:output:0)
        x:Placeholder c:PartitionedCall/cpu:0{f=f}(x) d:PartitionedCall{f=g}(x)
    """)
    graph.node[1].attr["_npu_shim_to_float"].type = 19
    graph.library.function[1].node_def[2].attr["_npu_shim_to_float"].type = 1
    nodes = {node.name: node for node in inline(graph).graph_def.node}
    placed = {name: (node.device, node.attr["_npu_shim_to_float"].type) for name, node in nodes.items()}
    assert placed == {
        "x": ("", 0), "c": ("/cpu:0", 0), "d": ("", 0), "d[body]/r": ("", 0), "d[in0]": ("", 0), "d[out0]": ("", 0),
        "c[body]/a": ("/gpu:1", 19), "c[body]/c": ("/cpu:0", 0), "c[body]/r": ("/cpu:0", 1),
        "c[body]/c[body]/r": ("/cpu:0", 19), "c[in0]": ("/cpu:0", 0), "c[out0]": ("/cpu:0", 0),
        "c[body]/c[in0]": ("/cpu:0", 0), "c[body]/c[out0]": ("/cpu:0", 0),
    }  # fmt: skip


def test_what_waits():
    """A body's node may wait for an argument: in the flat graph it waits for what gives that."""
    text = """
        def f(x) -> r:out:0: n:NoOp(^x) r:Relu(x,^n) c:g(r:out:0,^x,^n)
        def g(x) -> x: n:NoOp
        x:Placeholder p:NoOp c:PartitionedCall{f=f}(x,^p) e:Exp(x,^c)
    """
    expected = """
        x:Placeholder p:NoOp c:NoOp(^p) e:Exp(x,^c) c[body]/n:NoOp(^c[in0]) c[body]/r:Relu(c[in0],^c[body]/n)
        c[body]/c:NoOp(^c[in0],^c[body]/n) c[body]/c[body]/n:NoOp c[in0]:Identity(x) c[out0]:Identity(c[body]/r)
        c[body]/c[in0]:Identity(c[body]/r) c[body]/c[out0]:Identity(c[body]/c[in0])
    """
    assert flat(text) == expected.split()
    inlined = inline(protos.parse(text))
    assert outline(inlined, inlined.graph_def) == inlined.source


def test_a_preserved_call_keeps_its_results_under_its_name():
    text = TWO_RESULTS.replace("f=f}(x)", "f=f}(x,^x)")
    for fetched in ("c", "c:1", "^c"):
        assert flat(text, preserved=[fetched])[1] == "c:IdentityN{T=fff}(c[out0],c[out1],c[out2],^x)"
    assert flat(text, preserved=["e"])[1] == "c:NoOp(^x)"
    inlined = inline(protos.parse(text), preserved=["c"])
    assert outline(inlined, inlined.graph_def) == inlined.source
    graph = protos.parse("def f(x) -> x: n:NoOp\nx:Placeholder c:PartitionedCall{f=f}(x)")
    del graph.library.function[0].signature.output_arg[:]
    graph.library.function[0].ret.clear()
    inlined = inline(graph, preserved=["c"])
    assert inlined.graph_def.node[1].op == "NoOp"
    assert outline(inlined, inlined.graph_def) == graph


def test_only_calls_of_the_graph_itself_are_fetched():
    """A call in a body is called as the graph's own where the names happen to be equal."""
    assert flat(NESTED, preserved=["d[body]/c"])[3] == "d[body]/c:NoOp"


LEFT = {
    "fed": (CALL, {"feeds": ["c:0"]}),
    "kept by scope": (CALL.replace("f=f}", "f=f;_keep_dtype=1}"), {}),
    "of several dtypes": (IF.replace("Tcond=b", "Tcond=f"), {}),
    "with more inputs than the function": (CALL.replace("(x,x) e", "(x,x,x) e"), {}),
    "a function that is not there": (CALL.replace("f=f}", "f=g}"), {}),
    "without a function": (CALL.replace(";f=f}", "}"), {}),
    "branches that differ": (IF.replace("def e(x) -> x", "def e(x@h) -> x"), {}),
    "branches that give other dtypes": (IF.replace("def e(x) -> x", "def e(x) -> x@h"), {}),
    "a branch with more inputs": (IF.replace("(p,x)", "(p,x,x)"), {}),
    "a loop whose values change their dtype": (WHILE.replace("a:out:0: ", "a:out:0@h: "), {}),
    "a loop whose condition is a number": (WHILE.replace("l:out:0@b", "l:out:0@i"), {}),
    "a loop whose condition takes other values": (WHILE.replace("def c(i@i, x)", "def c(i@i, x@h)"), {}),
    "a loop with a value too many": (WHILE.replace("(i,x) e", "(i,x,x) e"), {}),
}


@pytest.mark.parametrize("why", LEFT)
def test_calls_that_stay(why):
    text, given = LEFT[why]
    graph = protos.parse(text)
    inlined = inline(graph, **given)
    assert inlined.graph_def is graph
    assert inlined.calls == ()


def test_in_a_body_a_fed_name_and_a_missing_function_are_another_matter():
    assert "d[body]/c:NoOp" in flat(NESTED, feeds=["d[body]/c"])
    assert "c[body]/d:PartitionedCall{Tout=f;f=h}(c[in0])" in flat("""
        def f(x) -> d:output:0: d:PartitionedCall{Tout=f;f=h}(x)
        x:Placeholder c:PartitionedCall{f=f}(x)
    """)


WHY = {
    "op Strange in it is not in this TensorFlow": "def f(x) -> r:out:0: r:Strange(x) q:Unknown(x)",
    "it calls itself, or is between functions that do": "def f(x) -> r:r:0: r:f(x)",
}


@pytest.mark.parametrize("why", WHY)
def test_functions_that_are_left_are_told(why):
    inlined = inline(protos.parse(WHY[why] + "\n x:Placeholder c:f(x)"))
    assert inlined.warnings == ("function 'f' is left as written: " + why,)
    assert inlined.calls == ()


def test_beside_a_function_that_is_left_others_are_inlined():
    text = "def f(x) -> r:out:0: r:Strange(x)\ndef g(x) -> r:out:0: r:Relu(x)\n x:Placeholder c:f(x) d:g(c)"
    inlined = inline(protos.parse(text))
    assert [call.name for call in inlined.calls] == ["d"]
    assert len(inlined.warnings) == 1
    assert outline(inlined, inlined.graph_def) == inlined.source


def signed(change):
    """A graph with a call of a function whose signature is changed."""
    graph = protos.parse(BY_NAME)
    change(graph.library.function[0].signature)
    return graph


def test_signatures_with_attributes_references_or_lists_are_left():
    def with_reference(signature):
        signature.input_arg[0].is_ref = True

    def without_type(signature):
        signature.output_arg[0].type = 0

    def with_list(signature):
        signature.output_arg[0].number_attr = "N"

    for change in (with_reference, without_type, with_list):
        assert inline(signed(change)).warnings[0].endswith("its signature has references or lists")
    warnings = inline(signed(lambda signature: signature.attr.add(name="T"))).warnings
    assert warnings[0].endswith("its signature has attributes")


def test_functions_that_would_become_too_many_nodes_are_left(monkeypatch):
    text = """
        def g(x) -> r:out:0: a:MatMul(x,x) r:Relu(a:out:0)
        def f(x) -> b:r0:0: a:g(x) b:g(a:r0:0)
        x:Placeholder c:f(x) d:f(c) h:g(d)
    """
    monkeypatch.setattr(functions, "MOST_NODES", 10)
    assert inline(protos.parse(text)).warnings == ()
    monkeypatch.setattr(functions, "MOST_NODES", 9)
    inlined = inline(protos.parse(text))
    assert inlined.warnings == (
        "function 'g' is left as written: inlined for each of its calls it would have 10 nodes",
    )
    assert [call.name for call in inlined.calls] == ["c", "d"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("r:Relu(y)", "function 'f' reads 'y', which is not in it"),
        ("r:Relu(rr:out:0)", "function 'f' reads 'rr', which is not in it, did you mean 'r'?"),
        ("r:Relu(x) q:Relu(r:product:0)", "function 'f' reads 'product'"),
        ("r:Relu(x) q:Relu(r:out:1)", "function 'f' reads 'out'"),
        ("r:Relu(a:values:0) a:TopK(x) q:Relu(a:indices:1)", "function 'f' reads 'indices'"),
    ],
)
def test_what_is_read_and_is_not_there_is_named(body, message):
    with pytest.raises(ConfigError) as raises:
        inline(protos.parse("def f(x) -> r:out:0: %s\nx:Placeholder c:f(x)" % body))
    assert message.partition(", did")[0] in str(raises.value)


def test_outputs_by_argument_and_number():
    text = """
        def f(x) -> t:indices:0, s:out:2, n:out:1: t:TopK(x) s:Split{num_split=3}(x) n:IdentityN{T=ff}(x,x)
        x:Placeholder c:f(x)
    """
    assert flat(text)[-3:] == [
        "c[out0]:Identity(c[body]/t:1)", "c[out1]:Identity(c[body]/s:2)", "c[out2]:Identity(c[body]/n:1)"
    ]  # fmt: skip
    inlined = inline(protos.parse(text))
    assert outline(inlined, inlined.graph_def) == inlined.source
    first = "def f(x) -> q:out:0: r:Relu(x) q:Exp(r:out)\n x:Placeholder c:f(x)"
    assert flat(first)[3] == "c[body]/q:Exp(c[body]/r)"


def test_names_of_tensors():
    assert [split("a"), split("a:0"), split("s/a:12")] == [("a", 0), ("a", 0), ("s/a", 12)]
    assert [tensor("a", 0), tensor("a", 1)] == ["a", "a:1"]


def rewritten(text, changes, preserved=()):
    """The graph with functions that the flat graph of a text becomes after changes, as text.

    A change is a node: of one that is there the dtype, and the inputs where it has any, another is added.
    """
    inlined = inline(protos.parse(text), preserved=preserved)
    edited = type(inlined.graph_def)()
    edited.CopyFrom(inlined.graph_def)
    nodes = {node.name: node for node in edited.node}
    changed = protos.GraphDef()
    protos.nodes(changes, changed.node)
    for node in changed.node:
        if node.name in nodes:
            nodes[node.name].attr["T"].CopyFrom(node.attr["T"])
            if node.input:
                nodes[node.name].input[:] = node.input
        else:
            edited.node.add().CopyFrom(node)
    before = edited.SerializeToString(deterministic=True)
    graph = outline(inlined, edited)
    assert edited.SerializeToString(deterministic=True) == before
    count = len(inlined.source.library.function)
    assert list(graph.library.function)[:count] == list(inlined.source.library.function)
    del graph.library.function[:count]
    text = protos.shown(graph)
    for number, function in enumerate(graph.library.function):  # their names are hashes of what is in them
        name, digest = function.signature.name.rsplit("_", 1)
        assert len(digest) == 8
        text = text.replace(function.signature.name, "%s_%d" % (name, number))
    return text.splitlines()


REWRITTEN = {
    # a low body has a low signature; what else is cast is cast inside
    "a call": (CALL, """
        c[in0]:Identity@h(x-0-to-float16) x-0-to-float16:Cast@h(x) c[in1]-0-to-float16:Cast@h(c[in1])
        c[body]/a:MatMul@h(c[in0],c[in1]-0-to-float16) c[body]/r:Relu@h
        c[out0]:Identity@h c[out0]-0-to-float32:Cast(c[out0]) e:Exp(c[out0]-0-to-float32)
    """, """
        def f_low_0(x@h, y) -> r:out:0@h: a:MatMul@h(x,y-to-float16:out:0) r:Relu@h(a:out:0) y-to-float16:Cast@h(y)
        x:Placeholder c:PartitionedCall{Tin=hf;Tout=h;f=f_low_0}(x-0-to-float16,x) e:Exp(c-to-float32)
          x-0-to-float16:Cast@h(x) c-to-float32:Cast(c)
    """),
    # both branches low: the value goes in and out low
    "a condition": (IF, """
        x-0-to-float16:Cast@h(x) c[in0]:Switch@h(x-0-to-float16,p) c[then]/a:MatMul@h c[out0]:Merge@h
          c[out0]-0-to-float32:Cast(c[out0]) e:Exp(c[out0]-0-to-float32)
    """, """
        def e_low_0(x@h) -> x@h: n:NoOp
        def t_low_1(x@h) -> a:out:0@h: a:MatMul@h(x,x)
        p:Placeholder@b x:Placeholder
          c:If{Tcond=b;Tin=h;Tout=h;else_branch=e_low_0;then_branch=t_low_1}(p,x-0-to-float16) e:Exp(c-to-float32)
          x-0-to-float16:Cast@h(x) c-to-float32:Cast(c)
    """),
    # one branch only: the other is called as before
    "one branch": (IF, """
        c[in0]-1-to-float16:Cast@h(c[in0]:1) c[then]/a:MatMul@h(c[in0]-1-to-float16,c[in0]-1-to-float16)
          c[then]/a-0-to-float32:Cast(c[then]/a) c[out0]:Merge(c[in0],c[then]/a-0-to-float32)
    """, """
        def t_low_0(x) -> a-0-to-float32:out:0: a:MatMul@h(x-to-float16:out:0,x-to-float16:out:0)
          a-0-to-float32:Cast(a:out:0) x-to-float16:Cast@h(x)
        p:Placeholder@b x:Placeholder c:If{Tcond=b;Tin=f;Tout=f;else_branch=e;then_branch=t_low_0}(p,x) e:Exp(c)
    """),
    # of the three branches two are one function
    "a case": (CASE, """
        c[in0]-0-to-float16:Cast@h(c[in0]) c[branch0]/a:MatMul@h(c[in0]-0-to-float16,c[in0]-0-to-float16)
          c[in0]-2-to-float16:Cast@h(c[in0]:2) c[branch2]/a:MatMul@h(c[in0]-2-to-float16,c[in0]-2-to-float16)
          c[branch0]/a-0-to-float32:Cast(c[branch0]/a) c[branch2]/a-0-to-float32:Cast(c[branch2]/a)
          c[out0]:Merge(c[branch0]/a-0-to-float32,c[branch1]/a,c[branch2]/a-0-to-float32)
    """, """
        def a_low_0(x) -> a-0-to-float32:out:0: a:MatMul@h(x-to-float16:out:0,x-to-float16:out:0)
          a-0-to-float32:Cast(a:out:0) x-to-float16:Cast@h(x)
        p:Placeholder@i x:Placeholder c:Case{Tin=f;Tout=f;branches=a_low_0,b,a_low_0}(p,x) e:Exp(c)
    """),
    # a loop variable: Enter, Merge, Switch and NextIteration are one argument of both functions
    "a loop": (WHILE, """
        x-0-to-float16:Cast@h(x) w[enter1]:Enter@h(x-0-to-float16) w[merge1]:Merge@h w[var1]:Switch@h
          w[next1]:NextIteration@h w[body]/a:MatMul@h w[var1]-0-to-float32:Cast(w[var1]) e:Exp(w[var1]-0-to-float32)
    """, """
        def b_low_0(i@i, x@h) -> i@i, a:out:0@h: a:MatMul@h(x,x)
        def c_low_1(i@i, x@h) -> l:out:0@b: l:Less(i,i)
        i:Const@i x:Placeholder w:While{T=ih;body=b_low_0;cond=c_low_1}(i,x-0-to-float16) e:Exp(w-1-to-float32)
          x-0-to-float16:Cast@h(x) w-1-to-float32:Cast(w:1)
    """),
    # casts in the body and at its end, none of them outside
    "in a loop": (WHILE, """
        w[var1]-1-to-float16:Cast@h(w[var1]:1) w[body]/a:MatMul@h(w[var1]-1-to-float16,w[var1]-1-to-float16)
          w[body]/a-0-to-float32:Cast(w[body]/a) w[next1]:NextIteration(w[body]/a-0-to-float32)
    """, """
        def b_low_0(i@i, x) -> i@i, a-0-to-float32:out:0: a:MatMul@h(x-to-float16:out:0,x-to-float16:out:0)
          a-0-to-float32:Cast(a:out:0) x-to-float16:Cast@h(x)
        i:Const@i x:Placeholder w:While{T=if;body=b_low_0;cond=c}(i,x) e:Exp(w:1)
    """),
    # the caller of a new function is new
    "a function in a function": (NESTED, """
        d[body]/c[in0]-0-to-float16:Cast@h(d[body]/c[in0])
          d[body]/c[body]/m:MatMul@h(d[body]/c[in0]-0-to-float16,d[body]/c[in0])
          d[body]/c[body]/m-0-to-float32:Cast(d[body]/c[body]/m)
          d[body]/c[out0]:Identity(d[body]/c[body]/m-0-to-float32)
    """, """
        def f_low_0(x) -> c:output:0: c:PartitionedCall{Tin=f;Tout=f;f=g_low_1}(x)
        def g_low_1(x) -> m-0-to-float32:out:0: m:MatMul@h(x-to-float16:out:0,x) m-0-to-float32:Cast(m:out:0)
          x-to-float16:Cast@h(x)
        x:Placeholder d:PartitionedCall{Tin=f;Tout=f;f=f_low_0}(x) e:Exp(d)
    """),
    # a cast of a result that two read in a body; a cast of another cast
    "a pair of casts": (NESTED, """
        d[body]/c[out0]-0-to-float16:Cast@h(d[body]/c[out0])
          d[body]/c[out0]-0-to-float16-rounded:Cast(d[body]/c[out0]-0-to-float16)
          d[out0]:Identity(d[body]/c[out0]-0-to-float16-rounded)
    """, """
        def f_low_0(x) -> c-output-0-to-float16-rounded:out:0: c:PartitionedCall{Tin=f;Tout=f;f=g}(x)
          c-output-0-to-float16:Cast@h(c:output:0) c-output-0-to-float16-rounded:Cast(c-output-0-to-float16:out:0)
        x:Placeholder d:PartitionedCall{Tin=f;Tout=f;f=f_low_0}(x) e:Exp(d)
    """),
    # whatever the order in which they were added
    "a pair the other way round": (NESTED, """
        d[body]/c[out0]-0-to-float16-rounded:Cast(d[body]/c[out0]-0-to-float16)
        d[body]/c[out0]-0-to-float16:Cast@h(d[body]/c[out0]) d[out0]:Identity(d[body]/c[out0]-0-to-float16-rounded)
    """, """
        def f_low_0(x) -> c-output-0-to-float16-rounded:out:0: c:PartitionedCall{Tin=f;Tout=f;f=g}(x)
          c-output-0-to-float16:Cast@h(c:output:0) c-output-0-to-float16-rounded:Cast(c-output-0-to-float16:out:0)
        x:Placeholder d:PartitionedCall{Tin=f;Tout=f;f=f_low_0}(x) e:Exp(d)
    """),
    # what reads nothing stands by its name: in the body of the node that it is about, or of the value
    "constants": (CALL, """
        c[body]/a-0-to-float16:Const@h c[body]/r:Relu(c[body]/a-0-to-float16) c[in1]-0-to-float16:Const@h
          c[body]/a:MatMul(c[in1]-0-to-float16,c[in0]) e-0-to-float16:Const@h e:Exp(e-0-to-float16)
          c[out0]-0-to-float16:Const@h
    """, """
        def f_low_0(x, y) -> r:out:0: a:MatMul(y-to-float16:out:0,x) a-0-to-float16:Const@h
          r:Relu(a-0-to-float16:out:0) y-to-float16:Const@h
        x:Placeholder c:PartitionedCall{Tin=ff;Tout=f;f=f_low_0}(x,x) e:Exp(e-0-to-float16) e-0-to-float16:Const@h
          c-to-float16:Const@h
    """),
    # what only waits stands where it waits, and what is added may wait too
    "waiting": (CALL, """
        c[body]/k:Const@h(^c[body]/a) c[body]/r:Relu(c[body]/k) k:Const@h(^x) e:Exp(k,^x)
    """, """
        def f_low_0(x, y) -> r:out:0: a:MatMul(x,y) k:Const@h(^a) r:Relu(k:out:0)
        x:Placeholder c:PartitionedCall{Tin=ff;Tout=f;f=f_low_0}(x,x) e:Exp(k) k:Const@h(^x)
    """),
    # an added node may wait for an argument
    "waiting for an argument": (WHILE, """
        w[body]/k:Const@h(^w[var1]) w[body]/a:MatMul(w[body]/k,w[var1]:1) w[cond]/k:Const(^w[merge0])
        w[cond]/l:Less@b(w[cond]/k,w[merge0])
    """, """
        def b_low_0(i@i, x) -> i@i, a:out:0: a:MatMul(k:out:0,x) k:Const@h(^x)
        def c_low_1(i@i, x) -> l:out:0@b: k:Const(^i) l:Less@b(k:out:0,i)
        i:Const@i x:Placeholder w:While{T=if;body=b_low_0;cond=c_low_1}(i,x) e:Exp(w:1)
    """),
    # a name that is taken in the body, and a device that the call has already
    "names and devices": (NAMES_TAKEN, """
        c[in0]-0-to-float16:Cast@h(c[in0]) c[body]/a:MatMul@h(c[in0]-0-to-float16,c[in1])
          x-0-to-float16:Cast@h/cpu:0(x) c[in1]-0-to-float16:Cast@h/cpu:0(c[in1]) c[body]/r:Relu(c[in1]-0-to-float16)
    """, """
        def f_low_0(x, y) -> r:out:0: a:MatMul@h(x-to-float16-2:out:0,y) r:Relu(y-to-float16-1:out:0)
          x-to-float16:NoOp x-to-float16-1:NoOp x-to-float16-2:Cast@h(x) y-to-float16:NoOp
          y-to-float16-1:Cast@h/cpu:0(y)
        x:Placeholder c:PartitionedCall{Tin=ff;Tout=f;f=f_low_0}(x,x) e:Exp(c) x-0-to-float16:Cast@h/cpu:0(x)
    """),
    "the device of the call": (ON_A_DEVICE, """
        c[in0]-0-to-float16:Cast@h/cpu:0(c[in0]) c[body]/a:MatMul@h(c[in0]-0-to-float16,c[in1])
    """, """
        def f_low_0(x, y) -> r:out:0: a:MatMul@h(x-to-float16:out:0,y) r:Relu(a:out:0) x-to-float16:Cast@h(x)
        x:Placeholder c:PartitionedCall/cpu:0{Tin=ff;Tout=f;f=f_low_0}(x,x) e:Exp(c)
    """),
    # a cast of a result is named after the call, and that name is taken
    "a name that the graph has": (CALL.replace("e:Exp", "c-to-float16:NoOp e:Exp"), """
        c[out0]-0-to-float16:Cast@h(c[out0]) e:Exp(c[out0]-0-to-float16)
    """, """
        x:Placeholder c:PartitionedCall{Tin=ff;Tout=f;f=f}(x,x) c-to-float16:NoOp e:Exp(c-to-float16-1)
          c-to-float16-1:Cast@h(c)
    """),
    # results in a list attribute, of which one has changed
    "several results": (TWO_RESULTS, """
        c[out1]:Identity@h c[in0]:Identity@h c[out1]-0-to-float32:Cast(c[out1])
    """, """
        def f_low_0(x@h) -> s:out:1, x@h, s:out:0: s:Split(x)
        x:Placeholder c:PartitionedCall{Tin=h;Tout=fhf;f=f_low_0}(x) e:Exp(c:2) g:Exp(c:1) c-1-to-float32:Cast(c:1)
    """),
    # a call by the function's own name
    "by name": (BY_NAME, """
        c[in0]:Identity@h c[body]/r:Relu@h c[out0]:Identity@h
    """, """
        def f_low_0(x@h) -> r:out:0@h: r:Relu@h(x)
        x:Placeholder c:f_low_0(x) e:Exp(c)
    """),
}


@pytest.mark.parametrize("name", REWRITTEN)
def test_changed_bodies_become_new_functions(name):
    text, changes, expected = REWRITTEN[name]
    assert " ".join(rewritten(text, changes)).split() == expected.split()


def test_two_calls_with_equal_bodies_share_a_function():
    text = "def f(x) -> r:out:0: r:Relu(x) q:Relu(x)\n x:Placeholder c:f(x) d:f(x)"
    low = "{0}[in0]:Identity@h {0}[body]/r:Relu@h {0}[body]/q:Relu@h {0}[out0]:Identity@h "
    assert rewritten(text, low.format("c") + low.format("d"))[1:] == ["x:Placeholder c:f_low_0(x) d:f_low_0(x)"]
    one = rewritten(text, low.format("c"))
    assert one[1:] == ["x:Placeholder c:f_low_0(x) d:f(x)"]
    assert one[0] == "def f_low_0(x@h) -> r:out:0@h: q:Relu@h(x) r:Relu@h(x)"


def test_a_renamed_selector_is_followed():
    inlined = inline(protos.parse(IF), preserved=["p"])
    changed = type(inlined.graph_def)()
    changed.CopyFrom(inlined.graph_def)
    changed.node[0].name = "p-in-float16"
    for node in changed.node:
        node.input[:] = [text.replace("p", "p-in-float16") if text == "p" else text for text in node.input]
    assert "(p-in-float16,x)" in protos.shown(outline(inlined, changed))
    assert "p-in-float16:Placeholder" in protos.shown(outline(inlined, changed))


def test_what_tensorflow_notes_of_a_signature_is_forgotten():
    graph = protos.parse(BY_NAME)
    [function] = graph.library.function
    for name in ("api_implements", "api_preferred_device", "forward_function_name", "backward_function_name", "kept"):
        function.attr[name].s = b"x"
    function.signature.input_arg[0].experimental_full_type = "float"
    function.signature.output_arg[0].experimental_full_type = "float"
    inlined = inline(graph)
    changed = type(graph)()
    changed.CopyFrom(inlined.graph_def)
    for node in changed.node:
        if node.name in ("c[in0]", "c[body]/r", "c[out0]"):
            node.attr["T"].type = 19
    old, new = outline(inlined, changed).library.function
    assert old == function
    assert set(new.attr) == {"kept"}
    assert [arg.experimental_full_type for arg in [*new.signature.input_arg, *new.signature.output_arg]] == ["", ""]
    assert changed.library.function[0].signature == function.signature


VIOLATIONS = {
    "'c[body]/a' is read in another function than it is in": (CALL, "e:Exp(c[body]/a)"),
    "'x' is read in another function than it is in": (CALL, "c[body]/r:Relu(x)"),
    "loop variable 1 of 'w' has several dtypes": (WHILE, "w[next1]:NextIteration@h"),
    "loop variable 0 of 'w' has several dtypes": (WHILE, "w[enter0]:Enter@f"),
    "the results of 'c' are fetched and have changed": (
        CALL, "c[out0]-0-to-float16:Cast@h(c[out0]) c:IdentityN@h(c[out0]-0-to-float16)"
    ),
}  # fmt: skip


@pytest.mark.parametrize("message", VIOLATIONS)
def test_ends_that_do_not_meet_are_an_error(message):
    with pytest.raises(VerifyError) as raises:
        rewritten(*VIOLATIONS[message], preserved=["c"])
    assert raises.value.violations == (message,)
