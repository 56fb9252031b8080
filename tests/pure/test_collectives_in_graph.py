"""The plan's line about collectives."""

from types import SimpleNamespace as Made

from npu_shim.distributed import in_graph


def graph(*nodes, bodies=()):
    made = [Made(name=name, op=op, input=list(inputs)) for name, op, inputs in nodes]
    functions = [Made(node_def=[Made(name=name, op=op, input=[]) for name, op in body]) for body in bodies]
    return Made(node=made, library=Made(function=functions))


CHAIN = (
    ("g", "Const", ()),
    ("sum", "CollectiveReduce", ("g",)),
    ("rows", "CollectiveGather", ("sum:0",)),
    ("train", "NoOp", ("^rows",)),
    ("other", "CollectiveReduce", ("g",)),
)


def test_those_that_a_run_needs_are_counted():
    text = in_graph.as_text(graph(*CHAIN), ["train"])
    assert text.startswith("collectives: 2 in a run (1 CollectiveGather, 1 CollectiveReduce), ")
    assert in_graph.as_text(graph(*CHAIN), ["sum:0"]).startswith("collectives: 1 in a run (1 CollectiveReduce), ")


def test_bodies_of_functions_count():
    assert "(1 CollectiveReduce)" in in_graph.as_text(graph(bodies=[[("r", "CollectiveReduce")]]), [])


def test_a_graph_without_collectives_has_no_line():
    assert in_graph.as_text(graph(*CHAIN), ["g"]) == ""
    assert in_graph.as_text(graph(*CHAIN), ["missing:0"]) == ""
