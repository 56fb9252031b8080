"""Recomputation: the cut, the plan on steps written by hand, the option. No TensorFlow."""

import itertools
import random

import pytest

from npu_shim.options import words
from npu_shim.rewriter.errors import ConfigError
from npu_shim.xla.passes.rematerialization import cut, plan, report
from npu_shim.xla.passes.rematerialization.step import Node, Result, Step


def step_of(text, small=()):
    """A Step of lines `name Op dtype sizes inputs, ^waits`; sizes are 4x8, or ? if unknown."""
    places, nodes, results = {}, [], []
    for line in text.strip().splitlines():
        name, op, dtype, sizes, *inputs = line.split()
        taken = [value.strip(",") for value in inputs]
        shape = None if sizes == "?" else tuple(int(size) for size in sizes.split("x"))
        waits = tuple(places[name[1:]] for name in taken if name[0] == "^")
        data = tuple((places[name], 0) for name in taken if name[0] != "^")
        places[name] = len(nodes)
        flops = 1000 if op in ("MatMul", "BatchMatMul") else 0
        nodes.append(Node(name, op, data, waits, flops))
        results.append((Result(dtype, shape),))
    return Step(tuple(nodes), results.__getitem__, frozenset(places[name] for name in small))


def planned(step, mode):
    """Chains by their last node: (nodes, kept, after)."""
    described = report.described(step, mode, plan.plan(step, mode))
    return {chain.nodes[-1]: (chain.nodes, chain.kept, chain.after) for chain in described.chains}


# one hidden layer: x -> h = MatMul -> tanh(h) -> MatMul -> loss, and its gradients
HIDDEN = """
x Placeholder float32 64x32
w ReadVariableOp float32 32x128
low Cast bfloat16 32x128 w
h MatMul bfloat16 64x128 x low
wide Cast float32 64x128 h
t Tanh float32 64x128 wide
down Cast bfloat16 64x128 t
v ReadVariableOp float32 128x32
y MatMul bfloat16 64x32 down v
loss Mean float32 1 y
dy Sub bfloat16 64x32 y x
dt MatMul bfloat16 64x128 dy v
dv MatMul bfloat16 128x32 down dy
up Cast float32 64x128 dt
dh TanhGrad float32 64x128 t up
dhlow Cast bfloat16 64x128 dh
dw MatMul bfloat16 32x128 x dhlow
uw ResourceApplyGradientDescent float32 32x128 dw
"""


def test_a_chain_between_products_comes_again_behind_the_gradient():
    """auto: tanh again from the 16-bit product; what a product reads stays."""
    assert planned(step_of(HIDDEN), "auto") == {"t": (("wide", "t"), ("h",), "dt")}


def test_memory_also_computes_again_what_a_product_reads():
    chains = planned(step_of(HIDDEN), "memory")
    assert chains["down"] == (("wide", "t", "down"), ("h",), "dt")


def test_what_it_saves_is_what_xla_would_keep():
    (region,) = plan.plan(step_of(HIDDEN), "auto")
    assert (region.saved, region.moved) == (64 * 128 * (4 - 2), 0)  # h is kept, t is not
    (region,) = plan.plan(step_of(HIDDEN), "memory")
    assert (region.saved, region.moved) == (64 * 128 * (4 + 2 - 2), 2 * 64 * 128 * 2)


def test_memory_stays_within_its_budget(monkeypatch):
    monkeypatch.setattr(plan, "MORE_BYTES", 0.01)
    assert plan.plan(step_of(HIDDEN), "memory") == ()  # `down` would be written and read again


@pytest.mark.parametrize(
    ("line", "instead"),
    [
        ("t Tanh float32 64x128 wide", "t RandomStandardNormal float32 64x128 wide"),
        ("t Tanh float32 64x128 wide", "t Assign float32 64x128 wide"),
        ("t Tanh float32 64x128 wide", "t NoSuchOp float32 64x128 wide"),
        ("t Tanh float32 64x128 wide", "t Tanh float32 ? wide"),
        ("t Tanh float32 64x128 wide", "t Placeholder float32 64x128"),
    ],
)
def test_random_ops_state_feeds_and_unknown_shapes_are_computed_once(line, instead):
    step = step_of(HIDDEN.replace(line, instead))
    for mode in ("auto", "memory"):
        copied = {name for nodes, _, _ in planned(step, mode).values() for name in nodes}
        assert "t" not in copied


def test_without_a_backward_pass_nothing_comes_again():
    step = step_of("\n".join(HIDDEN.strip().splitlines()[:10]))
    assert plan.plan(step, "memory") == ()
    assert "nothing is computed again: no value" in report.described(step, "auto", ()).as_text()


