"""Maps each op to the function that lowers it. Comments name the TensorFlow kernels they were tested against."""

import tensorflow.compat.v1 as tf

from npu_shim.xla.passes.legalize.ops import (
    crops,
    ctc,
    gradients,
    images,
    metrics,
    reads,
    recurrent,
    segments,
    sparse_tensors,
    sparse_updates,
    sums,
)
from npu_shim.xla.passes.legalize.ops.renamed import as_op
from npu_shim.xla.passes.legalize.ops.sparse_updates import update

GRAD = ("grad", "indices")
FTRL = ("lr", "l1", "l2")
RMS = ("lr", "rho", "momentum", "epsilon", *GRAD)

SPARSE_UPDATES = {  # TensorFlow 2.15.1, core/kernels/training_ops.cc
    "ResourceSparseApplyAdagrad": update(2, ("lr", *GRAD), sparse_updates.adagrad),
    "ResourceSparseApplyAdagradV2": update(2, ("lr", "epsilon", *GRAD), sparse_updates.adagrad),
    "ResourceSparseApplyMomentum": update(2, ("lr", *GRAD, "momentum"), sparse_updates.momentum),
    "ResourceSparseApplyKerasMomentum": update(2, ("lr", *GRAD, "momentum"), sparse_updates.keras_momentum),
    "ResourceSparseApplyAdadelta": update(3, ("lr", "rho", "epsilon", *GRAD), sparse_updates.adadelta),
    "ResourceSparseApplyRMSProp": update(3, RMS, sparse_updates.rms_prop),
    "ResourceSparseApplyCenteredRMSProp": update(4, RMS, sparse_updates.centered_rms_prop),
    "ResourceSparseApplyFtrl": update(3, (*GRAD, *FTRL, "lr_power"), sparse_updates.ftrl),
    "ResourceSparseApplyFtrlV2": update(3, (*GRAD, *FTRL, "l2_shrinkage", "lr_power"), sparse_updates.ftrl),
    "ResourceSparseApplyProximalGradientDescent": update(1, (*FTRL, *GRAD), sparse_updates.proximal_gradient_descent),
    "ResourceSparseApplyProximalAdagrad": update(2, (*FTRL, *GRAD), sparse_updates.proximal_adagrad),
    "ResourceSparseApplyAdagradDA": update(3, (*GRAD, *FTRL, "global_step"), sparse_updates.adagrad_da),
}
VARIABLES = {  # TensorFlow 2.15.1, core/kernels/resource_variable_ops.cc, scatter_nd_op.cc, count_up_to_op.cc
    "ResourceGatherNd": reads.gather_nd,
    "ResourceScatterNdMax": reads.scatter_nd_max,
    "ResourceScatterNdMin": reads.scatter_nd_min,
    "ResourceCountUpTo": reads.count_up_to,
}
SPARSE_TENSORS = {  # TensorFlow 2.15.1, core/kernels/sparse_*_op.cc
    "SparseTensorDenseMatMul": sparse_tensors.dense_product,
    "SparseTensorDenseAdd": sparse_tensors.dense_sum,
    "SparseDenseCwiseAdd": sparse_tensors.elementwise(tf.add),
    "SparseDenseCwiseMul": sparse_tensors.elementwise(tf.multiply),
    "SparseDenseCwiseDiv": sparse_tensors.elementwise(tf.divide),
    "SparseReduceSum": sparse_tensors.reduced_sum,
    "SparseSoftmax": sparse_tensors.softmax,
    "SparseReorder": sparse_tensors.reordered,
    "SparseReshape": sparse_tensors.reshaped,
}
SEGMENTS = {  # TensorFlow 2.15.1, core/kernels/segment_reduction_ops_impl.h
    "SegmentSum": segments.dense(segments.SUM),
    "SegmentMean": segments.dense(segments.MEAN),
    "SparseSegmentSum": segments.sparse(segments.SUM),
    "SparseSegmentMean": segments.sparse(segments.MEAN),
    "SparseSegmentSqrtN": segments.sparse(segments.SQRT_N),
    "SparseSegmentSumWithNumSegments": segments.sparse(segments.SUM),
    "SparseSegmentMeanWithNumSegments": segments.sparse(segments.MEAN),
    "SparseSegmentSqrtNWithNumSegments": segments.sparse(segments.SQRT_N),
    "SparseSegmentSumGrad": segments.gradient(segments.SUM),
    "SparseSegmentMeanGrad": segments.gradient(segments.MEAN),
    "SparseSegmentSqrtNGrad": segments.gradient(segments.SQRT_N),
}
BY_ROW = {  # with a row for each index, whose number is data; they are lowered before what takes them
    "SparseSegmentSumGradV2": segments.gradient_by_row(segments.SUM),
    "SparseSegmentMeanGradV2": segments.gradient_by_row(segments.MEAN),
    "SparseSegmentSqrtNGradV2": segments.gradient_by_row(segments.SQRT_N),
}
LOSSES = {  # TensorFlow 2.15.1, core/util/ctc/ctc_loss_calculator.h
    "CTCLoss": ctc.loss,
}
METRICS = {  # TensorFlow 2.15.1, core/kernels/in_topk_op.h
    "InTopK": metrics.in_top_k,
    "InTopKV2": metrics.in_top_k,
}
RECURRENT = {  # TensorFlow 2.15.1, core/kernels/rnn/lstm_ops.h
    "BlockLSTM": recurrent.forward(recurrent.FIRST),
    "BlockLSTMGrad": recurrent.gradient(recurrent.FIRST),
    "BlockLSTMV2": recurrent.forward(recurrent.SECOND),
    "BlockLSTMGradV2": recurrent.gradient(recurrent.SECOND),
}
IMAGES = {  # TensorFlow 2.15.1, core/kernels/image
    "ResizeNearestNeighborGrad": images.nearest_neighbor_gradient,
    "MaxPoolWithArgmax": images.pool_with_places,
    "MaxPoolGradWithArgmax": images.pool_gradient_at_places,
    "CropAndResize": crops.crop,
    "CropAndResizeGradImage": crops.image_gradient,
    "CropAndResizeGradBoxes": crops.box_gradient,
}
GRADIENTS = {  # TensorFlow 2.15.1, core/kernels/cwise_ops_gradients.h, relu_op_functor.h
    **{op: gradients.nothing_from_nothing(op) for op in ("ReciprocalGrad", "RsqrtGrad", "SqrtGrad")},
    "InvGrad": gradients.nothing_from_nothing("ReciprocalGrad"),
    "SeluGrad": gradients.selu,
}
MEANS = {  # TensorFlow 2.15.1, core/kernels/reduction_ops.h
    "Mean": sums.mean,
}
RENAMED = {
    "ScatterNdNonAliasingAdd": as_op("TensorScatterAdd"),
}
TABLE = {
    **SPARSE_UPDATES, **VARIABLES, **SPARSE_TENSORS, **SEGMENTS, **BY_ROW, **LOSSES, **METRICS, **RECURRENT, **IMAGES,
    **GRADIENTS, **MEANS, **RENAMED,
}  # fmt: skip
WHOLE_OR_COMPLEX = (*sums.WIDE, tf.int64, tf.uint64, tf.complex64, tf.complex128)
# op -> the dtypes T for which it is lowered; the other ops are lowered for all
DTYPES = {"Mean": frozenset(dtype.as_datatype_enum for dtype in WHOLE_OR_COMPLEX)}
