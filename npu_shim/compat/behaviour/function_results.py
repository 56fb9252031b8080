"""What a tf.function that returns nothing gives in a graph: the op that calls it, as in 1.15.

    session.run(step())

runs the step there. TensorFlow 2 gives None, whose step a session cannot be asked for.
"""

from __future__ import annotations

import functools
from typing import Any

import tensorflow.compat.v1 as tf

from npu_shim.rewriter import tf_internals

CALLS = ("PartitionedCall", "StatefulPartitionedCall")


def install() -> None:
    """Wraps calls of functions from now on; a second call does nothing."""
    kind = tf_internals.python_module("eager.polymorphic_function.concrete_function").ConcreteFunction
    call = kind._call_flat
    if hasattr(call, "gives_ops"):
        return

    @functools.wraps(call)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = call(self, *args, **kwargs)
        graph = tf.get_default_graph()
        if result is not None or tf.executing_eagerly() or graph.building_function:
            return result
        last = graph.get_operations()[-1]
        return last if last.type in CALLS else result

    vars(method)["gives_ops"] = True
    kind._call_flat = method
