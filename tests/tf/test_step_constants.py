"""Constants as `npu_shim.step.packing` writes them, in every form that a TensorProto has."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from npu_shim.rewriter.ir import graphdef
from npu_shim.step import packing

pytest.importorskip("ml_dtypes", reason="TensorFlow 1 comes without ml_dtypes")

from npu_shim.step import unpacking

DTYPES = (tf.float32, tf.float64, tf.float16, tf.bfloat16, tf.int8, tf.uint8, tf.int16, tf.uint16, tf.int32, tf.int64,
          tf.bool, tf.complex64)  # fmt: skip
VALUES = ([], [0], [1, 1, 1], [1, 0, 1], [0, 0, 0, 1], [[1, 1], [1, 1]])


def protos(dtype):
    """TensorProtos with their numbers as bytes, one by one, and the first one for all."""
    for value in VALUES:
        array = np.array(value).astype(dtype.as_numpy_dtype)
        yield tf.make_tensor_proto(array)
        if array.size:
            numbers = array.reshape(-1).tolist()
            yield tf.make_tensor_proto(numbers, dtype, array.shape)
            yield tf.make_tensor_proto(numbers[:1], dtype, [5])


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
def test_a_constant_of_any_form_is_what_tensorflow_reads(dtype):
    for proto in protos(dtype):
        graph_def = tf.GraphDef()
        node = graph_def.node.add(name="c", op="Const")
        node.attr["dtype"].type = dtype.as_datatype_enum
        node.attr["value"].tensor.CopyFrom(proto)
        module = graphdef.read(graph_def)
        module.graph.results = {"c:0": module.graph.value("c")}
        packed = unpacking.unpacked(packing.packed(module, {})).graph.nodes["c"].attrs["value"]
        expected = tf.make_ndarray(proto)
        assert (packed.shape, packed.dtype, packed.tobytes()) == (expected.shape, expected.dtype, expected.tobytes())
