"""The graph IR on training graphs and random programs: what is read is written again, byte for byte."""

import pytest
import random_graphs
import reference_material
import tensorflow.compat.v1 as tf
from hypothesis import given, settings

from npu_shim.rewriter import tf_internals
from npu_shim.rewriter.ir import graphdef
from npu_shim.rewriter.ir.graph import CONTROL

NAMES = [
    "crnn_ctc_train", "lstm_lm_train", "resnet50_train",
    *(pytest.param(name, marks=pytest.mark.nightly) for name in ("bert_large_train", "resnet50_ref_train")),
]  # fmt: skip


def content(graph_def):
    return graph_def.SerializeToString(deterministic=True)


def touched(module):
    """The module after every node, attribute and body has been set to what it is."""
    for graph in [module.graph, *(module.functions[name] for name in module.functions)]:
        for node in graph:
            if node not in graph.arguments:
                node.set_inputs(node.inputs)
                node.set_controls(node.controls)
                node.set_op(node.op)
                for name, value in node.attrs.items():
                    node.attrs[name] = value
    return module


def require_same(graph_def):
    before = content(graph_def)
    module = graphdef.read(graph_def)
    assert graphdef.write(module) is graph_def
    module.graph.version += 1
    assert content(graphdef.write(module)) == before
    assert content(graphdef.write(touched(module))) == before
    assert content(graph_def) == before
    for graph in module.graphs():
        for node in graph:
            for value in node.inputs:
                assert value.users[node] == node.inputs.count(value)
            assert all(node in source.output(CONTROL).users for source in node.controls)


@pytest.mark.parametrize("name", NAMES)
def test_training_graphs_come_out_as_they_went_in(name):
    require_same(reference_material.training_graph(name))


@settings(max_examples=12, deadline=None, derandomize=True)
@given(random_graphs.PROGRAMS)
def test_random_programs_with_functions_come_out_as_they_went_in(program):
    require_same(random_graphs.build(program).graph_def)


def test_a_node_is_added_to_a_real_graph_and_nothing_else_changes():
    graph_def = reference_material.training_graph("lstm_lm_train")
    module = graphdef.read(graph_def)
    loss = module.graph.value(reference_material.about("lstm_lm_train")["loss"])
    module.graph.add("half", "Cast", [loss], attrs={})
    written = graphdef.write(module)
    names = [node.name for node in written.node]
    assert names[-1] == "half"
    del written.node[-1]
    assert content(written) == content(graph_def)
    with tf.Graph().as_default():
        tf.import_graph_def(written)


def test_an_op_of_a_library_that_was_loaded_later_is_known(monkeypatch):
    monkeypatch.delitem(tf_internals.op_defs(), "Softsign")
    assert tf_internals.op_def("Softsign").name == "Softsign"
    assert tf_internals.op_def("NpuShimNothing") is tf_internals.op_def("Nothing") is None
