"""How fast TensorFlow's CPU kernels are in float16 and bfloat16, op by op, against float32's.

    python scripts/bench_cpu_kernels.py [OP...] [--write FILE]

For each op: milliseconds in float32; then, for each low dtype, the time of the kernel of that dtype as a multiple of
float32's ("low"), and of the float32 kernel on inputs that are cast up, with its outputs cast down ("rounded"). An
op whose kernel refuses to run, or that has none, says so. rewriter/tables/slow_kernels.py is made from this.
"""

import argparse
import inspect
import time

import bench_tables
import numpy as np
import tensorflow.compat.v1 as tf

from npu_shim.rewriter.tf_internals import op_defs

TITLE = ["# Low-precision CPU kernels against float32's", ""]
DTYPES = ("float16", "bfloat16")
COPIES = 4  # of an op in one run, so that a run's own cost counts less
SECONDS = 0.15  # spent on one measurement, but at least two runs
ONE = [1, 1, 1, 1]
NORM = {"epsilon": 1e-3, "is_training": True}
POOL = {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "VALID"}
POOL3D = {"ksize": [1, 2, 2, 2, 1], "strides": [1, 2, 2, 2, 1], "padding": "VALID"}
CONV = {"strides": ONE, "padding": "SAME"}
CONV3D = {"strides": [1] * 5, "padding": "SAME"}
IMAGE, KERNEL, THIN, DEEP = (8, 32, 32, 32), (3, 3, 32, 32), (3, 3, 32, 1), (2, 8, 16, 16, 8)
FLAT = (256, 1024)


def _sizes(shape):
    return np.array(shape, np.int32)


