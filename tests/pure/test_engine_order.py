"""Whatever gives two of the session's ops an order keeps it, however a step is cut; random steps, no TensorFlow."""

import random

import pytest

from npu_shim.engine.partition import fallback
from npu_shim.engine.partition.cut import Place, plan
from npu_shim.engine.partition.nodes import Node, downstream, upstream, upstream_by
from npu_shim.rewriter.graph.arguments import source_of

KINDS = ["PyFunc", "PyFunc", "Const", "Const", "NoOp", "Identity", "Mul", "MatMul"]


def drawn(seed):
    """(nodes, fetches, targets) of a random step."""
    rng = random.Random(seed)
    nodes = {"x": Node("x", "Const"), "v": Node("v", "VarHandleOp", variable=True)}
    nodes["read"] = Node("read", "ReadVariableOp", ("v",), variable=True, learned=True, floating=True)
    tensors, anything = ["x", "read"], []
    for number in range(rng.randrange(6, 16)):
        op = rng.choice(KINDS)
        name = "%s%d" % (op, number)
        data = {"Const": (), "NoOp": (), "Mul": rng.choices(tensors[-4:], k=2)}.get(op, rng.choices(tensors[-4:]))
        waits = rng.sample(anything[-5:], min(len(anything[-5:]), rng.choice([0, 0, 1, 1, 2])))
        inputs = (*data, *(["read"] if op == "MatMul" else []), *("^" + other for other in waits))
        called = {"host": "python", "repeats": False} if op == "PyFunc" else {}
        nodes[name] = Node(name, op, inputs, product=op == "MatMul", floating=op != "NoOp", **called)
        anything.append(name)
        tensors += [name] if op != "NoOp" else []
    used = rng.choice(tensors[-rng.randrange(1, len(tensors)) :])
    nodes["grown"] = Node("grown", "MatMul", (used, "read"), product=True, floating=True)
    nodes["apply"] = Node("apply", "Apply", ("v", "grown"), writes=frozenset("v"), variable=True, repeats=False)
    groups = [name for name in anything if nodes[name].op in ("NoOp", "PyFunc")]
    targets = ["apply", *rng.sample(groups, rng.randrange(len(groups) + 1))]
    fetches = [name + ":0" for name in rng.sample(tensors[2:], min(3, len(tensors) - 2))]
    needed = upstream(nodes, [*map(source_of, fetches), *targets])
    return {name: node for name, node in nodes.items() if name in needed}, fetches, targets


def unfed(nodes, feeds):
    """The nodes as TensorFlow runs them with these feeds."""
    fed = set(map(source_of, feeds))  # all have one result
    return {n: [t for t in node.inputs if t[0] == "^" or source_of(t) not in fed] for n, node in nodes.items()}


def require_order(nodes, roots, feeds, ran):
    """Runs a part of a step behind effects that `ran`; returns all effects that then have run."""
    inputs = unfed(nodes, feeds)
    needed = upstream_by(roots, inputs.__getitem__)
    fresh = {name for name in needed if nodes[name].op == "PyFunc"}
    assert not fresh & ran, "runs again"
    for name in fresh:
        before = {other for other in upstream(nodes, [name]) if nodes[other].op == "PyFunc"}
        assert before - ran <= upstream_by([name], inputs.__getitem__), "has lost its order"
    return ran | fresh


def require_order_of_all_parts(nodes, fetches, targets, cut):
    feeding = [source_of(t) for t in (*fetches, *cut.fed, *cut.carried) if cut.place(t) is Place.FEED]
    ran = require_order(nodes, {*feeding, *cut.feeding}, (), set())
    given = set(feeding)
    for number, program in enumerate(cut.programs):
        left = [n for n in fallback.ungrouped(nodes, targets) if cut.places.get(n) is not Place.FEED and n not in ran]
        fed = {*given, *cut.waiting[number]}
        rest = require_order(nodes, {*left, *(source_of(t) for t in fetches if source_of(t) not in fed)}, fed, ran)
        hosts = {source_of(t) for t in (*fetches, *cut.fed, *cut.carried) if source_of(t) in program.hosts}
        ran = require_order(nodes, hosts | set(program.effects), program.needs, ran)
        given |= hosts
    everything = {name for name in nodes if nodes[name].op == "PyFunc"}
    assert ran == rest == everything


@pytest.mark.parametrize("seed", range(4))
def test_the_session_s_ops_keep_their_order_in_every_part_and_where_the_session_runs_the_rest(seed):
    cut_steps, several, ordered = 0, 0, 0
    for number in range(200):
        nodes, fetches, targets = drawn(200 * seed + number)
        cut = plan(nodes, fetches, targets)
        if cut.refusal is None:
            require_order_of_all_parts(nodes, fetches, targets, cut)
            cut_steps += 1
            several += len(cut.programs) > 1
            reading = [name for name in cut.programs[-1].effects if nodes[name].op == "PyFunc"]
            ordered += any(downstream(nodes, [name], start=False).intersection(reading) for name in reading)
    assert cut_steps > 20
    assert several
    assert ordered
