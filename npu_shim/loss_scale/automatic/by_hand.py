"""Updates that have no scale: written by hand, without an optimizer, or made before scales were given, or elsewhere."""

from __future__ import annotations

import re
from typing import Any, Callable, Iterable, Sequence

import tensorflow.compat.v1 as tf

from npu_shim.loss_scale.automatic.calls import Registry, registry_of
from npu_shim.loss_scale.automatic.gate import BFLOAT16, say
from npu_shim.loss_scale.automatic.origin import WRITER
from npu_shim.loss_scale.optimizers.update_ops import OPTIMIZER_STEP
from npu_shim.options.collected import LOSS_SCALE

BY_GRADIENTS = re.compile(r"(^|/)gradients(_\d+)?/")  # the scope of what tf.gradients makes, unless it is given a name
SCALES = re.compile(r"(^|/)(current_)?loss_scale(_\d+)?$")  # of npu_shim, TensorFlow and npu_bridge: holds a scale


def tell_of(graph: tf.Graph) -> None:
    """Logs one line about the trained variables of a graph whose updates have no scale, if there are any."""
    registry = registry_of(graph)
    if not registry.calls:
        _tell_of_others(registry, graph)
        return
    waiting = [call for call in registry.calls if call not in registry.scales and call not in registry.left]
    updated = _updated_by([tensor for call in waiting for tensor in call.results], graph, [WRITER])
    if updated:
        say(
            registry,
            "gradients of tf.gradients update %s without an optimizer's apply_gradients: their loss is not scaled; %s"
            % (_shown(updated), BFLOAT16),
        )


def tell_of_request(graph: tf.Graph, request: str) -> None:
    """Logs one line about the trained variables of a graph that a request lowers to float16 and brings no scale for."""
    text = (
        "%s lowers to float16 and brings no loss scale: small gradients of %s may become 0. Let the optimizer scale "
        "its loss (tf.train.experimental.enable_mixed_precision_graph_rewrite), or run the script by npu-shim run "
        "--precision-mode auto, which does; %s"
    )
    _tell_of_unscaled(registry_of(graph), graph, lambda names: text % (request, names, BFLOAT16))


def _tell_of_others(registry: Registry, graph: tf.Graph) -> None:
    """Tells of a training graph that was built before scales were given, or that was imported."""
    text = (
        "the updates of %s were built before loss scales are given, or imported: their loss is not scaled, unless "
        "the script does so; call npu_shim.enable before the graph is built, or train in bfloat16, which needs no "
        "loss scale (precision_mode=allow_mix_precision_bf16)"
    )
    _tell_of_unscaled(registry, graph, lambda names: text % names)


def _tell_of_unscaled(registry: Registry, graph: tf.Graph, text: Callable[[str], str]) -> None:
    """Logs a text, given names of variables, where the gradients that a graph updates variables by have no scale."""
    operations = graph.get_operations()
    if registry.said or graph.get_collection(LOSS_SCALE) or any(SCALES.search(op.name) for op in operations):
        return
    written = [tensor for op in operations if BY_GRADIENTS.search(op.name) for tensor in op.outputs]
    updated = _updated_by(written, graph, [WRITER, OPTIMIZER_STEP])
    if updated:
        say(registry, text(_shown(updated)))


def _shown(names: set[str]) -> str:
    first = ", ".join(sorted(names)[:3])
    return first + (" and %d more" % (len(names) - 3) if len(names) > 3 else "")


def _updated_by(gradients: Iterable[Any], graph: tf.Graph, writers: Sequence[re.Pattern[str]]) -> set[str]:
    """Returns the names of the trained variables that gradients are written into, by ops of such types."""
    with graph.as_default():
        trained = {variable.op.name for variable in tf.trainable_variables()}
    updated, seen, ahead = set(), set(), list(gradients)
    while ahead:
        for op in ahead.pop().consumers():
            if op in seen:
                continue
            seen.add(op)
            if any(types.match(op.type) for types in writers) and _holder(op) in trained:
                updated.add(_holder(op))
            else:
                ahead += list(op.outputs)
    return updated


def _holder(writer: Any) -> str:
    """Returns the name of the variable that an op writes into, through the branches and loops it is in."""
    tensor = writer.inputs[0]
    while tensor.op.inputs:
        tensor = tensor.op.inputs[0]
    return str(tensor.op.name)
