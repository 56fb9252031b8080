"""The feature columns of tf.contrib.layers, of wide-and-deep models (behaviour of TensorFlow 1.15.5)."""

from npu_shim.compat.contrib.feature_columns.base import _FeatureColumn
from npu_shim.compat.contrib.feature_columns.crossed import _CrossedColumn, crossed_column
from npu_shim.compat.contrib.feature_columns.embeddings import (
    _EmbeddingColumn,
    _OneHotColumn,
    _ScatteredEmbeddingColumn,
    embedding_column,
    one_hot_column,
    scattered_embedding_column,
    shared_embedding_columns,
)
from npu_shim.compat.contrib.feature_columns.models import (
    _Transformer,
    check_feature_columns,
    input_from_feature_columns,
    joint_weighted_sum_from_feature_columns,
    parse_feature_columns_from_examples,
    parse_feature_columns_from_sequence_examples,
    sequence_input_from_feature_columns,
    transform_features,
    weighted_sum_from_feature_columns,
)
from npu_shim.compat.contrib.feature_columns.real import (
    _BucketizedColumn,
    _real_valued_var_len_column,
    _RealValuedColumn,
    _RealValuedVarLenColumn,
    bucketized_column,
    real_valued_column,
)
from npu_shim.compat.contrib.feature_columns.scattered import (
    scattered_embedding_lookup,
    scattered_embedding_lookup_sparse,
)
from npu_shim.compat.contrib.feature_columns.sparse import (
    _SparseColumn,
    _WeightedSparseColumn,
    sparse_column_with_hash_bucket,
    sparse_column_with_integerized_feature,
    sparse_column_with_keys,
    sparse_column_with_vocabulary_file,
    weighted_sparse_column,
)
from npu_shim.compat.contrib.feature_columns.specs import (
    create_feature_spec_for_parsing,
    infer_real_valued_columns,
    make_place_holder_tensors_for_base_features,
)

__all__ = [
    "_BucketizedColumn", "_CrossedColumn", "_EmbeddingColumn", "_FeatureColumn", "_OneHotColumn", "_RealValuedColumn",
    "_RealValuedVarLenColumn", "_ScatteredEmbeddingColumn", "_SparseColumn", "_Transformer", "_WeightedSparseColumn",
    "_real_valued_var_len_column", "bucketized_column", "check_feature_columns", "create_feature_spec_for_parsing",
    "crossed_column", "embedding_column", "infer_real_valued_columns", "input_from_feature_columns",
    "joint_weighted_sum_from_feature_columns", "make_place_holder_tensors_for_base_features", "one_hot_column",
    "parse_feature_columns_from_examples", "parse_feature_columns_from_sequence_examples", "real_valued_column",
    "scattered_embedding_column", "scattered_embedding_lookup", "scattered_embedding_lookup_sparse",
    "sequence_input_from_feature_columns", "shared_embedding_columns", "sparse_column_with_hash_bucket",
    "sparse_column_with_integerized_feature", "sparse_column_with_keys", "sparse_column_with_vocabulary_file",
    "transform_features", "weighted_sparse_column", "weighted_sum_from_feature_columns",
]  # fmt: skip
