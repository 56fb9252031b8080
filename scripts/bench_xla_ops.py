"""How fast XLA's CPU code for an op is against TensorFlow's kernel, op by op.

    python scripts/bench_xla_ops.py [OP...] [--runs N] [--write FILE]

Both graphs read the same variables; in one the op is marked for a cluster of its own, in the other it is not. They take
turns in one process; medians are compared. `SLOW` in npu_shim/session/clusters/slow_ops.py is made from this table.
"""

import argparse
import inspect
import statistics
import time

import bench_cpu_kernels as kernels
import bench_tables
import numpy as np
import tensorflow.compat.v1 as tf

from npu_shim.rewriter.tf_internals import op_defs
from npu_shim.session.clusters import MARK

TITLE = ["# XLA's CPU code against TensorFlow's kernels", ""]
RUNS = 25  # of each, at most
SECONDS = 2.0  # for an op, once each has made five
IMAGE, STRIDED, HALF = (16, 32, 32, 32), {"strides": [1, 2, 2, 1], "padding": "SAME"}, (16, 16, 16, 32)
BIG = (16, 56, 56, 64)
WIDE, ROWS = (1024, 1024), (100000, 64)
CUBE, CUBE_KERNEL = (4, 8, 32, 32, 8), (3, 3, 3, 8, 8)
POOL, POOL3D, CONV, CONV3D, NORM, ONE = (
    kernels.POOL, kernels.POOL3D, kernels.CONV, kernels.CONV3D, kernels.NORM, kernels.ONE
)  # fmt: skip
POOL_SAME = {"ksize": [1, 3, 3, 1], "strides": [1, 2, 2, 1], "padding": "SAME"}


def _ints(*values):
    return np.array(values, np.int32)


def _indices(count, bound):
    return np.random.RandomState(0).randint(0, bound, count).astype(np.int32)