# op, label, inputs, attributes; an input is a shape (random numbers of the dtype), ("f", shape) for float32,
# an array as it is, or a list of such
CASES = [
    ("MatMul", "512^3", [(512, 512), (512, 512)], {}),
    ("MatMul", "64x128x64", [(64, 128), (128, 64)], {}),
    ("MatMul", "8^3", [(8, 8), (8, 8)], {}),
    ("MatMul", "1x256x256", [(1, 256), (256, 256)], {}),
    ("MatMul", "256x256, transposed", [(256, 256), (256, 256)], {"transpose_b": True}),
    ("BatchMatMul", "16x64^3", [(16, 64, 64), (16, 64, 64)], {}),
    ("BatchMatMulV2", "16x64^3", [(16, 64, 64), (16, 64, 64)], {}),
    ("BatchMatMulV2", "4x8^3", [(4, 8, 8), (4, 8, 8)], {}),
    ("BatchMatMulV3", "16x64^3", [(16, 64, 64), (16, 64, 64)], {}),
    ("Einsum", "16x64^3", [[(16, 64, 64), (16, 64, 64)]], {"equation": "bij,bjk->bik"}),
    ("Conv2D", "3x3", [IMAGE, KERNEL], CONV),
    ("Conv2D", "1x1", [IMAGE, (1, 1, 32, 64)], CONV),
    ("Conv2D", "tiny", [(1, 8, 8, 3), (3, 3, 3, 4)], CONV),
    ("Conv2D", "NCHW", [(8, 32, 32, 32), KERNEL], dict(CONV, data_format="NCHW")),
    ("Conv2D", "dilated", [IMAGE, KERNEL], dict(CONV, dilations=[1, 2, 2, 1])),
    ("Conv2D", "groups", [IMAGE, (3, 3, 16, 32)], CONV),
    ("Conv2DBackpropFilter", "3x3", [IMAGE, _sizes(KERNEL), IMAGE], CONV),
    ("Conv2DBackpropInput", "3x3", [_sizes(IMAGE), KERNEL, IMAGE], CONV),
    ("Conv2DBackpropInput", "tiny", [_sizes((1, 8, 8, 3)), (3, 3, 3, 4), (1, 8, 8, 4)], CONV),
    ("Conv3D", "3x3x3", [DEEP, (3, 3, 3, 8, 8)], CONV3D),
    ("Conv3DBackpropFilterV2", "3x3x3", [DEEP, _sizes((3, 3, 3, 8, 8)), DEEP], CONV3D),
    ("Conv3DBackpropInputV2", "3x3x3", [_sizes(DEEP), (3, 3, 3, 8, 8), DEEP], CONV3D),
    ("DepthwiseConv2dNative", "3x3", [IMAGE, THIN], CONV),
    ("DepthwiseConv2dNativeBackpropFilter", "3x3", [IMAGE, _sizes(THIN), IMAGE], CONV),
    ("DepthwiseConv2dNativeBackpropInput", "3x3", [_sizes(IMAGE), THIN, IMAGE], CONV),
    ("Dilation2D", "3x3", [IMAGE, (3, 3, 32)], {"strides": ONE, "rates": ONE, "padding": "SAME"}),
    ("MaxPool", "2x2", [IMAGE], POOL),
    ("MaxPoolGrad", "2x2", [IMAGE, (8, 16, 16, 32), (8, 16, 16, 32)], POOL),
    ("AvgPool", "2x2", [IMAGE], POOL),
    ("AvgPoolGrad", "2x2", [_sizes(IMAGE), (8, 16, 16, 32)], POOL),
    ("MaxPool3D", "2x2x2", [DEEP], POOL3D),
    ("MaxPool3DGrad", "2x2x2", [DEEP, (2, 4, 8, 8, 8), (2, 4, 8, 8, 8)], POOL3D),
    ("AvgPool3D", "2x2x2", [DEEP], POOL3D),
    ("AvgPool3DGrad", "2x2x2", [_sizes(DEEP), (2, 4, 8, 8, 8)], POOL3D),
    ("LRN", "", [IMAGE], {}),
    ("FusedBatchNormV3", "", [IMAGE, ("f", (32,)), ("f", (32,)), ("f", (0,)), ("f", (0,))], NORM),
    ("FusedBatchNormGradV3", "", [IMAGE, IMAGE] + [("f", (32,))] * 4, NORM),
    ("LSTMBlockCell", "", [(32, 128), (32, 128), (32, 128), (256, 512), (128,), (128,), (128,), (512,)], {}),
    ("GRUBlockCell", "", [(32, 128), (32, 128), (256, 256), (256, 128), (256,), (128,)], {}),
    ("BiasAdd", "", [FLAT, (1024,)], {}),
    ("BiasAdd", "image", [IMAGE, (32,)], {}),
    ("BiasAddGrad", "", [FLAT], {}),
    ("BiasAddGrad", "image", [IMAGE], {}),
    ("Softmax", "", [FLAT], {}),
    ("LogSoftmax", "", [FLAT], {}),
    ("SoftmaxCrossEntropyWithLogits", "", [FLAT, FLAT], {}),
    ("L2Loss", "", [FLAT], {}),
    ("Sum", "all", [FLAT, np.array([0, 1], np.int32)], {}),
    ("Sum", "rows", [FLAT, np.array([0], np.int32)], {}),
    ("Mean", "columns", [FLAT, np.array([1], np.int32)], {}),
    ("Max", "columns", [FLAT, np.array([1], np.int32)], {}),
    ("Cumsum", "", [FLAT, np.array(1, np.int32)], {}),
    ("Add", "", [FLAT, FLAT], {}),
    ("AddV2", "", [FLAT, FLAT], {}),
    ("AddV2", "row", [FLAT, (1024,)], {}),
    ("AddV2", "small", [(32, 128), (32, 128)], {}),
    ("Sub", "", [FLAT, FLAT], {}),
    ("Mul", "", [FLAT, FLAT], {}),
    ("Mul", "scalar", [FLAT, ()], {}),
    ("Mul", "small", [(32, 128), (32, 128)], {}),
    ("RealDiv", "", [FLAT, FLAT], {}),
    ("Maximum", "", [FLAT, FLAT], {}),
    ("Pow", "", [FLAT, ()], {}),
    ("SquaredDifference", "", [FLAT, FLAT], {}),
    ("GreaterEqual", "", [FLAT, FLAT], {}),
    ("AddN", "", [[FLAT, FLAT, FLAT]], {}),
    ("Neg", "", [FLAT], {}),
    ("Abs", "", [FLAT], {}),
    ("Square", "", [FLAT], {}),
    ("Sqrt", "", [FLAT], {}),
    ("Rsqrt", "", [FLAT], {}),
    ("Exp", "", [FLAT], {}),
    ("Log", "", [FLAT], {}),
    ("Tanh", "", [FLAT], {}),
    ("TanhGrad", "", [FLAT, FLAT], {}),
    ("Sigmoid", "", [FLAT], {}),
    ("Sigmoid", "small", [(32, 128)], {}),
    ("SigmoidGrad", "", [FLAT, FLAT], {}),
    ("Erf", "", [FLAT], {}),
    ("Relu", "", [FLAT], {}),
    ("ReluGrad", "", [FLAT, FLAT], {}),
    ("Relu6", "", [FLAT], {}),
    ("LeakyRelu", "", [FLAT], {}),
    ("LeakyReluGrad", "", [FLAT, FLAT], {}),
    ("Elu", "", [FLAT], {}),
    ("Selu", "", [FLAT], {}),
    ("Softplus", "", [FLAT], {}),
    ("Softsign", "", [FLAT], {}),
    ("Transpose", "", [FLAT, np.array([1, 0], np.int32)], {}),
    ("Pad", "", [FLAT, np.array([[1, 1], [1, 1]], np.int32)], {}),
    ("Tile", "", [FLAT, np.array([2, 1], np.int32)], {}),
    ("ConcatV2", "", [[FLAT, FLAT], np.array(1, np.int32)], {}),
    ("Pack", "", [[FLAT, FLAT]], {}),
    ("Slice", "", [FLAT, np.array([1, 1], np.int32), np.array([255, 1000], np.int32)], {}),
    ("GatherV2", "", [FLAT, np.arange(128, dtype=np.int32), np.array(0, np.int32)], {}),
    ("SelectV2", "", [np.zeros(FLAT, bool), FLAT, FLAT], {}),
    ("Select", "", [np.zeros(FLAT, bool), FLAT, FLAT], {}),
    ("UnsortedSegmentSum", "", [FLAT, np.arange(256, dtype=np.int32) // 2, np.array(128, np.int32)], {}),
    ("ResizeBilinear", "", [IMAGE, np.array([64, 64], np.int32)], {}),
    ("IsFinite", "", [FLAT], {}),
]  # fmt: skip


def kernel(op, inputs, attributes, dtype, rounded):
    """Adds COPIES of an op to a new graph and returns a function that runs them.

    Args:
        op: op type; as `inputs` and `attributes` a field of CASES.
        inputs: what it reads.
        attributes: dict.
        dtype: name of the dtype of its inputs and outputs.
        rounded: whether it computes in float32, between casts.
    """
    low = tf.as_dtype(dtype)

    def constant(given, number):
        if isinstance(given, list):
            return [constant(one, number) for one in given]
        if isinstance(given, np.ndarray):
            return tf.constant(given)
        fixed = given[:1] == ("f",)
        values = np.random.RandomState(number).uniform(0.1, 1.0, given[1] if fixed else given)
        return tf.constant(values.astype(np.float32 if fixed else low.as_numpy_dtype))

    def up(tensor):
        if isinstance(tensor, list):
            return [up(one) for one in tensor]
        return tf.cast(tensor, tf.float32) if rounded and tensor.dtype == low else tensor

    with tf.Graph().as_default() as graph:
        names = list(inspect.signature(getattr(tf.raw_ops, op)).parameters)
        constants = [constant(given, number) for number, given in enumerate(inputs)]
        targets = []
        for _ in range(COPIES):
            given = dict(zip(names, map(up, constants)), **attributes)
            gives = getattr(tf.raw_ops, op)(**given)
            outputs = list(gives) if isinstance(gives, (list, tuple)) else [gives]
            if rounded:
                outputs = [tf.cast(o, low) if o.dtype == tf.float32 else o for o in outputs]
            targets += [o.op for o in outputs]
    config = tf.ConfigProto(inter_op_parallelism_threads=1)
    config.graph_options.optimizer_options.opt_level = -1  # L0: nothing is folded
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    return tf.Session(graph=graph, config=config).make_callable(sorted(set(targets), key=lambda o: o.name))


def seconds(run):
    """Best time of an op in seconds, from at least two runs of its COPIES."""
    run()
    best, spent = float("inf"), 0.0
    while spent < SECONDS or best == float("inf"):
        start = time.perf_counter()
        run()
        best, spent = min(best, time.perf_counter() - start), spent + time.perf_counter() - start
    return best / COPIES


def measured(op, inputs, attributes, dtype, rounded):
    """Seconds, or None where the kernel refuses or there is none."""
    try:
        return seconds(kernel(op, inputs, attributes, dtype, rounded))
    except (tf.errors.OpError, TypeError, ValueError):
        return None


def row(op, label, inputs, attributes):
    """The cells of one op's row."""
    base = measured(op, inputs, attributes, "float32", False)
    cells = ["-" if base is None else "%.3f" % (base * 1e3)]
    for dtype in DTYPES:
        for rounded in (False, True):
            time_taken = measured(op, inputs, attributes, dtype, rounded)
            cells.append("refuses" if time_taken is None else "" if base is None else "%.1f" % (time_taken / base))
    return [op, label, *cells]


def main():
    """Measures, prints, and writes the table where --write says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("ops", nargs="*", metavar="OP", help="op types; without any, all")
    parser.add_argument("--write", help="file for the table")
    args = parser.parse_args()
    columns = ["op", "", "float32 ms", "float16 low", "rounded", "bfloat16 low", "rounded"]
    cases = (case for case in CASES if case[0] in op_defs() and (not args.ops or case[0] in args.ops))
    bench_tables.table(columns, (row(*case) for case in cases), args.write, TITLE)


if __name__ == "__main__":
    main()
