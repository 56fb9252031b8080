"""Scopes mark the ops made inside, and nothing else."""

import pytest
import tensorflow.compat.v1 as tf

from npu_shim.options.ops import scopes
from npu_shim.options.ops.scopes import NpuExecutePlacement

# scope -> the attributes of an op made inside
MARKS = [
    (scopes.keep_dtype_scope, {}, {"_keep_dtype": 1}),
    (scopes.without_npu_compile_scope, {}, {"_without_npu_compile": True}),
    (scopes.npu_variable_scope, {}, {"_variable_placement": b"all"}),
    (scopes.npu_variable_scope, {"placement": NpuExecutePlacement.HOST}, {"_variable_placement": b"host"}),
    (scopes.npu_stage_scope, {"stage": 3}, {"_stage_level": 3}),
    (scopes.npu_mem_type_scope, {}, {"_output_memory_type": 1}),
    (scopes.npu_weight_prefetch_scope, {}, {"_buffer_pool_id": 0, "_buffer_pool_size": 512 << 20}),
    (
        scopes.op_specified_engine_scope,
        {"engine_name": "AIcoreEngine", "kernel_lib_name": "lib"},
        {"_specified_engine_name": b"AIcoreEngine", "_specified_kernel_lib_name": b"lib"},
    ),
    (scopes.npu_qos_label_scope, {"label": 2}, {"_qos_service_label": 2}),
    (scopes.subgraph_multi_dims_scope, {"index": 1}, {"_subgraph_multi_dims_index": 1}),
    (scopes.npu_optimizer_scope, {}, {"_optimizer": True}),
    (scopes.disable_autofuse, {}, {"_disable_autofuse_scope": True}),
    (
        scopes.limit_core_num_scope,
        {"op_aicore_num": "4", "op_vectorore_num": "8"},
        {"_op_aicore_num": b"4", "_op_vectorcore_num": b"8"},
    ),
]


def own_attributes(op):
    return {name: op.get_attr(name) for name in op.node_def.attr if name.startswith("_")}


@pytest.mark.parametrize(("scope", "arguments", "expected"), MARKS)
def test_marks(scope, arguments, expected):
    with tf.Graph().as_default():
        before = tf.identity(tf.ones([]), "before").op
        with scope(**arguments):
            inside = tf.identity(tf.ones([]), "inside").op
        after = tf.identity(tf.ones([]), "after").op
        assert own_attributes(inside) == expected
        assert own_attributes(before) == own_attributes(after) == {}
        assert inside.name == "inside"


def test_scopes_nest_and_the_inner_one_wins():
    with tf.Graph().as_default():
        with scopes.npu_stage_scope(1), scopes.keep_dtype_scope(), scopes.npu_stage_scope(2):
            inside = tf.ones([]).op
        assert own_attributes(inside) == {"_stage_level": 2, "_keep_dtype": 1}


def test_recompute_and_slice_are_name_scopes():
    with tf.Graph().as_default():
        with scopes.npu_recompute_scope():
            assert tf.ones([], name="x").op.name == "NpuRecompute/x"
        with scopes.npu_graph_slice_scope(4):
            assert tf.ones([], name="x").op.name == "SliceNum-4-NpuGraphSlicing4/x"


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match=r"^npu_shim: npu_variable_scope: placement"):
        scopes.npu_variable_scope("host")
    for number in ("0", "-1", "x", 4):
        with pytest.raises(ValueError, match=r"^npu_shim: limit_core_num_scope: op_aicore_num"):
            scopes.limit_core_num_scope(op_aicore_num=number, op_vectorore_num="1")
    with pytest.raises(ValueError, match="slice_num"), scopes.npu_graph_slice_scope(0):
        pass


def test_keep_tensors_dtypes_marks_the_producers():
    graph = tf.Graph()
    with graph.as_default():
        x = tf.identity(tf.ones([2]), "x")
        tf.identity(x, "y")
    scopes.keep_tensors_dtypes(graph, ("x:0",))
    assert own_attributes(graph.get_operation_by_name("x")) == {"_keep_dtype": 1}
    assert own_attributes(graph.get_operation_by_name("y")) == {}
    with pytest.raises(ValueError, match=r"graph must be a tf\.Graph"):
        scopes.keep_tensors_dtypes(graph.as_graph_def(), ["x:0"])
    with pytest.raises(ValueError, match="list or tuple"):
        scopes.keep_tensors_dtypes(graph, "x:0")
    with pytest.raises(KeyError):
        scopes.keep_tensors_dtypes(graph, ["z:0"])


def test_graph_exec_config_marks_ops_tensors_names_and_lists():
    with tf.Graph().as_default():
        x, y = tf.ones([], name="x"), tf.ones([], name="y")
        assert scopes.set_graph_exec_config(x, dynamic_input=True) is x
        assert scopes.set_graph_exec_config([y.op], True, "lazy_recompile", "[1~2]", True) == [y.op]
        assert scopes.set_graph_exec_config("x:0") is x
        assert own_attributes(x.op)["_graph_dynamic_input"] is False
        assert own_attributes(y.op) == {
            "_graph_dynamic_input": True,
            "_graph_dynamic_graph_execute_mode": b"lazy_recompile",
            "_graph_dynamic_inputs_shape_range": b"[1~2]",
            "_is_train_graph": True,
        }
        with pytest.raises(ValueError, match="did you mean 'lazy_recompile'"):
            scopes.set_graph_exec_config(x, dynamic_graph_execute_mode="lazy_recompil")
        with pytest.raises(ValueError, match="expected an Operation"):
            scopes.set_graph_exec_config(3)


def test_shapes_of_subgraphs_are_marks_on_ops_and_tensors():
    with tf.Graph().as_default():
        x, y = tf.ones([], name="x"), tf.ones([], name="y")
        scopes.set_op_tensor_max_range(x, "4,4")
        scopes.set_op_input_tensor_multi_dims(y.op, "0:-1,3", "2,3;4,3")
        assert own_attributes(x.op) == {"_op_max_shape": b"4,4"}
        assert own_attributes(y.op) == {
            "_subgraph_multi_dims_input_shape": b"0:-1,3",
            "_subgraph_multi_dims_input_dims": b"2,3;4,3",
        }


def test_marked_graphs_run():
    with tf.Graph().as_default():
        with scopes.without_npu_compile_scope(), scopes.npu_weight_prefetch_scope():
            x = tf.ones([2]) + 1.0
        with tf.Session() as session:
            assert session.run(x).tolist() == [2.0, 2.0]