# op, label, inputs, attributes; an input is a shape (random numbers), an array as it is (a constant), or a list of such
CASES = [
    ("MatMul", "512^3", [(512, 512), (512, 512)], {}),
    ("MatMul", "64x1024x1024", [(64, 1024), (1024, 1024)], {}),
    ("MatMul", "1024^2, transposed", [(256, 1024), (1024, 1024)], {"transpose_b": True}),
    ("BatchMatMulV2", "64x64^3", [(64, 64, 64), (64, 64, 64)], {}),
    ("BatchMatMulV2", "16x128x64x128", [(16, 128, 64), (16, 64, 128)], {}),
    ("Einsum", "64x64^3", [[(64, 64, 64), (64, 64, 64)]], {"equation": "bij,bjk->bik"}),
    ("Conv2D", "3x3", [IMAGE, (3, 3, 32, 32)], CONV),
    ("Conv2D", "3x3, 56x56x64", [BIG, (3, 3, 64, 64)], CONV),
    ("Conv2D", "1x1, 56x56x64", [BIG, (1, 1, 64, 256)], CONV),
    ("Conv2D", "3x3, stride 2", [IMAGE, (3, 3, 32, 64)], STRIDED),
    ("Conv2D", "7x7x3, stride 2", [(4, 224, 224, 3), (7, 7, 3, 64)], STRIDED),
    ("Conv2D", "1x12", [(8, 120, 12, 64), (1, 12, 64, 64)], {"strides": ONE, "padding": "VALID"}),
    ("Conv2D", "dilated", [IMAGE, (3, 3, 32, 32)], dict(CONV, dilations=[1, 2, 2, 1])),
    ("Conv2DBackpropFilter", "3x3", [IMAGE, _ints(3, 3, 32, 32), IMAGE], CONV),
    ("Conv2DBackpropFilter", "3x3, 56x56x64", [BIG, _ints(3, 3, 64, 64), BIG], CONV),
    ("Conv2DBackpropFilter", "1x1, 56x56x64", [BIG, _ints(1, 1, 64, 64), BIG], CONV),
    ("Conv2DBackpropFilter", "3x3, stride 2", [IMAGE, _ints(3, 3, 32, 32), HALF], STRIDED),
    ("Conv2DBackpropInput", "3x3", [_ints(*IMAGE), (3, 3, 32, 32), IMAGE], CONV),
    ("Conv2DBackpropInput", "3x3, 56x56x64", [_ints(*BIG), (3, 3, 64, 64), BIG], CONV),
    ("Conv2DBackpropInput", "1x1, 56x56x64", [_ints(*BIG), (1, 1, 64, 64), BIG], CONV),
    ("Conv2DBackpropInput", "transposed, stride 2", [_ints(*IMAGE), (5, 5, 32, 32), HALF], STRIDED),
    ("Conv3D", "3x3x3", [CUBE, CUBE_KERNEL], CONV3D),
    ("Conv3DBackpropFilterV2", "3x3x3", [CUBE, _ints(*CUBE_KERNEL), CUBE], CONV3D),
    ("Conv3DBackpropInputV2", "3x3x3", [_ints(*CUBE), CUBE_KERNEL, CUBE], CONV3D),
    ("DepthwiseConv2dNative", "3x3", [IMAGE, (3, 3, 32, 1)], CONV),
    ("DepthwiseConv2dNative", "3x3, 56x56x64", [BIG, (3, 3, 64, 1)], CONV),
    ("DepthwiseConv2dNative", "1x12, 2 of each", [(8, 120, 12, 64), (1, 12, 64, 2)],
     {"strides": ONE, "padding": "VALID"}),
    ("DepthwiseConv2dNativeBackpropFilter", "3x3", [IMAGE, _ints(3, 3, 32, 1), IMAGE], CONV),
    ("DepthwiseConv2dNativeBackpropFilter", "1x12, 2 of each",
     [(8, 120, 12, 64), _ints(1, 12, 64, 2), (8, 120, 1, 128)], {"strides": ONE, "padding": "VALID"}),
    ("DepthwiseConv2dNativeBackpropInput", "3x3", [_ints(*IMAGE), (3, 3, 32, 1), IMAGE], CONV),
    ("DepthwiseConv2dNativeBackpropInput", "1x12, 2 of each",
     [_ints(8, 120, 12, 64), (1, 12, 64, 2), (8, 120, 1, 128)], {"strides": ONE, "padding": "VALID"}),
    ("MaxPool", "2x2", [BIG], POOL),
    ("MaxPool", "3x3, stride 2", [BIG], POOL_SAME),
    ("MaxPoolGrad", "2x2", [BIG, (16, 28, 28, 64), (16, 28, 28, 64)], POOL),
    ("MaxPoolGrad", "3x3, stride 2", [BIG, (16, 28, 28, 64), (16, 28, 28, 64)], POOL_SAME),
    ("AvgPool", "2x2", [BIG], POOL),
    ("AvgPool", "3x3, stride 2", [BIG], POOL_SAME),
    ("AvgPoolGrad", "2x2", [_ints(*BIG), (16, 28, 28, 64)], POOL),
    ("AvgPoolGrad", "3x3, stride 2", [_ints(*BIG), (16, 28, 28, 64)], POOL_SAME),
    ("MaxPool3D", "2x2x2", [CUBE], POOL3D),
    ("MaxPool3DGrad", "2x2x2", [CUBE, (4, 4, 16, 16, 8), (4, 4, 16, 16, 8)], POOL3D),
    ("AvgPool3D", "2x2x2", [CUBE], POOL3D),
    ("AvgPool3DGrad", "2x2x2", [_ints(*CUBE), (4, 4, 16, 16, 8)], POOL3D),
    ("LRN", "", [BIG], {}),
    ("LRNGrad", "", [BIG, BIG, BIG], {}),
    ("FusedBatchNormV3", "training", [BIG, (64,), (64,), (0,), (0,)], NORM),
    ("FusedBatchNormGradV3", "training", [BIG, BIG] + [(64,)] * 4, NORM),
    ("BiasAdd", "image", [BIG, (64,)], {}),
    ("BiasAddGrad", "image", [BIG], {}),
    ("BiasAddGrad", "", [WIDE], {}),
    ("BiasAddGrad", "512x128", [(512, 128)], {}),
    ("ResizeBilinear", "twice", [IMAGE, _ints(64, 64)], {}),
    ("ResizeBilinear", "twice, corners", [IMAGE, _ints(64, 64)], {"align_corners": True}),
    ("ResizeBilinearGrad", "twice", [(16, 64, 64, 32), IMAGE], {}),
    ("ResizeBilinearGrad", "twice, corners", [(16, 64, 64, 32), IMAGE], {"align_corners": True}),
    ("ResizeNearestNeighbor", "twice", [IMAGE, _ints(64, 64)], {}),
    ("ResizeNearestNeighborGrad", "twice", [(16, 64, 64, 32), _ints(32, 32)], {}),
    ("ExtractImagePatches", "3x3", [IMAGE], {"ksizes": [1, 3, 3, 1], "strides": ONE, "rates": ONE, "padding": "SAME"}),
    ("SpaceToDepth", "2", [BIG], {"block_size": 2}),
    ("DepthToSpace", "2", [BIG], {"block_size": 2}),
    ("Cumsum", "columns", [WIDE, np.array(1, np.int32)], {}),
    ("Cumsum", "rows", [WIDE, np.array(0, np.int32)], {}),
    ("Cumprod", "columns", [WIDE, np.array(1, np.int32)], {}),
    ("TopKV2", "1 of 1024", [WIDE, np.array(1, np.int32)], {}),
    ("TopKV2", "10 of 1024", [WIDE, np.array(10, np.int32)], {}),
    ("TopKV2", "sort", [WIDE, np.array(1024, np.int32)], {}),
    ("ArgMax", "columns", [WIDE, np.array(1, np.int32)], {}),
    ("GatherV2", "rows", [ROWS, _indices(4096, 100000), np.array(0, np.int32)], {}),
    ("GatherNd", "rows", [ROWS, _indices(4096, 100000)[:, None]], {}),
    ("UnsortedSegmentSum", "4,096 into 1,000", [(4096, 64), _indices(4096, 1000), np.array(1000, np.int32)], {}),
    ("UnsortedSegmentMax", "4,096 into 1,000", [(4096, 64), _indices(4096, 1000), np.array(1000, np.int32)], {}),
    ("ScatterNd", "4,096 into 100,000", [_indices(4096, 100000)[:, None], (4096, 64), _ints(100000, 64)], {}),
    ("TensorScatterAdd", "4,096 into 100,000", [ROWS, _indices(4096, 100000)[:, None], (4096, 64)], {}),
    ("StridedSliceGrad", "rows", [_ints(1024, 1024), _ints(1, 0), _ints(1023, 1024), _ints(1, 1), (1022, 1024)], {}),
    ("ReverseSequence", "", [(64, 128, 64), _indices(64, 128)], {"seq_dim": 1, "batch_dim": 0}),
    ("MatrixBandPart", "", [(16, 256, 256), np.array(-1, np.int32), np.array(0, np.int32)], {}),
    ("Softmax", "", [WIDE], {}),
    ("Softmax", "64x10", [(64, 10)], {}),
    ("LogSoftmax", "", [WIDE], {}),
    ("SoftmaxCrossEntropyWithLogits", "", [WIDE, WIDE], {}),
    ("SparseSoftmaxCrossEntropyWithLogits", "", [WIDE, _indices(1024, 1024)], {}),
    ("Sum", "image", [BIG, _ints(0, 1, 2)], {}),
    ("Sum", "all", [WIDE, _ints(0, 1)], {}),
    ("Sum", "rows", [WIDE, _ints(0)], {}),
    ("Sum", "columns", [WIDE, _ints(1)], {}),
    ("Mean", "image", [BIG, _ints(1, 2)], {}),
    ("Max", "columns", [WIDE, _ints(1)], {}),
    ("Prod", "columns", [WIDE, _ints(1)], {}),
    ("L2Loss", "", [WIDE], {}),
    ("L2Loss", "3x3x64x64", [(3, 3, 64, 64)], {}),
    ("AddV2", "", [WIDE, WIDE], {}),
    ("Mul", "row", [WIDE, (1024,)], {}),
    ("Pow", "", [WIDE, ()], {}),
    ("Exp", "", [WIDE], {}),
    ("Log", "", [WIDE], {}),
    ("Tanh", "", [WIDE], {}),
    ("Sigmoid", "", [WIDE], {}),
    ("Erf", "", [WIDE], {}),
    ("Rsqrt", "", [WIDE], {}),
    ("Sin", "", [WIDE], {}),
    ("Relu", "", [WIDE], {}),
    ("Transpose", "", [WIDE, _ints(1, 0)], {}),
    ("Transpose", "NHWC to NCHW", [BIG, _ints(0, 3, 1, 2)], {}),
    ("Tile", "", [WIDE, _ints(2, 1)], {}),
    ("ConcatV2", "", [[WIDE, WIDE], np.array(1, np.int32)], {}),
    ("Pad", "", [WIDE, np.array([[1, 1], [1, 1]], np.int32)], {}),
    ("MirrorPad", "image", [BIG, np.array([[0, 0], [1, 1], [1, 1], [0, 0]], np.int32)], {"mode": "REFLECT"}),
    ("OneHot", "", [_indices(1024, 1024), np.array(1024, np.int32), np.float32(1), np.float32(0)], {}),
    ("RandomUniform", "", [_ints(1024, 1024)], {"dtype": tf.float32}),
    ("RandomStandardNormal", "", [_ints(1024, 1024)], {"dtype": tf.float32}),
    ("MatrixInverse", "", [(8, 64, 64)], {}),
    ("Cholesky", "", [np.float32(np.eye(64) + 0.01)], {}),
    ("Qr", "", [(8, 32, 32)], {}),
    ("Svd", "", [(8, 32, 32)], {}),
    ("SelfAdjointEigV2", "", [(8, 32, 32)], {}),
]  # fmt: skip


