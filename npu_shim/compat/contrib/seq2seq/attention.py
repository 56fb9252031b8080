"""Attention mechanisms of tf.contrib.seq2seq: Bahdanau, Luong, and their monotonic forms (behaviour of 1.15.5).

Shapes: memory [batch, time, depth], keys [batch, time, num_units], query [batch, query_depth], score and alignments
[batch, time].
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

from npu_shim.compat.contrib.seq2seq.scores import (
    _bahdanau_score,
    _dim,
    _luong_score,
    _maybe_mask_score,
    _monotonic_probability_fn,
    _prepare_memory,
    _shaped,
)


class AttentionMechanism:
    """The interface that AttentionWrapper expects of a mechanism."""

    @property
    def alignments_size(self) -> Any:
        """The number of memory steps, int or int32 scalar."""
        raise NotImplementedError

    @property
    def state_size(self) -> Any:
        """The size of the mechanism's state."""
        raise NotImplementedError


class _BaseAttentionMechanism(AttentionMechanism):
    """Memory, keys and the masking that the mechanisms share.

    Args:
        query_layer: optional tf.layers.Layer for the query.
        memory: tensor [batch, time, ...].
        probability_fn: (score, previous alignments) -> alignments.
        memory_sequence_length: optional int32 [batch]; later steps are masked.
        memory_layer: optional tf.layers.Layer that makes the keys of the memory.
        check_inner_dims_defined: whether all but batch and time must be known.
        score_mask_value: the score of masked steps, -inf by default.
        custom_key_value_fn: optional, (keys, values) -> (keys, values).
        name: the name scope.
    """

    _SCOPE: str  # variables are made in
    _score: Any  # of a query, before the alignments

    def __init__(
        self, query_layer, memory, probability_fn, memory_sequence_length=None, memory_layer=None,
        check_inner_dims_defined=True, score_mask_value=None, custom_key_value_fn=None, name=None,
    ):  # fmt: skip
        self._query_layer = query_layer
        self._memory_layer = memory_layer
        self.dtype = _dtype_of(memory_layer) if memory_layer is not None else memory.dtype
        mask_value = self.dtype.as_numpy_dtype(-np.inf) if score_mask_value is None else score_mask_value
        self._memory_sequence_length = memory_sequence_length
        self._probability_fn = lambda score, previous: probability_fn(
            _maybe_mask_score(score, memory_sequence_length=memory_sequence_length, score_mask_value=mask_value),
            previous,
        )
        with tf.name_scope(name, "BaseAttentionMechanismInit", tf.nest.flatten(memory)):
            self._values = _prepare_memory(memory, memory_sequence_length, None, check_inner_dims_defined)
            self._keys = self._values if memory_layer is None else memory_layer(self._values)
            if custom_key_value_fn is not None:
                self._keys, self._values = custom_key_value_fn(self._keys, self._values)
            self._batch_size = _dim(self._keys, 0)
            self._alignments_size = _dim(self._keys, 1)

    @property
    def memory_layer(self):
        """The layer that made the keys, or None."""
        return self._memory_layer

    @property
    def query_layer(self):
        """The layer of the query, or None."""
        return self._query_layer

    @property
    def values(self):
        """The masked memory."""
        return self._values

    @property
    def keys(self):
        """What the query is compared with."""
        return self._keys

    @property
    def batch_size(self):
        """The batch size, an int or int32 scalar."""
        return self._batch_size

    @property
    def alignments_size(self):
        return self._alignments_size

    @property
    def state_size(self):
        return self._alignments_size

    def initial_alignments(self, batch_size, dtype):
        """Returns the alignments before the first step: zeros [batch, time]."""
        zeros = tf.zeros([batch_size, self._alignments_size], dtype)
        return _shaped(zeros, batch_size, self._alignments_size)

    def initial_state(self, batch_size, dtype):
        """Returns the state before the first step, here the alignments."""
        return self.initial_alignments(batch_size, dtype)

    def __call__(self, query: Any, state: Any) -> tuple[tf.Tensor, Any]:
        """Returns (alignments, next state)."""
        with tf.variable_scope(None, self._SCOPE, [query]):
            score = self._score(query)
        alignments = self._probability_fn(score, state)
        return alignments, alignments


