"""Has XLA keep NaN on CPUs, as TensorFlow's own kernels do.

XLA for CPUs computes maxima and minima by instructions that take the other operand for NaN, and TensorFlow leaves them
on: `reduce_max`, `reduce_min` and max pools then leave NaN out, and 2.15's `clip_by_value` turns it into its lower
bound. A training that diverges would show numbers. JAX switches them off, and so does this.
"""

from __future__ import annotations

import os

import tensorflow.compat.v1 as tf

FLAG = "--xla_cpu_enable_fast_min_max"


def keep() -> None:
    """Sets the flag in this process's XLA_FLAGS, unless they name it.

    TensorFlow reads them once, so this is for the time before the first session. Processes that this one starts inherit
    them, and TensorFlow 1.15 ends at a flag that it does not know: a script that starts it passes XLA_FLAGS of its own.
    """
    flags = os.environ.get("XLA_FLAGS", "")
    if FLAG not in flags and not tf.__version__.startswith("1."):
        os.environ["XLA_FLAGS"] = ("%s %s=false" % (flags, FLAG)).strip()
