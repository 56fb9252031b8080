"""tf.contrib.rnn, without the names that are tf.nn's own."""

from npu_shim.compat.contrib.rnn.blocks import (
    FusedRNNCell,
    FusedRNNCellAdaptor,
    GRUBlockCell,
    GRUBlockCellV2,
    LSTMBlockCell,
    LSTMBlockFusedCell,
    LSTMBlockWrapper,
    TimeReversedFusedRNN,
)
from npu_shim.compat.contrib.rnn.cells import IntersectionRNNCell, NASCell, SRUCell, UGRNNCell
from npu_shim.compat.contrib.rnn.compiled import CompiledWrapper
from npu_shim.compat.contrib.rnn.convolutional import Conv1DLSTMCell, Conv2DLSTMCell, Conv3DLSTMCell, ConvLSTMCell
from npu_shim.compat.contrib.rnn.gated import CFNCell, MinimalRNNCell
from npu_shim.compat.contrib.rnn.grid import BidirectionalGridLSTMCell, GridLSTMCell, TimeFreqLSTMCell
from npu_shim.compat.contrib.rnn.indy import GLSTMCell, IndRNNCell, IndyGRUCell, IndyLSTMCell
from npu_shim.compat.contrib.rnn.linear import LayerRNNCell, Linear, linear
from npu_shim.compat.contrib.rnn.loops import (
    stack_bidirectional_dynamic_rnn,
    stack_bidirectional_rnn,
    transpose_batch_time,
)
from npu_shim.compat.contrib.rnn.lstm_cells import (
    CoupledInputForgetGateLSTMCell,
    LayerNormBasicLSTMCell,
    PhasedLSTMCell,
)
from npu_shim.compat.contrib.rnn.normalized import LayerNormLSTMCell, WeightNormLSTMCell
from npu_shim.compat.contrib.rnn.wrappers import (
    AttentionCellWrapper,
    EmbeddingWrapper,
    HighwayWrapper,
    InputProjectionWrapper,
    OutputProjectionWrapper,
)

__all__ = [
    "AttentionCellWrapper", "BidirectionalGridLSTMCell", "CFNCell", "CompiledWrapper", "Conv1DLSTMCell",
    "Conv2DLSTMCell", "Conv3DLSTMCell", "ConvLSTMCell", "CoupledInputForgetGateLSTMCell", "EmbeddingWrapper",
    "FusedRNNCell", "FusedRNNCellAdaptor", "GLSTMCell", "GRUBlockCell", "GRUBlockCellV2", "GridLSTMCell",
    "HighwayWrapper", "IndRNNCell", "IndyGRUCell", "IndyLSTMCell", "InputProjectionWrapper", "IntersectionRNNCell",
    "LSTMBlockCell", "LSTMBlockFusedCell", "LSTMBlockWrapper", "LayerNormBasicLSTMCell", "LayerNormLSTMCell",
    "LayerRNNCell", "Linear", "MinimalRNNCell", "NASCell", "OutputProjectionWrapper", "PhasedLSTMCell", "SRUCell",
    "TimeFreqLSTMCell", "TimeReversedFusedRNN", "UGRNNCell", "WeightNormLSTMCell", "linear",
    "stack_bidirectional_dynamic_rnn", "stack_bidirectional_rnn", "transpose_batch_time",
]  # fmt: skip
