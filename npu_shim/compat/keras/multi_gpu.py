"""tf.keras.utils.multi_gpu_model, which TensorFlow 2 dropped."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf

from npu_shim.compat.behaviour.strategies import engine_divides


def multi_gpu_model(model: Any, gpus: Any = None, cpu_merge: bool = True, cpu_relocation: bool = False) -> Any:
    """Returns a Keras model that splits each batch over the GPUs and joins the outputs; the weights are shared.

    Where the engine runs steps on several devices, it divides them, and the model computes each batch as a whole.

    Args:
        model: a Keras model.
        gpus: int of at least 2, a list of GPU numbers, or None for all of them.
        cpu_merge: bool, whether the outputs are joined on the CPU.
        cpu_relocation: bool, unused: the weights stay where the model made them.

    Raises:
        ValueError: fewer than two GPUs are asked for, or there are not as many.
    """
    available = len(tf.config.list_physical_devices("GPU"))
    wanted = list(range(available if gpus is None else gpus)) if not isinstance(gpus, (list, tuple)) else list(gpus)
    if engine_divides() and (gpus is None or len(wanted) > 1):
        return tf.keras.models.Model(model.inputs, model(model.inputs if len(model.inputs) > 1 else model.inputs[0]))
    if len(wanted) <= 1:
        raise ValueError("npu_shim: multi_gpu_model: gpus is %s, expected at least 2 GPUs" % (gpus,))
    if max(wanted) >= available:
        raise ValueError(
            "npu_shim: multi_gpu_model: gpus is %s, and TensorFlow sees %d here; `npu-shim run --engine pjrt --devices "
            "N` divides the steps of such a model over the devices that JAX sees" % (gpus, available)
        )
    parts = []
    for place, gpu in enumerate(wanted):
        with tf.device("/gpu:%d" % gpu), tf.name_scope("replica_%d" % gpu):
            cut = _part(place, len(wanted))
            inputs = [tf.keras.layers.Lambda(cut)(x) for x in model.inputs]
            outputs = model(inputs if len(inputs) > 1 else inputs[0])
            parts.append(outputs if isinstance(outputs, (list, tuple)) else [outputs])
    with tf.device("/cpu:0" if cpu_merge else "/gpu:%d" % wanted[0]):
        names = model.output_names
        joined = [tf.keras.layers.concatenate(list(p), axis=0, name=n) for n, p in zip(names, zip(*parts))]
    return tf.keras.models.Model(model.inputs, joined if len(joined) > 1 else joined[0])


def _part(index, count):
    """A function that cuts its part out of a batch; the last part takes the rest."""

    def cut(x):
        size = tf.shape(x)[0] // count
        return x[index * size :] if index == count - 1 else x[index * size : (index + 1) * size]

    return cut
