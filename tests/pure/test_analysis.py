"""What is known of graphs: order, what a node needs, loops; each answer holds until the graph changes."""

import module_text
import pytest
from definitions import known

from npu_shim.rewriter.analysis import branches, cache, frames, order, writes

LOOP = """
x:Placeholder e:Enter{frame_name='outer'}(x) m:Merge(e, n) t:Less(m) c:LoopCond(t) s:Switch(m, c) b:Mul(s:1, s:1)
i:Enter{frame_name='inner'}(b) k:Merge(i, l) g:LoopCond(k) h:Switch(k, g) j:Exit(h) l:NextIteration(h:1)
n:NextIteration(j) z:Exit(s) y:Identity(z)
"""


def graph(source):
    return module_text.parse(source, known).graph


def names(nodes):
    return " ".join(node.name for node in nodes)


def test_each_node_stands_behind_its_sources():
    assert names(order.topological(graph("d:D(b, c) b:B(a) c:C(^a) a:A"))) == "a b c d"
    assert names(order.topological(graph("a:A b:B c:C(b, b, ^b) d:D(a)"))) == "a b d c"


def test_a_loop_is_no_cycle():
    assert names(order.topological(graph(LOOP))) == "x e m t c s z b y i k g h j l n"
    assert not order.unordered(graph(LOOP))


@pytest.mark.parametrize(("source", "behind"), [
    ("a:A(b) b:B(a) c:C(b) d:D", "a b c"), ("a:A(^b) b:B(a)", "a b"), ("a:Identity(n) n:NextIteration(a)", "a n"),
])  # fmt: skip
def test_other_cycles_are_found(source, behind):
    assert names(order.unordered(graph(source))) == behind


def test_a_merge_waits_for_all_that_enters_and_others_for_the_next_iteration():
    assert names(order.topological(graph("a:A m:Merge(a, b, n) b:B(a) n:NextIteration(m)"))) == "a b m n"
    assert names(order.topological(graph("a:A m:Merge(a, n) n:NextIteration(m) o:O(n)"))) == "a m n o"


@pytest.mark.parametrize(("source", "nodes"), [
    ("a:A(b) b:B(a) c:C(b) d:D", "b a"), ("c:C(b) a:A(b) b:B(a)", "a b"), ("a:A(^a)", "a"),
    ("a:A b:B(a, c) c:C(b)", "c b"), ("m:Merge(n, b) n:NextIteration(m) b:B(m)", "b m"), (LOOP, ""),
])  # fmt: skip
def test_a_cycle_is_told_by_its_nodes_each_before_the_one_that_waits_for_it(source, nodes):
    cycle = order.cycle(graph(source))
    assert isinstance(cycle, list)
    assert names(cycle) == nodes


def test_what_a_node_needs_and_reaches():
    nodes = graph("a:A b:B(a) c:C(^b) d:D(a) e:E(c, d)")
    assert names(order.ancestors([nodes["c"]])) == "c b a"
    assert names(order.ancestors([nodes["e"], nodes["d"]])) == "e d c a b"
    assert names(order.descendants([nodes["b"]])) == "b c e"
    assert names(order.descendants([nodes["a"]])) == "a b d c e"
    assert names(order.ancestors([nodes["e"]], lambda node: node.op != "C")) == "e c d a"
    assert names(order.descendants([nodes["a"]], lambda node: node.op != "B")) == "a b d e"
    assert names(order.ancestors([])) == ""


def test_frames_of_nested_loops():
    frame_of = {node.name: "/".join(frame) for node, frame in frames.frames(graph(LOOP)).items()}
    assert frame_of == {
        "x": "", "y": "", "e": "outer", "m": "outer", "t": "outer", "c": "outer", "s": "outer", "b": "outer",
        "n": "outer", "z": "outer", "i": "outer/inner", "k": "outer/inner", "g": "outer/inner", "h": "outer/inner",
        "j": "outer/inner", "l": "outer/inner",
    }  # fmt: skip
    assert not list(frames.mixed(graph(LOOP)))


def test_a_loop_that_nothing_enters_is_one():
    assert list(frames.frames(graph("e:Enter{frame_name='l'}")).values()) == [("l",)]


def test_without_loops_all_nodes_are_outside():
    assert set(frames.frames(graph("a:A b:B(a)")).values()) == {()}


@pytest.mark.parametrize("source", [
    "o:Mul(b, x)", "o:Mul(x, ^b)", "o:Identity(j, ^x)", "o:Identity(h)  p:Identity(o, x)",
])  # fmt: skip
def test_sources_in_another_loop_are_found(source):
    assert list(frames.mixed(graph(LOOP + source)))


@pytest.mark.parametrize("source", ["o:Mul(b, m)", "o:Identity(b, ^m)", "o:Identity(j, ^b)", "o:Identity(z, ^x)"])
def test_sources_in_the_same_loop_are_not(source):
    assert not list(frames.mixed(graph(LOOP + source)))


