"""The dtype of every slot in every mode, as text that a person can review: tests/golden/*.dtypes.

After a change that is meant, write them again with NPU_SHIM_GOLDEN=write and read the difference.
"""

import os
import pathlib
import textwrap

import pytest
import reference_material
import tensorflow.compat.v1 as tf

import npu_shim
from npu_shim.rewriter.planner.report import slot_name
from npu_shim.rewriter.tables.dtypes import name as dtype_name
from npu_shim.rewriter.tables.policy import PRECISION_MODE

pytestmark = pytest.mark.skipif(not tf.__version__.startswith("2.15."), reason="kernels differ between versions")
GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden"
WRAP = textwrap.TextWrapper(140, initial_indent="  ", subsequent_indent="    ", break_long_words=False)
SHORT = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}


def small_graph():
    """A convolution, a matrix product, batch norm, softmax cross-entropy, a reduction, and their gradients."""
    with tf.Graph().as_default() as graph, tf.variable_scope("", use_resource=True):
        x = tf.placeholder(tf.float32, [4, 8, 8, 3], "x")
        labels = tf.placeholder(tf.int32, [4], "labels")
        h = tf.nn.conv2d(x, tf.get_variable("kernel", [3, 3, 3, 4]), 1, "SAME", name="conv")
        scale, offset = tf.get_variable("scale", [4]), tf.get_variable("offset", [4])
        h, _, _ = tf.nn.fused_batch_norm(h, scale, offset, name="norm")
        h = tf.reduce_mean(tf.nn.relu(h, name="relu"), [1, 2], name="pooled")
        logits = tf.matmul(h, tf.get_variable("weight", [4, 10]), name="logits")
        loss = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits, name="cross_entropy")
        loss = tf.reduce_sum(loss, name="loss")
        with tf.name_scope("gradients_of"):
            gradients = tf.gradients(loss, tf.trainable_variables())
        tf.group(*gradients, name="train")
    return graph.as_graph_def(), ["loss:0", "train"], []


def bert_tiny():
    about = reference_material.about("bert_tiny_train")
    graph_def = reference_material.training_graph("bert_tiny_train")
    return graph_def, [about["loss"], about["train_op"]], list(about["feeds"])


def dtypes_by_mode(graph_def, fetches, feeds):
    """For each row of dtypes, one a mode: the slots that have it, by op type; `T` is left out of a slot's name."""
    columns, ops = {}, {}
    for mode in PRECISION_MODE:
        _, plan = npu_shim.rewrite(graph_def, fetches, feeds, device="GPU", precision_mode=mode, profile="gpu")
        for d in plan.decisions():
            name = d.node if d.slot == ("T", None) else slot_name(d.node, d.slot)
            columns.setdefault(name, []).append(SHORT[dtype_name(d.becomes)])
            ops[name] = d.op
    rows = {}
    for name, dtypes in columns.items():
        rows.setdefault(tuple(dtypes), {}).setdefault(ops[name], []).append(name)
    lines = ["modes: " + " ".join(PRECISION_MODE)]
    for dtypes in sorted(rows):
        lines += ["", " ".join("%-4s" % dtype for dtype in dtypes).rstrip()]
        for op in sorted(rows[dtypes]):
            names = " ".join(sorted(rows[dtypes][op]))
            lines += WRAP.wrap("%s: %s" % (op, names))
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("name", ["small", "bert_tiny_train"])
def test_dtypes(name):
    graph = small_graph() if name == "small" else bert_tiny()
    dtypes = dtypes_by_mode(*graph)
    golden = GOLDEN / (name + ".dtypes")
    if os.environ.get("NPU_SHIM_GOLDEN") == "write":
        golden.write_text(dtypes)
    assert dtypes == golden.read_text()
