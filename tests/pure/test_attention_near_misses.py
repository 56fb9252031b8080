"""Attention with one thing changed at random: it is left as it is, to the letter, and a line says why."""

import random
import re

import module_text
import pytest
from attention_graphs import TRAINING, planned

from npu_shim.rewriter.ir import text
from npu_shim.xla.passes.attention import apply

COUNT = 300
# all sizes are 8, so that shapes tell nothing
SQUARE = re.sub(r"(?<=[,(<])(\d+, ?\d+, ?)\d+(, ?)\d+(?=[>)])", r"\g<1>8\g<2>8", TRAINING).replace(
    "<2,1,8,8>", "<2,1,1,8>"
)
OTHER_OPS = {"Mul": "Maximum", "Sub": "SquaredDifference", "AddV2": "Maximum", "Softmax": "LogSoftmax", "Sum": "Prod",
             "GreaterEqual": "Equal", "SelectV2": "Maximum"}  # fmt: skip
FLOATS = re.compile(r"^(s\d|p\d?|g\d|o|dq|dk|dv)$")  # values of attention in TRAINING


def read_elsewhere(graph, draw):
    """Somebody else reads a value between the products."""
    inner = [node for node in graph if FLOATS.match(node.name) and node.name not in ("o", "dq", "dk", "dv")]
    node = draw.choice(inner)
    graph.results["more:0"] = graph.add("reader", "Tanh", [node.value]).value


def waited_for(graph, draw):
    """Somebody else waits for a node between the products."""
    node = draw.choice([node for node in graph if FLOATS.match(node.name)])
    graph.results["more:0"] = graph.add(
        "reader", "Const", controls=[node], attrs=dict(graph["zero"].attrs.items())
    ).value


def another_op(graph, draw):
    """An op computes something else."""
    inner = [node for node in graph if (FLOATS.match(node.name) or node.name == "keep") and node.op in OTHER_OPS]
    node = draw.choice(inner)
    node.set_op(OTHER_OPS[node.op])


def another_operand(graph, draw):
    """An op reads a tensor of that shape from elsewhere, in place of a value of attention."""
    inner = [(node, number) for node in graph for number, value in enumerate(node.inputs)
             if FLOATS.match(node.name) and FLOATS.match(value.node.name)]  # fmt: skip
    node, number = draw.choice(inner)
    graph.add("elsewhere", "Identity", [node.inputs[number]], attrs={"is": "elsewhere"})
    node.set_input(number, graph["elsewhere"].value)
    graph["elsewhere"].set_op("Relu")  # of its shape


def another_constant(graph, draw):
    """A factor, the rate or an axis is another number in one place."""
    uses = [(node, number) for node in graph for number, value in enumerate(node.inputs)
            if value.node.name in ("scale", "more", "rate", "last")]  # fmt: skip
    node, number = draw.choice(uses)
    old = node.inputs[number].node
    tensor = old.attrs["value"]
    numbers = tuple(number - 1 if number < 0 else number * 2 for number in tensor.numbers())
    attrs = {"dtype": old.attrs["dtype"], "value": text.Tensor(tensor.dtype, tensor.dims, numbers)}
    graph.add("changed", "Const", attrs=attrs)
    node.set_input(number, graph["changed"].value)


def turned(graph, draw):
    """A product takes one of its factors transposed."""
    node = draw.choice([node for node in graph if node.op == "BatchMatMulV2"])
    name = draw.choice(["adj_x", "adj_y"])
    node.attrs[name] = not node.attrs.get(name, False)


CHANGES = [read_elsewhere, waited_for, another_op, another_operand, another_constant, turned]


def test_without_a_change_it_is_taken():
    plan = planned(SQUARE)[1]
    assert [match.name for match in plan.matches] == ["p"]
    assert plan.misses == ()


@pytest.mark.parametrize("seed", range(COUNT))
def test_a_random_change_leaves_it_as_it_is(seed):
    draw = random.Random(seed)
    module = module_text.parse(SQUARE, lambda op: None)
    draw.choice(CHANGES)(module.graph, draw)
    changed = text.show(module)
    module, plan = planned(changed)
    assert [miss.name for miss in plan.misses] == (["p"] if module.graph["p"].op == "Softmax" else [])
    assert plan.matches == ()
    assert all(miss.reason and "\n" not in miss.reason for miss in plan.misses)
    apply.apply(module.graph, plan.matches)
    assert text.show(module) == changed