def built(op, inputs, attributes):
    """Adds an op, once in a cluster and once not, that reads variables and whose results are read outside.

    Args:
        op: op type; as `inputs` and `attributes` a field of CASES.
        inputs: what it reads.
        attributes: dict.

    Returns:
        {whether marked: function that runs it}.
    """
    with tf.Graph().as_default() as graph:
        given = _inputs(inputs)
        names = list(inspect.signature(getattr(tf.raw_ops, op)).parameters)
        ends = {}
        for marked in (False, True):
            outputs = getattr(tf.raw_ops, op)(**dict(zip(names, given)), **attributes)
            outputs = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
            outputs[0].op._set_attr(MARK, tf.AttrValue(b=marked))
            ends[marked] = tf.group(*[tf.raw_ops.Identity(input=output).op for output in outputs])
        begin = tf.global_variables_initializer()
    config = tf.ConfigProto(inter_op_parallelism_threads=1)
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    session = tf.Session(graph=graph, config=config)
    session.run(begin)
    return {marked: session.make_callable(end) for marked, end in ends.items()}


def _inputs(inputs):
    random = np.random.RandomState(0)

    def one(given):
        if isinstance(given, list):
            return [one(value) for value in given]
        if not isinstance(given, tuple):
            return tf.constant(given)
        return tf.Variable(random.uniform(0.1, 1.0, given).astype(np.float32), use_resource=True).value()

    return [one(value) for value in inputs]


