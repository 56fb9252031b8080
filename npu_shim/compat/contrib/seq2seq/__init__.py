"""tf.contrib.seq2seq."""

from npu_shim.compat.contrib.seq2seq.attention import (
    AttentionMechanism,
    BahdanauAttention,
    BahdanauMonotonicAttention,
    LuongAttention,
    LuongMonotonicAttention,
)
from npu_shim.compat.contrib.seq2seq.beam_search import (
    BeamSearchDecoder,
    BeamSearchDecoderOutput,
    FinalBeamSearchDecoderOutput,
    gather_tree,
    gather_tree_from_array,
    tile_batch,
)
from npu_shim.compat.contrib.seq2seq.beam_step import BeamSearchDecoderState
from npu_shim.compat.contrib.seq2seq.decoder_layers import BaseDecoder, BasicDecoderV2, BeamSearchDecoderV2
from npu_shim.compat.contrib.seq2seq.decoders import BasicDecoder, BasicDecoderOutput, Decoder, dynamic_decode
from npu_shim.compat.contrib.seq2seq.helpers import (
    CustomHelper,
    GreedyEmbeddingHelper,
    Helper,
    InferenceHelper,
    SampleEmbeddingHelper,
)
from npu_shim.compat.contrib.seq2seq.losses import sequence_loss
from npu_shim.compat.contrib.seq2seq.samplers import (
    CustomSampler,
    GreedyEmbeddingSampler,
    InferenceSampler,
    SampleEmbeddingSampler,
    Sampler,
    ScheduledEmbeddingTrainingSampler,
    ScheduledOutputTrainingSampler,
    TrainingSampler,
)
from npu_shim.compat.contrib.seq2seq.scores import hardmax, monotonic_attention, safe_cumprod
from npu_shim.compat.contrib.seq2seq.training_helpers import (
    ScheduledEmbeddingTrainingHelper,
    ScheduledOutputTrainingHelper,
    TrainingHelper,
)
from npu_shim.compat.contrib.seq2seq.wrapper import AttentionWrapper, AttentionWrapperState

__all__ = [
    "AttentionMechanism", "AttentionWrapper", "AttentionWrapperState", "BahdanauAttention",
    "BahdanauMonotonicAttention", "BaseDecoder", "BasicDecoder", "BasicDecoderOutput", "BasicDecoderV2",
    "BeamSearchDecoder", "BeamSearchDecoderOutput", "BeamSearchDecoderState", "BeamSearchDecoderV2", "CustomHelper",
    "CustomSampler", "Decoder", "FinalBeamSearchDecoderOutput", "GreedyEmbeddingHelper", "GreedyEmbeddingSampler",
    "Helper", "InferenceHelper", "InferenceSampler", "LuongAttention", "LuongMonotonicAttention",
    "SampleEmbeddingHelper", "SampleEmbeddingSampler", "Sampler", "ScheduledEmbeddingTrainingHelper",
    "ScheduledEmbeddingTrainingSampler", "ScheduledOutputTrainingHelper", "ScheduledOutputTrainingSampler",
    "TrainingHelper", "TrainingSampler", "dynamic_decode", "gather_tree", "gather_tree_from_array", "hardmax",
    "monotonic_attention", "safe_cumprod", "sequence_loss", "tile_batch",
]  # fmt: skip
