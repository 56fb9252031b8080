"""Every op of `npu_shim.step` has a test: a row of a table, a test of this file, or one that a list names."""

import pathlib

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

pytest.importorskip("jax", reason="JAX is not installed (extra [pjrt])")
from step_cases import CASES
from step_family_cases import FAMILIES
from step_runs import Step, compared, fed
from step_value_cases import VALUES
from test_step_kin import KIN
from test_step_updates import TESTED

from npu_shim.rewriter import tf_internals
from npu_shim.step.ops import TABLE

ELSEWHERE = {  # a file of this folder, which compares with a session -> what else it covers
    "test_step_graphs.py": (
        "Assert Const ControlTrigger Enter Exit If LoopCond Merge NextIteration NoOp PartitionedCall Placeholder "
        "PlaceholderV2 Print PrintV2 ReadVariableOp StatefulPartitionedCall StatelessIf StatelessWhile Switch "
        "VarHandleOp Variable VariableV2 While XlaOptimizationBarrier"
    ),
    "test_step_arrays.py": (
        "StackCloseV2 StackPopV2 StackPushV2 StackV2 TensorArrayCloseV3 TensorArrayGatherV3 TensorArrayGradV3 "
        "TensorArrayReadV3 TensorArrayScatterV3 TensorArraySizeV3 TensorArraySplitV3 TensorArrayV3 TensorArrayWriteV3"
    ),
    "test_tensor_lists.py": (
        "EmptyTensorList FakeParam TensorListConcat TensorListConcatV2 TensorListFromTensor TensorListGather "
        "TensorListGetItem TensorListLength TensorListPopBack TensorListPushBack TensorListReserve TensorListResize "
        "TensorListScatter TensorListScatterIntoExistingList TensorListScatterV2 TensorListSetItem TensorListSplit "
        "TensorListStack"
    ),
    "test_rank_collectives.py": "CollectiveAllToAllV2 CollectiveGather CollectiveReduce",
    "test_step_random.py": (
        "Multinomial RandomShuffle RandomStandardNormal RandomUniform RandomUniformInt TruncatedNormal RandomGamma "
        "RandomPoisson RandomPoissonV2 StatelessRandomGammaV2 StatelessRandomGammaV3 StatelessRandomPoisson"
    ),
    "test_attention_programs.py": "NpuShimAttention",
    "test_step_engine.py": "NpuShimDropoutSeed",
    "test_functions.py": "Case StatelessCase _Arg",
}  # fmt: skip
HERE = """
    Copy CopyHost DeepCopy DeviceIndex IsVariableInitialized OptionalFromValue OptionalGetValue OptionalHasValue
    OptionalNone RefEnter RefExit RefIdentity RefMerge RefNextIteration RefSwitch ResourceGather ResourceGatherNd
    TensorArrayConcatV3 TensorArrayGradWithShape TensorListElementShape VarIsInitializedOp VariableShape
"""


@pytest.fixture(autouse=True)
def _graph():
    with tf.Graph().as_default():
        yield


def test_every_op_has_a_row_or_a_test():
    of_tables = {*CASES, *FAMILIES, *VALUES, *KIN, *TESTED}
    named = {op for text in ELSEWHERE.values() for op in text.split()} | set(HERE.split())
    known = {op for op in TABLE if op.startswith("NpuShim") or tf_internals.op_def(op)}
    assert known <= of_tables | named, "no table has a row of %s" % sorted(known - of_tables - named)
    assert not named & of_tables, "they have rows: %s" % sorted(named & of_tables)
    assert named <= TABLE.keys(), "they have no rule: %s" % sorted(named - TABLE.keys())
    here = pathlib.Path(__file__).parent
    assert all((here / name).exists() for name in ELSEWHERE)


def test_variables_are_looked_at():
    dense = tf.get_variable("dense", initializer=np.arange(12, dtype="f").reshape(4, 3), use_resource=True)
    old = tf.get_variable("old", initializer=np.float32([1, 2]), use_resource=False)
    rows, given = fed(np.int32([3, 0, 3]))
    places, where = fed(np.int32([[1, 2], [3, 0]]))
    compared([
        tf.raw_ops.ResourceGather(resource=dense.handle, indices=rows, dtype=tf.float32),
        tf.raw_ops.ResourceGatherNd(resource=dense.handle, indices=places, dtype=tf.float32),
        tf.raw_ops.VariableShape(input=dense.handle), tf.raw_ops.VarIsInitializedOp(resource=dense.handle),
        tf.raw_ops.IsVariableInitialized(ref=old._ref()),
    ], {rows: given, places: where})  # fmt: skip


def test_references_pass_through_what_chooses_and_loops():
    old = tf.get_variable("old", initializer=np.float32([1, 2]), use_resource=False)
    choose, given = fed(np.bool_(True))
    same = tf.raw_ops.RefIdentity(input=old._ref())
    no, yes = tf.raw_ops.RefSwitch(data=same, pred=choose)
    merged, _ = tf.raw_ops.RefMerge(inputs=[no, yes])
    compared([tf.add(merged, 1)], known={choose: given})


def test_references_go_around_a_loop():
    old = tf.get_variable("old", initializer=np.float32([1, 2]), use_resource=False)
    around = tf.while_loop(lambda number, _: number < 3, lambda number, kept: (number + 1, kept), [0, old._ref()])
    assert {node.op for node in tf.get_default_graph().as_graph_def().node} >= {"RefEnter", "RefExit"}
    compared([tf.add(around[1], 1)])


def test_what_only_passes_on():
    x, given = fed(np.float32([1, np.nan]))
    compared([tf.raw_ops.Copy(input=x), tf.raw_ops.CopyHost(input=x), tf.raw_ops.DeepCopy(x=x)], {x: given})


def test_containers():
    x, given = fed(np.float32([[1, 2], [3, 4]]))
    kept, none = tf.raw_ops.OptionalFromValue(components=[x]), tf.raw_ops.OptionalNone()
    (value,) = tf.raw_ops.OptionalGetValue(optional=kept, output_types=[tf.float32], output_shapes=[[2, 2]])
    held = tf.raw_ops.TensorListFromTensor(tensor=x, element_shape=np.int32([2]))
    array = tf.TensorArray(tf.float32, 2).unstack(tf.reshape(x, [2, 2, 1]))
    compared([
        value, tf.raw_ops.OptionalHasValue(optional=kept), tf.raw_ops.OptionalHasValue(optional=none),
        tf.raw_ops.TensorListElementShape(input_handle=held, shape_type=tf.int64), array.concat(), _wider_gradient(x),
    ], {x: given})  # fmt: skip


def _wider_gradient(x):
    """The second element, of a gradient whose elements have a dimension more."""
    array, flow = tf.raw_ops.TensorArrayV3(size=2, dtype=tf.float32, element_shape=[2])
    other, flow = tf.raw_ops.TensorArrayGradWithShape(handle=array, flow_in=flow, shape_to_prepend=[2], source="more")
    for at in range(2):
        flow = tf.raw_ops.TensorArrayWriteV3(handle=other, index=at, value=x * (at + 1), flow_in=flow)
    return tf.raw_ops.TensorArrayReadV3(handle=other, index=1, flow_in=flow, dtype=tf.float32)


def test_no_device_is_that_of_a_step():
    """As in what TensorFlow compiles: a branch by device takes the default one."""
    index = tf.raw_ops.DeviceIndex(device_names=["CPU", "GPU"])
    assert Step(tf.get_default_graph(), [index])() == [2]