class _Additive(_BaseAttentionMechanism):
    """v . tanh(W m + U q); `normalize` gives v a learned length and adds a bias."""

    def __init__(self, num_units, dtype, normalize, **given):
        layers = {"%s_layer" % of: _dense(num_units, "%s_layer" % of, dtype) for of in ("query", "memory")}
        super().__init__(**layers, **given)
        self._num_units, self._normalize, self._name = num_units, normalize, given["name"]

    def _score(self, query):
        processed = self.query_layer(query) if self.query_layer else query
        v = tf.get_variable("attention_v", [self._num_units], dtype=query.dtype)
        if not self._normalize:
            return _bahdanau_score(processed, self.keys, v)
        start = tf.constant_initializer(np.sqrt(1.0 / self._num_units))
        gain = tf.get_variable("attention_g", shape=(), dtype=query.dtype, initializer=start)
        zeros = tf.zeros_initializer()
        bias = tf.get_variable("attention_b", [self._num_units], dtype=query.dtype, initializer=zeros)
        return _bahdanau_score(processed, self.keys, v, gain, bias)


class _Multiplicative(_BaseAttentionMechanism):
    """q . W m; `scale` multiplies it by a learned scalar."""

    def __init__(self, num_units, dtype, scale, **given):
        super().__init__(query_layer=None, memory_layer=_dense(num_units, "memory_layer", dtype), **given)
        self._num_units, self._scale, self._name = num_units, scale, given["name"]

    def _score(self, query):
        gain = None
        if self._scale:
            gain = tf.get_variable("attention_g", shape=(), dtype=query.dtype, initializer=tf.ones_initializer())
        return _luong_score(query, self.keys, gain)


class BahdanauAttention(_Additive):
    """Additive attention, v . tanh(W m + U q) (Bahdanau et al. 2015), normalized on request (Salimans et al. 2016).

    Args:
        num_units: int, the depth of query and keys when they are compared.
        memory: tensor [batch, time, depth].
        memory_sequence_length: optional int32 [batch].
        normalize: bool.
        probability_fn: score -> alignments, tf.nn.softmax by default.
        score_mask_value: the score of masked steps, -inf by default.
        dtype: of the layers, float32 by default.
        custom_key_value_fn: optional, (keys, values) -> (keys, values).
        name: the name scope.
    """

    _SCOPE = "bahdanau_attention"

    def __init__(
        self,
        num_units: int,
        memory: Any,
        memory_sequence_length: Any = None,
        normalize: bool = False,
        probability_fn: Any = None,
        score_mask_value: Any = None,
        dtype: Any = None,
        custom_key_value_fn: Any = None,
        name: str = "BahdanauAttention",
    ) -> None:  # fmt: skip
        super().__init__(
            num_units, dtype, normalize, memory=memory, probability_fn=_softmax(probability_fn),
            memory_sequence_length=memory_sequence_length, score_mask_value=score_mask_value,
            custom_key_value_fn=custom_key_value_fn, name=name,
        )  # fmt: skip


class LuongAttention(_Multiplicative):
    """Multiplicative attention, q . W m (Luong et al. 2015), scaled on request.

    Args:
        num_units: int, the depth of the query.
        memory: tensor [batch, time, depth].
        memory_sequence_length: optional int32 [batch].
        scale: whether a learned scalar multiplies the score.
        probability_fn: score -> alignments, tf.nn.softmax by default.
        score_mask_value: the score of masked steps, -inf by default.
        dtype: of the layer, float32 by default.
        custom_key_value_fn: optional, (keys, values) -> (keys, values).
        name: the name scope.
    """

    _SCOPE = "luong_attention"

    def __init__(
        self,
        num_units: int,
        memory: Any,
        memory_sequence_length: Any = None,
        scale: bool = False,
        probability_fn: Any = None,
        score_mask_value: Any = None,
        dtype: Any = None,
        custom_key_value_fn: Any = None,
        name: str = "LuongAttention",
    ) -> None:  # fmt: skip
        super().__init__(
            num_units, dtype, scale, memory=memory, probability_fn=_softmax(probability_fn),
            memory_sequence_length=memory_sequence_length, score_mask_value=score_mask_value,
            custom_key_value_fn=custom_key_value_fn, name=name,
        )  # fmt: skip


