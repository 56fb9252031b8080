"""The plan's line about collectives."""

from types import SimpleNamespace as Made

from npu_shim.distributed.collectives import in_graph


def graph(*nodes, bodies=()):
    rows = [Made(name=name, op=op, input=list(inputs)) for name, op, inputs in nodes]
    bodies = [[Made(name=name, op=op, input=[]) for name, op in body] for body in bodies]
    functions = [Made(signature=Made(name="f%d" % number), node_def=body) for number, body in enumerate(bodies)]
    return Made(node=rows, library=Made(function=functions))


CHAIN = (
    ("g", "Const", ()),
    ("sum", "CollectiveReduce", ("g",)),
    ("rows", "CollectiveGather", ("sum:0",)),
    ("train", "NoOp", ("^rows",)),
    ("other", "CollectiveReduce", ("g",)),
)


def test_those_that_a_run_needs_are_counted():
    assert in_graph.counted(graph(*CHAIN), ["train"]) == {"CollectiveReduce": 1, "CollectiveGather": 1}
    assert in_graph.counted(graph(*CHAIN), ["sum:0"]) == {"CollectiveReduce": 1}
    assert in_graph.counted(graph(*CHAIN), ["g"]) == in_graph.counted(graph(*CHAIN), ["missing:0"]) == {}


def test_bodies_of_functions_count():
    assert in_graph.counted(graph(bodies=[[("r", "CollectiveReduce")]]), []) == {"CollectiveReduce": 1}


def test_the_line_says_how_many_and_what_lies_around_them():
    assert in_graph.as_text({"CollectiveReduce": 1, "CollectiveGather": 1}, 2, 2) == (
        "collectives: 2 in a run (1 CollectiveGather, 1 CollectiveReduce), outside of what XLA compiles; "
        "engine pjrt: 2 programs around them (--engine)\n"
    )
    text = in_graph.as_text({"CollectiveReduce": 1}, 7, 1)
    assert "1 in a run (1 CollectiveReduce) of 7 calls, " in text
    assert " 1 program around" in text
    assert " no program around" in in_graph.as_text({"CollectiveReduce": 1}, 1, 0)
    assert in_graph.as_text({"CollectiveReduce": 1}, 1, None).endswith("outside of what XLA compiles\n")
    assert "inside of one program of all ranks" in in_graph.as_text({"CollectiveReduce": 1}, 1, 1, True)
    assert in_graph.as_text({}, 0, 1) == ""
