"""What the devices of this process compute in."""

from __future__ import annotations

import functools

import tensorflow.compat.v1 as tf

FIRST_WITH_BFLOAT16 = (8, 0)  # CUDA compute capability, Ampere's; source: NVIDIA's CUDA programming guide
FLOAT16, BFLOAT16 = "allow_mix_precision", "allow_mix_precision_bf16"


@functools.lru_cache(maxsize=None)
def mixed_mode() -> str:
    """Returns the precision_mode that `auto` stands for: bfloat16 where every GPU has it, else float16.

    On CPUs it is bfloat16, which needs no loss scale. TensorFlow 1 has no bfloat16 on GPUs.
    """
    gpus = tf.config.experimental.list_physical_devices("GPU")
    return BFLOAT16 if all(map(_has_bfloat16, gpus)) else FLOAT16


def _has_bfloat16(gpu):
    if not hasattr(tf.config.experimental, "get_device_details"):  # TensorFlow 1
        return False
    capability = tf.config.experimental.get_device_details(gpu).get("compute_capability")
    return capability is not None and tuple(capability) >= FIRST_WITH_BFLOAT16