class _BaseMonotonicAttentionMechanism(_BaseAttentionMechanism):
    """Mechanisms whose alignment starts at the first step of the memory and only moves on (Raffel et al. 2017)."""

    _score_bias_init: float

    def initial_alignments(self, batch_size, dtype):
        """Returns the alignments before the first step: all on the first."""
        return tf.one_hot(tf.zeros([batch_size], tf.int32), self._alignments_size, dtype=dtype)

    def _score(self, query):
        """Its sister's score, and a learned bias."""
        score, start = super()._score(query), tf.constant_initializer(self._score_bias_init)
        bias = tf.get_variable("attention_score_bias", shape=(), dtype=query.dtype, initializer=start)
        return score + bias


class BahdanauMonotonicAttention(_BaseMonotonicAttentionMechanism, _Additive):
    """Monotonic attention with the additive score.

    Args:
        num_units: int.
        memory: tensor [batch, time, depth].
        memory_sequence_length: optional int32 [batch].
        normalize: bool.
        score_mask_value: the score of masked steps, -inf by default.
        sigmoid_noise: standard deviation of the noise added to the score before the sigmoid.
        sigmoid_noise_seed: int.
        score_bias_init: initial value of the score's bias.
        mode: "recursive", "parallel" or "hard", see `monotonic_attention`.
        dtype: of the layers, float32 by default.
        name: the name scope.
    """

    _SCOPE = "bahdanau_monotonic_attention"

    def __init__(
        self,
        num_units: int,
        memory: Any,
        memory_sequence_length: Any = None,
        normalize: bool = False,
        score_mask_value: Any = None,
        sigmoid_noise: float = 0.0,
        sigmoid_noise_seed: int | None = None,
        score_bias_init: float = 0.0,
        mode: str = "parallel",
        dtype: Any = None,
        name: str = "BahdanauMonotonicAttention",
    ) -> None:  # fmt: skip
        super().__init__(
            num_units, dtype, normalize, memory=memory, memory_sequence_length=memory_sequence_length, name=name,
            probability_fn=_monotonic(sigmoid_noise, mode, sigmoid_noise_seed), score_mask_value=score_mask_value,
        )  # fmt: skip
        self._score_bias_init = score_bias_init


class LuongMonotonicAttention(_BaseMonotonicAttentionMechanism, _Multiplicative):
    """Monotonic attention with the multiplicative score; arguments as of its sister and LuongAttention."""

    _SCOPE = "luong_monotonic_attention"

    def __init__(
        self,
        num_units: int,
        memory: Any,
        memory_sequence_length: Any = None,
        scale: bool = False,
        score_mask_value: Any = None,
        sigmoid_noise: float = 0.0,
        sigmoid_noise_seed: int | None = None,
        score_bias_init: float = 0.0,
        mode: str = "parallel",
        dtype: Any = None,
        name: str = "LuongMonotonicAttention",
    ) -> None:  # fmt: skip
        super().__init__(
            num_units, dtype, scale, memory=memory, memory_sequence_length=memory_sequence_length, name=name,
            probability_fn=_monotonic(sigmoid_noise, mode, sigmoid_noise_seed), score_mask_value=score_mask_value,
        )  # fmt: skip
        self._score_bias_init = score_bias_init


def _dtype_of(layer):
    return tf.as_dtype(getattr(layer, "dtype", None) or tf.float32)


def _dense(num_units, name, dtype):
    return tf.layers.Dense(num_units, name=name, use_bias=False, dtype=dtype or tf.float32)


def _softmax(probability_fn):
    """A function of the score alone, tf.nn.softmax by default, as one of score and previous alignments."""
    return lambda score, _: (probability_fn or tf.nn.softmax)(score)


def _monotonic(noise, mode, seed):
    return lambda score, previous: _monotonic_probability_fn(score, previous, noise, mode, seed)