def test_an_answer_holds_until_the_graph_changes():
    asked = []

    @cache.analysis
    def count(graph):
        """Counts."""
        asked.append(len(graph))
        return len(graph)

    first, other = graph("a:A"), graph("a:A b:B")
    assert [count(first), count(first), count(other), count(first)] == [1, 1, 2, 1]
    assert asked == [1, 2]
    first.add("b", "B")
    assert [count(first), count(other)] == [2, 2]
    assert asked == [1, 2, 2]
    assert count.__doc__ == "Counts."


VARIABLE = """
v:VarHandleOp{dtype=float32} u:VarHandleOp{dtype=float32} x:Placeholder{dtype=float32} p:Placeholder{dtype=bool}
i:Identity{T=resource}(v) r:ReadVariableOp{dtype=float32}(v) w:AssignVariableOp{dtype=float32}(v, x)
o:AssignVariableOp{dtype=float32}(u, x, ^v) g:If{then_branch=@write, else_branch=@read}(p, v, u)
h:If{then_branch=@read, else_branch=@read}(p, v, u) n:Case{branches=[@read, @write ]}(p, u, v) f:write(v, x)
d:PartitionedCall{f=@read, deep=[@deep ]}(v, u) q:PartitionedCall{f=@none}(v)
function read(a: resource, b: resource) -> (c: float32)
  c:ReadVariableOp{dtype=float32}(a) e:Identity{T=resource}(b) return c=c
end
function write(a: resource, b: float32) -> ()
  e:Identity{T=resource}(a) k:Enter{T=resource, frame_name='l'}(e) c:Assign2(k)
end
function deep(a: resource, b: resource) -> () c:write(b, b) end
"""


@pytest.mark.parametrize(("handle", "writers"), [("v", "w g f q"), ("u", "o n d")])
def test_what_takes_a_handle_writes_unless_it_reads_or_passes_on(handle, writers):
    nodes = graph(VARIABLE)
    assert names(user for user in dict.fromkeys(nodes[handle].users()) if writes.writes(user, nodes[handle])) == writers


REFERENCES = """
v:VariableV2{dtype=float32} u:Variable{dtype=float32} n:VariableV2{dtype=float32} x:Placeholder{dtype=float32}
p:Placeholder{dtype=bool} i:RefIdentity{T=float32}(v) s:RefSwitch{T=float32}(u, p) a:Assign{T=float32}(i, x)
b:Assign{T=float32}(s:1, n) r:Identity{T=float32}(n) c:AssignAdd{T=float32}(b, r) q:IsVariableInitialized(n)
t:RefIdentity{T=float32}(n)
"""


def test_a_reference_is_written_by_what_takes_it_as_one_and_not_by_what_takes_its_value():
    assert names(writes.written(graph(REFERENCES))) == "v u"


def test_what_is_written_is_asked_again_when_a_function_changes():
    nodes = graph("v:VarHandleOp c:f(v) function f(a: resource) -> () r:ReadVariableOp{dtype=float32}(a) end")
    assert names(writes.written(nodes)) == ""
    body = nodes.module.functions["f"]
    body.add("w", "AssignVariableOp", [body["a"].value, body["r"].value])
    assert names(writes.written(nodes)) == "v"


def test_a_function_that_calls_itself_ends():
    nodes = graph("v:VarHandleOp c:f(v) function f(a: resource) -> () b:f(a) end")
    assert not writes.writes(nodes["c"], nodes["v"])


COND = """
x:Placeholder p:Placeholder i:Identity(p) s:Switch(x, i) a:Exp(s:1) b:Neg(s) n:NoOp(^s) m:Merge(b, a) k:NoOp(^a)
q:Placeholder t:Switch(a, q) c:Log(t) d:Log(t:1) o:Merge(c, d, ^b) f:Merge(r, a) r:NextIteration(f) g:Merge(^a)
l:LoopCond(p) w:Switch(a, l) u:Exp(w:1) z:Exp(z) y:Exp(z, a)
"""


def test_the_branches_that_nodes_are_in():
    nodes = graph(COND)
    branches_of = branches.inside(nodes)
    inside = {node.name: sorted("%s=%d" % branch for branch in of) for node, of in branches_of.items() if of}
    assert inside == {
        "a": ["p=1"], "b": ["p=0"], "k": ["p=1"], "t": ["p=1"], "c": ["p=1", "q=0"], "d": ["p=1", "q=1"],
        "o": ["p=0", "p=1"], "f": ["p=1"], "r": ["p=1"], "w": ["p=1"], "u": ["p=1"],
    }  # fmt: skip
    assert [node.name for node in nodes if node not in branches_of] == ["z", "y"]
    assert branches.decides(nodes["s"]) is nodes["p"].value


def test_what_is_fed_decides_by_itself():
    nodes = graph("p:A i:Identity(p) x:A s:Switch(x, p) t:Switch(x, i) a:B(s:1) b:B(t:1)")
    assert branches.inside(nodes)[nodes["a"]] == branches.inside(nodes)[nodes["b"]] == {(nodes["p"].value, 1)}
    fed = frozenset([nodes["i"]])
    assert branches.inside(nodes, fed)[nodes["b"]] == {(nodes["i"].value, 1)}
    assert branches.decides(nodes["t"], fed) is nodes["i"].value
