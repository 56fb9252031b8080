"""tf.contrib.seq2seq."""

from .attention import (
    AttentionMechanism,
    BahdanauAttention,
    BahdanauMonotonicAttention,
    LuongAttention,
    LuongMonotonicAttention,
)
from .beam_search import (
    BeamSearchDecoder,
    BeamSearchDecoderOutput,
    FinalBeamSearchDecoderOutput,
    gather_tree,
    gather_tree_from_array,
    tile_batch,
)
from .beam_step import BeamSearchDecoderState
from .decoders import BasicDecoder, BasicDecoderOutput, Decoder, dynamic_decode
from .helpers import (
    CustomHelper,
    GreedyEmbeddingHelper,
    Helper,
    InferenceHelper,
    SampleEmbeddingHelper,
    ScheduledEmbeddingTrainingHelper,
    ScheduledOutputTrainingHelper,
    TrainingHelper,
)
from .losses import sequence_loss
from .scores import hardmax, monotonic_attention, safe_cumprod
from .wrapper import AttentionWrapper, AttentionWrapperState

__all__ = [
    "AttentionMechanism", "AttentionWrapper", "AttentionWrapperState", "BahdanauAttention",
    "BahdanauMonotonicAttention", "BasicDecoder", "BasicDecoderOutput", "BeamSearchDecoder", "BeamSearchDecoderOutput",
    "BeamSearchDecoderState", "CustomHelper", "Decoder", "FinalBeamSearchDecoderOutput", "GreedyEmbeddingHelper",
    "Helper", "InferenceHelper", "LuongAttention", "LuongMonotonicAttention", "SampleEmbeddingHelper",
    "ScheduledEmbeddingTrainingHelper", "ScheduledOutputTrainingHelper", "TrainingHelper", "dynamic_decode",
    "gather_tree", "gather_tree_from_array", "hardmax", "monotonic_attention", "safe_cumprod", "sequence_loss",
    "tile_batch",
]  # fmt: skip
