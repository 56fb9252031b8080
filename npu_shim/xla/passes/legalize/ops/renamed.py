"""Ops that XLA has under another name."""

from __future__ import annotations

from typing import Any, Callable, Sequence

import tensorflow.compat.v1 as tf

from npu_shim.rewriter import tf_internals
from npu_shim.xla.passes.legalize.site import Site


def as_op(name: str) -> Callable[[Site], Any]:
    """Makes the table row of an op with the inputs and attributes of op `name`."""
    return lambda site: _call(site, name, site.inputs)


def _call(site: Site, name: str, values: Sequence[Any]) -> Any:
    definition = tf_internals.op_defs()[name]
    kept = {attr.name for attr in definition.attr if attr.type in ("bool", "int", "float")}
    given = dict(zip((arg.name for arg in definition.input_arg), values))
    given.update((name_of_attr, site.attr(name_of_attr)) for name_of_attr in site.node.attrs if name_of_attr in kept)
    result = getattr(tf.raw_ops, name)(**given)
    return list(result) if isinstance(result, tuple) else result
