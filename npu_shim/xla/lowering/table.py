"""Op -> what is written in its place. A row's source is the TensorFlow whose kernel it was tried against."""

from npu_shim.xla.lowering import reads, sparse_updates
from npu_shim.xla.lowering.sparse_updates import update

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
    "ResourceSparseApplyProximalGradientDescent": update(
        1, (*FTRL, *GRAD), sparse_updates.proximal_gradient_descent
    ),
    "ResourceSparseApplyProximalAdagrad": update(2, (*FTRL, *GRAD), sparse_updates.proximal_adagrad),
    "ResourceSparseApplyAdagradDA": update(3, (*GRAD, *FTRL, "global_step"), sparse_updates.adagrad_da),
}
VARIABLES = {  # TensorFlow 2.15.1, core/kernels/resource_variable_ops.cc, scatter_nd_op.cc, count_up_to_op.cc
    "ResourceGatherNd": reads.gather_nd,
    "ResourceScatterNdMax": reads.scatter_nd_max,
    "ResourceScatterNdMin": reads.scatter_nd_min,
    "ResourceCountUpTo": reads.count_up_to,
}
TABLE = {**SPARSE_UPDATES, **VARIABLES}