def test_small_batched_products_come_again_for_memory_only():
    scores = """
x Placeholder bfloat16 8x64x16
w ReadVariableOp float32 16x16
q MatMul bfloat16 8x64x16 x w
k MatMul bfloat16 8x64x16 x w
s BatchMatMul bfloat16 8x64x64 q k
wide Cast float32 8x64x64 s
p Softmax float32 8x64x64 wide
low Cast bfloat16 8x64x64 p
o BatchMatMul bfloat16 8x64x16 low k
y MatMul bfloat16 8x64x16 o w
big Conv2D bfloat16 4096x4096 y
do MatMul bfloat16 8x64x16 big w
dp BatchMatMul bfloat16 8x64x64 do k
dwide Cast float32 8x64x64 dp
ds Mul float32 8x64x64 dwide p
dslow Cast bfloat16 8x64x64 ds
dk BatchMatMul bfloat16 8x64x16 dslow q
dv BatchMatMul bfloat16 8x64x16 low do
dq BatchMatMul bfloat16 8x64x16 dslow k
dw MatMul bfloat16 16x16 dq x
more Add bfloat16 16x16 dw dk
"""
    batched = ("s", "o", "dp", "dk", "dv", "dq")
    step = step_of(scores, batched)
    # few operations more are allowed: the small products cost 0 here
    nodes = tuple(n._replace(flops=0 if n.name in batched else n.flops) for n in step.nodes)
    step = Step(nodes, step.results, step.small)
    assert planned(step, "memory")["low"] == (("s", "wide", "p", "low"), ("q", "k"), "do")
    assert not any("s" in nodes for nodes, _, _ in planned(step_of(scores), "auto").values())
    # and none where they are most of the operations
    assert not any("s" in nodes for nodes, _, _ in planned(step_of(scores, batched), "memory").values())


def test_a_plan_does_not_depend_on_what_else_is_in_the_step():
    lines = HIDDEN.strip().splitlines()
    more = ["a%d Abs float32 1 loss" % number for number in range(5)]
    assert planned(step_of("\n".join(lines + more)), "auto") == planned(step_of(HIDDEN), "auto")


def cost_of(kept, keeping, computing, edges, wanted):
    """What it costs to keep these values, and to compute what the wanted ones need besides."""
    cost, ahead, seen = sum(keeping[v] for v in kept), list(wanted), set()
    while ahead:
        value = ahead.pop()
        if value not in seen and value not in kept:
            seen.add(value)
            cost += computing[value]
            ahead += [first for first, second in edges if second == value]
    return cost


def least_cost(keeping, *given):
    """By trying all sets."""
    sets = itertools.chain.from_iterable(itertools.combinations(keeping, n) for n in range(len(keeping) + 1))
    return min(cut.INFINITE, *(cost_of(kept, keeping, *given) for kept in sets))


def test_the_cut_is_the_cheapest_of_all():
    draw = random.Random(3)
    for _ in range(60):
        values = list(range(draw.randint(2, 7)))
        keeping = {value: draw.randint(0, 9) for value in values}
        edges = [(a, b) for a, b in itertools.combinations(values, 2) if draw.random() < 0.5]
        computing = {v: cut.INFINITE if draw.random() < 0.3 else draw.choice([0, 1, 3]) for v in values}
        roots = {value for value in values if all(second != value for _, second in edges)}
        computing.update(dict.fromkeys(roots, cut.INFINITE))
        wanted = draw.sample(values, draw.randint(1, len(values)))
        given = keeping, computing, edges, wanted
        assert cost_of(cut.cheapest(*given), *given) == least_cost(*given)


def test_the_option_wins_over_the_environment(monkeypatch):
    monkeypatch.delenv("NPU_SHIM_RECOMPUTE", raising=False)
    assert words.RECOMPUTE.of({}) == "auto"
    monkeypatch.setenv("NPU_SHIM_RECOMPUTE", "memory")
    assert (words.RECOMPUTE.of({}), words.RECOMPUTE.of({words.RECOMPUTE.key: "off"})) == ("memory", "off")


@pytest.mark.parametrize("values", [{words.RECOMPUTE.key: "memroy"}, {}])
def test_another_word_is_an_error_that_names_the_nearest(values, monkeypatch):
    monkeypatch.setenv("NPU_SHIM_RECOMPUTE", "memroy")
    with pytest.raises(ConfigError, match=r"'memroy', expected one of auto, off, memory \(did you mean 'memory'\?\)"):
        words.RECOMPUTE.of(values)