def row(op, label, inputs, attributes, runs):
    """The cells of one op's row."""
    try:
        both = built(op, inputs, attributes)
        for _ in range(2):  # compiles
            for run in both.values():
                run()
    except (tf.errors.OpError, TypeError, ValueError) as reason:
        return [op, label, "-", "-", "refuses: " + str(reason).splitlines()[0][:60]]
    taken = {marked: [] for marked in both}
    begin = time.perf_counter()
    while len(taken[True]) < runs and (len(taken[True]) < 5 or time.perf_counter() - begin < SECONDS):
        for marked, run in both.items():
            start = time.perf_counter()
            run()
            taken[marked].append(time.perf_counter() - start)
    plain, compiled = (statistics.median(taken[marked]) * 1e3 for marked in (False, True))
    return [op, label, "%.2f" % plain, "%.2f" % compiled, "%.2f" % (compiled / plain)]


def main():
    """Measures, prints, and writes the table where --write says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("ops", nargs="*", metavar="OP", help="op types; without any, all")
    parser.add_argument("--runs", type=int, default=RUNS, help="runs of each at most")
    parser.add_argument("--write", help="file for the table")
    args = parser.parse_args()
    cases = (case for case in CASES if case[0] in op_defs() and (not args.ops or case[0] in args.ops))
    columns = ["op", "", "kernel ms", "in a cluster ms", "ratio"]
    bench_tables.table(columns, (row(*case, args.runs) for case in cases), args.write, TITLE)


if __name__ == "__main__":
    main()
