"""The bodies of attention's functions in TensorFlow's ops, for whatever has no kernel for them.

    scores = spec.py's        weights = dropout(softmax(scores))        out = low(weights) v

They round as the plan's own nodes do, but between the products, where all but the sum with a bias is `wide`.
"""

from __future__ import annotations

from typing import Any, Sequence

import numpy as np
import tensorflow.compat.v1 as tf

from npu_shim.pjrt.attention.spec import ATTRIBUTE, FORWARD, Spec
from npu_shim.rewriter.ir import graphdef
from npu_shim.rewriter.ir.definitions import Argument, Definition
from npu_shim.rewriter.ir.graph import Value
from npu_shim.rewriter.ir.module import Function, Module
from npu_shim.rewriter.tables import dtypes
from npu_shim.xla.passes.attention import draws


def function(module: Module, spec: Spec) -> Function:
    """Returns the function of a Spec, which XLA does not inline while it is a graph; it is not yet in the module."""
    with tf.Graph().as_default() as graph:
        given = {
            argument.name: tf.placeholder(argument.dtype, argument.shape, argument.name) for argument in spec.arguments
        }
        results = (_forward if spec.kind == FORWARD else _backward)(spec, given)
        named = [tf.identity(tensor, result.name + "_result") for result, tensor in zip(spec.results, results)]
    read = graphdef.read(graph.as_graph_def()).graph
    sides = ([Argument(argument.name, dtypes.NUMBERS[argument.dtype]) for argument in side]
             for side in (spec.arguments, spec.results))  # fmt: skip
    inputs, outputs = map(tuple, sides)
    function = Function(module, spec.name, Definition(spec.name, inputs, outputs, {}))
    function.attributes = {"_noinline": True, ATTRIBUTE: spec.as_json().encode()}
    values: dict[Value, Value] = {}
    for argument in inputs:
        node = function.add(argument.name, graphdef.ARGUMENT, attrs={"T": read[argument.name].attrs["dtype"]})
        function.arguments.append(node)
        values[read[argument.name].value] = node.value
    for node in read:
        if node.name in given:
            continue
        copy = function.add(
            node.name, node.op, [values[value] for value in node.inputs], attrs=dict(node.attrs.items())
        )
        values.update((value, copy.output(value.index)) for value in [node.value, *node.outputs()])
    function.results = {result.name: values[read[tensor.op.name].value] for result, tensor in zip(spec.results, named)}
    return function


def _forward(spec: Spec, given: dict[str, Any]) -> Sequence[Any]:
    scores = _scores(spec, given)
    weights = _dropped(spec, tf.nn.softmax(scores), given)
    out = tf.raw_ops.BatchMatMulV2(x=tf.cast(weights, spec.dtype), y=given["v"])
    scores = tf.cast(scores, tf.float32)
    most = tf.reduce_max(scores, axis=-1)
    base = tf.where_v2(tf.equal(most, -np.inf), tf.zeros_like(most), most)  # of a row in which all is masked
    return out, most, tf.reduce_sum(tf.exp(scores - base[..., None]), axis=-1)


def _backward(spec: Spec, given: dict[str, Any]) -> Sequence[Any]:
    q, k, v, d_out = (given[name] for name in ("q", "k", "v", "d_out"))
    shares = tf.nn.softmax(_scores(spec, given))
    weights = tf.cast(_dropped(spec, shares, given), spec.dtype)
    gradient = tf.cast(tf.raw_ops.BatchMatMulV2(x=d_out, y=v, adj_y=True), spec.wide)
    gradient = _dropped(spec, gradient, given)
    slope = (gradient - tf.reduce_sum(gradient * shares, axis=-1, keepdims=True)) * shares
    inside = _where_hidden(spec, given, 0.0, slope)
    low = tf.cast(inside * spec.product_slope, spec.dtype)
    gradients = [tf.raw_ops.BatchMatMulV2(x=low, y=k), tf.raw_ops.BatchMatMulV2(x=low, y=q, adj_x=True),
            tf.raw_ops.BatchMatMulV2(x=weights, y=d_out, adj_x=True)]  # fmt: skip
    if spec.bias_slope is not None and spec.bias is not None:
        slope = (slope if spec.bias_over else inside) * spec.bias_slope
        along = [axis for axis, (one, whole) in enumerate(zip(spec.bias, spec.scores)) if one != whole]
        gradients.append(tf.cast(tf.reduce_sum(slope, axis=along, keepdims=True), spec.bias_dtype))
    return gradients


def _scores(spec: Spec, given: dict[str, Any]) -> Any:
    scores = tf.cast(tf.raw_ops.BatchMatMulV2(x=given["q"], y=given["k"], adj_y=True), spec.wide)
    scores = scores if spec.scale == 1 else scores * tf.constant(spec.scale, spec.wide)
    scores = scores if spec.bias_over else _with_bias(spec, given, scores)
    scores = scores if spec.after == 1 else scores * tf.constant(spec.after, spec.wide)
    scores = _where_hidden(spec, given, spec.fill, scores)
    return _with_bias(spec, given, scores) if spec.bias_over else scores


def _with_bias(spec: Spec, given: dict[str, Any], scores: Any) -> Any:
    if spec.bias is None:
        return scores
    scores += tf.cast(given["bias"], spec.wide)
    return tf.cast(tf.cast(scores, spec.rounded), spec.wide) if spec.rounded else scores


def _where_hidden(spec: Spec, given: dict[str, Any], number: float, scores: Any) -> Any:
    """Scores, or their gradient, with a number where they are hidden."""
    if spec.hidden is None:
        return scores
    return tf.where_v2(tf.cast(given["hidden"], tf.bool), tf.constant(number, spec.wide), scores)


def _dropped(spec: Spec, shares: Any, given: dict[str, Any]) -> Any:
    """Probabilities, or their gradient, with dropout."""
    if not spec.rate:
        return shares
    keep = draws.kept(given["seed"], spec.drawn, spec.rate)
    return tf.where_v2(keep, shares * tf.constant(spec.kept_times, spec.wide), tf.zeros([], spec.wide))
