"""The contract of the rewriter on random graphs with loops, conditions and functions of both versions.

NPU_SHIM_NIGHTLY=1 in the environment tries ten thousand graphs instead of twenty.
"""

import os
import random

import numpy as np
import pytest
import random_graphs
import tensorflow.compat.v1 as tf
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import npu_shim
from npu_shim.rewriter.planner.decisions import Reason
from npu_shim.rewriter.tables.dtypes import FLOATS

GRAPHS = 10_000 if os.environ.get("NPU_SHIM_NIGHTLY") else 20
# half the distance of two neighbours around one
EPSILON = {"allow_mix_precision_bf16": 2.0**-8}
MODES = (*["allow_mix_precision"] * 4, "allow_mix_precision_bf16", "allow_fp32_to_fp16", "force_fp16", "force_fp32")


def rewrite(graph_def, preserved, mode):
    return npu_shim.rewrite(graph_def, preserved, precision_mode=mode)


def shuffled(graph_def, seed):
    other = tf.GraphDef()
    other.CopyFrom(graph_def)
    for repeated in (other.node, other.library.function):
        messages = list(repeated)
        random.Random(seed).shuffle(messages)
        del repeated[:]
        repeated.extend(messages)
    return other


def same(one, other):
    """Whether two graphs differ at most in the order of their nodes and functions."""

    def contents(graph_def):
        return {n.name: n for n in graph_def.node}, {f.signature.name: f for f in graph_def.library.function}

    return contents(one) == contents(other)


def decided(plan):
    """Decisions that depend on what is upstream, not on where casts stand."""
    return {(d.node, d.slot): d.becomes for d in plan.decisions() if d.reason is not Reason.MOVED}


def check_fetches(built, plan, mode, number):
    """Fetching one more tensor of the graph itself changes the dtype of none."""
    computed = ("MatMul", "Mul", "Tanh", "Exp", "AddV2")
    tensors = [node.name for node in built.graph_def.node if node.op in computed]
    if tensors:
        extra = tensors[number % len(tensors)]
        _, other = rewrite(built.graph_def, [*built.fetches, built.init, extra], mode)
        one, two = decided(plan), decided(other)
        assert {key: one[key] for key in one if key in two} == {key: two[key] for key in two if key in one}


def check_values(program, built, rewritten, mode):
    """The rewritten graph loads, and gives what float32 gives but for as many roundings as there are ops in a row.

    Entries are within [-1, 1], a product has rows of SIZE. A gradient is a product of as many factors as there are ops,
    each of which has the errors of all ops before it.
    """
    config = tf.ConfigProto()
    config.graph_options.rewrite_options.disable_meta_optimizer = True  # for speed; session tests have it on
    with tf.Graph().as_default() as graph:
        plain = tf.import_graph_def(built.graph_def, name="plain", return_elements=built.fetches)
        mixed = tf.import_graph_def(rewritten, name="mixed", return_elements=built.fetches)
        assert [fetch.dtype for fetch in plain] == [fetch.dtype for fetch in mixed]
        with tf.Session(graph=graph, config=config) as session:
            session.run("plain/" + built.init)
            expected, got = run_plain(session, plain), session.run(mixed)
    rounding = EPSILON.get(mode, 2.0**-11) * random_graphs.SIZE
    assert np.max(np.abs(expected[0] - got[0])) <= built.ops * rounding
    for one, other in zip(expected[1:], got[1:]):
        assert np.max(np.abs(one - other)) <= built.ops**2 * rounding * random_graphs.SIZE
    assert program.gradient or len(got) == 1


def run_plain(session, fetches):
    """Values of a graph as it was built; a graph that TensorFlow itself cannot run is no test case."""
    try:
        return session.run(fetches)
    except tf.errors.InternalError as error:  # the gradient of a Case in a Cond in a While, in 2.15.1
        assume("Invalid loop structure" not in error.message)
        raise


@pytest.mark.slow
@settings(max_examples=GRAPHS, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True)
@given(random_graphs.PROGRAMS, st.sampled_from(MODES), st.integers(0, 1000))
def test_the_contract_holds_on_random_graphs(program, mode, number):
    built = random_graphs.build(program)
    before = built.graph_def.SerializeToString(deterministic=True)
    preserved = [*built.fetches, built.init]
    rewritten, plan = rewrite(built.graph_def, preserved, mode)
    assert built.graph_def.SerializeToString(deterministic=True) == before
    assert len(list(plan.decisions())) == sum(dtype in FLOATS for node in plan.view.nodes for dtype in node.dtypes)
    assert all(decision.reason is not Reason.NOT_FLOAT for decision in plan.decisions())
    again, _ = rewrite(rewritten, preserved, mode)
    assert again is rewritten
    other, _ = rewrite(shuffled(built.graph_def, number), preserved, mode)
    assert same(other, rewritten)
    check_fetches(built, plan, mode, number)
    check_values(program, built, rewritten, mode)
