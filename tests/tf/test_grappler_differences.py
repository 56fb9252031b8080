"""Where profile grappler and TensorFlow's pass part, a test for each: what they do, and which of them is right."""

import json

import grappler_oracle as oracle
import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from grappler_suite import Case, const, values, version_1_graph
from tensorflow import raw_ops

from npu_shim.options.ops import scopes
from npu_shim.rewriter.planner.decisions import Reason


@pytest.fixture(autouse=True)
def graph():
    oracle.available()
    with version_1_graph() as built:
        yield built


class Both(Case):
    """A Case that has what the pass makes of it as well."""

    def __init__(self, graph, fetches, how=None, **options):
        super().__init__(graph, fetches, **options)
        self.theirs = oracle.optimized(self.graph_def, self.fetches, **(how or {}))

    def reason(self, name):
        """Why a node's first slot has its dtype."""
        return next(decision.reason for decision in self.plan.decisions() if decision.node == name)

    def their_dtype(self, name, attr="T"):
        """The dtype number that the pass gives a node."""
        return next(node for node in self.theirs.node if node.name == name).attr[attr].type

    @property
    def they_change_nothing(self):
        """Whether the pass has given up, or found nothing to do."""
        return not any("AutoMixedPrecision" in node.name for node in self.theirs.node)


def products(x, op):
    return tf.identity(op(tf.matmul(x, x, name="product")), "end")


def test_a_fetched_cast_keeps_its_dtype(graph):
    """The pass looks at the readers of a Cast and not at who else knows it: a fetch of float32 comes back as float16.

    We are right: what is fetched has the dtype that the user wrote.
    """
    cast = tf.cast(tf.placeholder(tf.int32, [4, 4]), tf.float32, name="cast")
    both = Both(graph, [cast, tf.identity(tf.matmul(cast, cast))])
    assert both.their_dtype("cast", "DstT") == tf.float16.as_datatype_enum
    both.high("cast")
    both.low("MatMul")


def test_what_reads_a_reference_itself_is_left_alone(graph):
    """The pass puts a Cast behind the variable; it waits for nothing, and may read before or after an assignment.

    We are right, and give up little: TensorFlow reads a variable through an Identity, behind which both put the Cast.
    """
    variable = raw_ops.VariableV2(shape=[4, 4], dtype=tf.float32, name="variable")
    assigned = tf.assign(variable, np.full([4, 4], 2, np.float32))
    with tf.control_dependencies([assigned]):
        after = tf.matmul(variable, variable, name="direct")
    both = Both(graph, [tf.identity(after), tf.identity(tf.matmul(tf.identity(variable), variable, name="other"))])
    assert both.their_dtype("direct") == tf.float16.as_datatype_enum
    both.high("direct", "other")
    assert both.reason("direct") is Reason.REFERENCE
    cast = next(node for node in both.theirs.node if node.name.startswith("variable-0-Cast"))
    assert list(cast.input) == ["variable"]  # and so not behind the assignment that "direct" waits for


@pytest.mark.parametrize("lacks", [{"architecture": "6.0"}, {"cuda": "9000"}], ids=lambda lacks: next(iter(lacks)))
def test_old_hardware_is_not_looked_up(graph, lacks):
    """Below compute capability 7.0 the pass does nothing, and before CUDA 9.1 and cuDNN 8 it lowers fewer ops.

    Both are right: no TensorFlow of today runs on such CUDA, and a plan must not depend on the machine that makes it.
    """
    x = const(values(2, 4, 4), "x")
    product = raw_ops.BatchMatMul(x=x, y=x, name="product")
    both = Both(graph, [tf.identity(product)], how=lacks)
    assert both.they_change_nothing
    both.low("product")


def test_one_op_on_two_lists(graph, tmp_path):
    """Adding to the pass's allow list what is on its deny list turns the whole pass off, and only a log line says so.

    We are right: an op has one list, and the user's word for it counts.
    """
    end = products(const(values(4, 4), "x"), tf.exp)
    mixlist = tmp_path / "mixlist.json"
    mixlist.write_text(json.dumps({"white-list": {"to-add": ["Exp"]}}))
    both = Both(graph, [end], how={"environment": {"ALLOWLIST_ADD": "Exp"}}, modify_mixlist=str(mixlist))
    assert both.they_change_nothing
    both.low("product", "Exp")
    both.agrees_with_the_pass(environment={"ALLOWLIST_ADD": "Exp", "DENYLIST_REMOVE": "Exp"})


def test_a_misspelt_op_is_named(graph, tmp_path):
    """The pass passes over a name that is no op; we do too, and say so with the nearest name."""
    end = products(const(values(4, 4), "x"), tf.exp)
    mixlist = tmp_path / "mixlist.json"
    mixlist.write_text(json.dumps({"black-list": {"to-remove": ["Epx"]}}))
    both = Both(graph, [end], how={"environment": {"DENYLIST_REMOVE": "Epx"}}, modify_mixlist=str(mixlist))
    assert oracle.difference(both.graph_def, both.rewritten, both.theirs) == []
    assert [line for line in both.plan.unmatched if "Epx" in line and "did you mean 'Exp'?" in line]


def test_a_batch_norm_that_stays_keeps_its_form(graph):
    """The pass makes every FusedBatchNorm a FusedBatchNormV2, also where it then changes nothing about it.

    We are right to leave alone what is not lowered; the two forms compute the same.
    """
    ones = tf.ones([2])
    norm = raw_ops.FusedBatchNorm(
        x=const(values(1, 4, 4, 2), "x"), scale=ones, offset=ones, mean=ones, variance=ones, is_training=False,
        name="norm",
    )  # fmt: skip
    both = Both(graph, [tf.identity(tf.exp(norm.y)), products(const(values(4, 4), "y"), tf.tanh)])
    forms = [next(n.op for n in g.node if n.name == "norm") for g in (both.rewritten, both.theirs)]
    assert forms == ["FusedBatchNorm", "FusedBatchNormV2"]
    assert oracle.difference(both.graph_def, both.rewritten, both.theirs) == []


def test_scopes_and_single_ops_are_the_users(graph):
    """The pass knows op types only. We follow keep_dtype_scope, as nodes that must not be touched."""
    x = const(values(4, 4), "x")
    with scopes.keep_dtype_scope():
        kept = tf.matmul(x, x, name="kept")
    both = Both(graph, [tf.identity(tf.matmul(kept, x, name="other"))])
    assert both.their_dtype("kept") == tf.float16.as_datatype_enum
    both.high("kept")
    both.low("other")
    assert both.reason("kept") is Reason.SCOPE


def test_stacks_and_arrays_are_float32_as_in_the_pass(graph):
    """No difference, but a fault that we share: 1.15 had TensorArrays and Stacks low, later versions do not.

    The pass is at fault; profiles ascend910 and grappler_1.15 have them low.
    """
    x = const(values(4, 4), "x")
    _, y = tf.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, tf.tanh(tf.matmul(y, x))), [tf.constant(0), x])
    fetches = [tf.identity(tf.gradients(tf.reduce_sum(y), x)[0])]
    both = Both(graph, fetches)
    assert oracle.difference(both.graph_def, both.rewritten, both.theirs) == []
    older, ascend = (Case(graph, fetches, profile) for profile in ("grappler_1.15", "ascend910"))

    def low_stacks(case):
        stacks = [node.attr["elem_type"].type for node in case.rewritten.node if node.op == "StackV2"]
        return sum(dtype == tf.float16.as_datatype_enum for dtype in stacks)

    assert low_stacks(both) == 0
    assert low_stacks(older) > 0
    assert low_stacks(ascend) > 0
