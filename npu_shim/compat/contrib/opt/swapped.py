"""A 16-bit variable saved in the place of its float32 average, and the average in its place.

    variable, average, master     are saved as     master, variable (rounded average), average

So each script loads a checkpoint by the variable's name and dtype, and what comes back is exact. The master, which the
variable is the rounded value of, is there where an optimizer updates one in float32.
"""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf

from npu_shim.rewriter import tf_internals

MASTER = "/float32_master"  # behind a variable's name, that of the master which an optimizer updates
_saving = tf_internals.python_module("training.saving.saveable_object")


class Swapped(_saving.SaveableObject):  # type: ignore[misc, name-defined]
    """What a tf.train.Saver saves and restores.

    Args:
        variable: of a 16-bit dtype, or a part of one.
        average: of float32.
        master: of float32; None if the variable itself is what is averaged.
        keys: names in the checkpoint of the variable, the average and the master, if there is one.
    """

    def __init__(self, variable: Any, average: Any, master: Any, keys: Any) -> None:
        self._variable, self._average, self._master = variable, average, master
        info = variable._get_save_slice_info()
        newest, mean = (variable if master is None else master).read_value(), average.read_value()
        saved = [tf.cast(mean, variable.dtype.base_dtype), tf.cast(newest, mean.dtype), mean]
        part = "" if info is None else info.spec
        specs = [_saving.SaveSpec(tensor, part, key, tensor.dtype) for tensor, key in zip(saved, keys)]
        super().__init__(variable, specs, keys[0])

    def restore(self, restored_tensors: Any, restored_shapes: Any) -> tf.Operation:
        """Returns the op that gives all of them what `restored_tensors` hold, which are as the specs."""
        rounded, newest, *exact = restored_tensors
        mean = exact[0] if exact else tf.cast(rounded, newest.dtype)
        done = [self._average.assign(mean), self._variable.assign(tf.cast(newest, rounded.dtype))]
        if self._master is not None:
            done.append(self._master.assign(newest))
        return tf.group(*done)
