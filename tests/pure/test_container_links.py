"""Links of a graph for inference: what is written into a container, and what closes a loop."""

import random

import graphs
from npu_shim.rewriter.graph.links import linked, repeated


def further(text):
    """Reader of a container -> names of the writers that it is linked to."""
    view = graphs.parse(text)
    links = linked(view)
    names = [node.name for node in view.nodes]
    pairs = ((node, links.nodes[position]) for position, node in enumerate(view.nodes) if node.op == "StackPopV2")
    return {node.name: [names[p.node] for p in now.inputs[len(node.inputs) :]] for node, now in pairs}


PUSHED = "x:Placeholder; s:StackV2; a:StackPushV2(s,x); p:StackPopV2(s)"
CYCLE = "; t:StackV2; b:StackPushV2(t,x); c:StackPushV2(t,r); q:StackPopV2(t); r:Relu(q)"


def test_what_is_popped_is_linked_to_all_that_is_pushed():
    assert further(PUSHED) == {"p": ["a"]}
    assert further(PUSHED + "; e:Enter(s); b:StackPushV2(e,x)") == {"p": ["a", "b"]}


def test_a_stack_that_is_made_elsewhere_is_not_linked():
    assert further("s:Placeholder; a:StackPushV2(s,s); p:StackPopV2(s)") == {"p": []}


def test_a_stack_of_what_was_popped_from_it_is_not_linked_nor_is_what_lies_behind():
    behind = "; u:StackV2; d:StackPushV2(u,r); o:StackPopV2(u)"
    assert further(PUSHED + CYCLE + behind) == {"p": ["a"], "q": [], "o": []}


def test_the_order_of_the_nodes_does_not_matter():
    statements = (PUSHED + CYCLE).split("; ")
    for seed in range(5):
        random.Random(seed).shuffle(statements)
        assert further("; ".join(statements)) == {"p": ["a"], "q": []}


LOOP = "x:Placeholder; e:Enter(x); m:Merge(e,n); w:Switch(m,m); k:Const(^w); r:Relu(w); n:NextIteration(r); o:Exit(w)"


def test_a_loop_is_open_behind_its_merge():
    view = graphs.parse(LOOP)
    links = linked(view)
    at = view.positions()
    assert links.back_edges == {at["m"]: (view.nodes[at["m"]].inputs[1],)}
    assert links.nodes[at["m"]].inputs == view.nodes[at["m"]].inputs[:1]


def test_what_runs_once():
    view = graphs.parse(LOOP + "; y:Relu(o); z:Relu(x)")
    names = [node.name for node in view.nodes]
    assert set(names) - {names[position] for position in repeated(view.nodes)} == {"x", "z"}
    called = [node._replace(name="f[body]/" + node.name) for node in view.nodes]
    assert repeated(called) == set(range(len(called)))
